//! The formats of registries. They are types with a fixed order of their fields, so that the same content always has the same digest.

use std::collections::BTreeMap;

use anyhow::Result;
use bytes::Bytes;
use images::image::{Descriptor, MANIFEST};
use images::{Digest, Platform};
use serde::Serialize;

/// The media type of an index.
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// The media type of a chart's description, which Helm prescribes.
pub const CHART_CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
/// The media type of a chart's package, which Helm prescribes.
pub const CHART_CONTENT: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";

/// The media type of a bill of materials.
pub const CYCLONEDX: &str = "application/vnd.cyclonedx+json";
/// The media type of the configuration of a manifest that needs none.
const EMPTY: &str = "application/vnd.oci.empty.v1+json";
/// The content of this configuration.
pub const EMPTY_CONFIG: &[u8] = b"{}";

/// What a registry shows about an image or a chart.
pub type Annotations = BTreeMap<String, String>;

/// A manifest or an index, with what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The media type.
    pub media_type: &'static str,
    /// The text.
    pub content: Bytes,
}

impl Document {
    /// The digest under which a registry keeps it.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.content)
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Index {
    schema_version: u8,
    media_type: &'static str,
    manifests: Vec<Entry>,
    annotations: Annotations,
}

#[derive(Serialize)]
struct Entry {
    #[serde(flatten)]
    descriptor: Descriptor,
    platform: Runs,
}

#[derive(Serialize)]
struct Runs {
    architecture: &'static str,
    os: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    schema_version: u8,
    media_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    artifact_type: Option<&'static str>,
    config: Descriptor,
    layers: Vec<Descriptor>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<Descriptor>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: Annotations,
}

impl Manifest {
    fn new(config: Descriptor, layer: Descriptor) -> Self {
        Self {
            schema_version: 2,
            media_type: MANIFEST,
            artifact_type: None,
            config,
            layers: vec![layer],
            subject: None,
            annotations: Annotations::new(),
        }
    }
}

/// The index over the manifests of these platforms.
pub fn index(manifests: &[(Platform, Bytes)], annotations: Annotations) -> Result<Document> {
    let entry = |(platform, manifest): &(Platform, Bytes)| Entry {
        descriptor: Descriptor::of(MANIFEST, manifest),
        platform: Runs { architecture: platform.architecture(), os: "linux" },
    };
    let manifests = manifests.iter().map(entry).collect();
    document(INDEX, &Index { schema_version: 2, media_type: INDEX, manifests, annotations })
}

/// The manifest of a chart.
pub fn chart(config: &Bytes, content: &Bytes, annotations: Annotations) -> Result<Document> {
    let manifest = Manifest::new(Descriptor::of(CHART_CONFIG, config), Descriptor::of(CHART_CONTENT, content));
    document(MANIFEST, &Manifest { annotations, ..manifest })
}

/// A manifest that attaches a bill of materials to the manifest `subject`.
pub fn bill_of_materials(subject: &[u8], bill: &Bytes) -> Result<Document> {
    let manifest = Manifest::new(Descriptor::of(EMPTY, EMPTY_CONFIG), Descriptor::of(CYCLONEDX, bill));
    let subject = Some(Descriptor::of(MANIFEST, subject));
    document(MANIFEST, &Manifest { artifact_type: Some(CYCLONEDX), subject, ..manifest })
}

fn document(media_type: &'static str, content: &impl Serialize) -> Result<Document> {
    Ok(Document { media_type, content: serde_json::to_vec(content)?.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_has_the_form_that_registries_expect() {
        let manifests = [(Platform::Amd64, Bytes::from_static(b"{}")), (Platform::Arm64, Bytes::from_static(b"{ }"))];
        let annotations = Annotations::from([("a".to_owned(), "b".to_owned())]);
        let expected = format!(
            r#"{{"schemaVersion":2,"mediaType":"{INDEX}","manifests":[{{"mediaType":"{MANIFEST}","digest":"{}","size":2,"platform":{{"architecture":"amd64","os":"linux"}}}},{{"mediaType":"{MANIFEST}","digest":"{}","size":3,"platform":{{"architecture":"arm64","os":"linux"}}}}],"annotations":{{"a":"b"}}}}"#,
            Digest::of(b"{}"),
            Digest::of(b"{ }"),
        );
        assert_eq!(index(&manifests, annotations).unwrap().content, expected);
    }
}
