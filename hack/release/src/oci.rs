//! The formats of registries. They are types with a fixed order of their fields, so that the same content always has the same digest.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use images::image::{Descriptor, MANIFEST};
use images::{Digest, Platform};
use serde::Serialize;
use serde_json::json;

/// The media type of an index.
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// The media type of a chart's description, which Helm prescribes.
pub const CHART_CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
/// The media type of a chart's package, which Helm prescribes.
pub const CHART_CONTENT: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";

/// The media type of a bill of materials.
pub const CYCLONEDX: &str = "application/vnd.cyclonedx+json";
/// The name of the file that a user gets.
const BILL: &str = "bom.json";
/// The annotation that names a file.
const TITLE: &str = "org.opencontainers.image.title";
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
    layers: Vec<File>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<Descriptor>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: Annotations,
}

/// What a manifest consists of.
#[derive(Serialize)]
struct File {
    #[serde(flatten)]
    descriptor: Descriptor,
    /// With a title, `oras pull` writes it into a file of that name; without one, it writes nothing.
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
            layers: vec![File { descriptor: layer, annotations: Annotations::new() }],
            subject: None,
            annotations: Annotations::new(),
        }
    }
}

/// The index over the manifests of these platforms.
pub fn index(manifests: &[(Platform, Document)], annotations: Annotations) -> Result<Document> {
    let entry = |(platform, manifest): &(Platform, Document)| Entry {
        descriptor: Descriptor::of(manifest.media_type, &manifest.content),
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

/// Something about a manifest or an index, by which clients find it: a referrer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// What it is about.
    pub subject: Digest,
    /// The text itself.
    pub content: Bytes,
    /// The manifest that names both.
    pub manifest: Document,
    entry: Referrer,
}

/// The entry of an attachment in the list that a client keeps for a registry that keeps none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Referrer {
    #[serde(flatten)]
    descriptor: Descriptor,
    artifact_type: &'static str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: Annotations,
}

impl Attachment {
    /// Attaches a text of this media type.
    pub fn new(subject: &Document, kind: &'static str, content: Bytes, annotations: Annotations) -> Result<Self> {
        let mut manifest = Manifest::new(Descriptor::of(EMPTY, EMPTY_CONFIG), Descriptor::of(kind, &content));
        if kind == CYCLONEDX {
            manifest.layers[0].annotations.insert(TITLE.to_owned(), BILL.to_owned());
        }
        let of = Some(Descriptor::of(subject.media_type, &subject.content));
        let (artifact_type, listed) = (Some(kind), annotations.clone());
        let manifest = document(MANIFEST, &Manifest { artifact_type, subject: of, annotations, ..manifest })?;
        let descriptor = Descriptor::of(MANIFEST, &manifest.content);
        let entry = Referrer { descriptor, artifact_type: kind, annotations: listed };
        Ok(Self { subject: subject.digest(), content, manifest, entry })
    }

    /// The index that lists this attachment after those that `before` lists, or in its place if `before` lists it already.
    pub fn listed_after(&self, before: Option<&[u8]>) -> Result<Document> {
        let mut list = match before {
            Some(list) => serde_json::from_slice(list)?,
            None => json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": []}),
        };
        let entry = serde_json::to_value(&self.entry)?;
        let manifests = list["manifests"].as_array_mut().context("this is not an index")?;
        match manifests.iter().position(|listed| listed["digest"] == entry["digest"]) {
            Some(place) => manifests[place] = entry,
            None => manifests.push(entry),
        }
        document(INDEX, &list)
    }
}

fn document(media_type: &'static str, content: &impl Serialize) -> Result<Document> {
    Ok(Document { media_type, content: serde_json::to_vec(content)?.into() })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn index_has_the_form_that_registries_expect() {
        let manifest = |content| Document { media_type: MANIFEST, content: Bytes::from_static(content) };
        let manifests = [(Platform::Amd64, manifest(b"{}")), (Platform::Arm64, manifest(b"{ }"))];
        let annotations = Annotations::from([("a".to_owned(), "b".to_owned())]);
        let expected = format!(
            r#"{{"schemaVersion":2,"mediaType":"{INDEX}","manifests":[{{"mediaType":"{MANIFEST}","digest":"{}","size":2,"platform":{{"architecture":"amd64","os":"linux"}}}},{{"mediaType":"{MANIFEST}","digest":"{}","size":3,"platform":{{"architecture":"arm64","os":"linux"}}}}],"annotations":{{"a":"b"}}}}"#,
            Digest::of(b"{}"),
            Digest::of(b"{ }"),
        );
        assert_eq!(index(&manifests, annotations).unwrap().content, expected);
    }

    #[test]
    fn list_of_referrers_keeps_what_others_attached() {
        let subject = Document { media_type: INDEX, content: Bytes::from_static(b"{}") };
        let annotations = Annotations::from([("a".to_owned(), "b".to_owned())]);
        let ours = Attachment::new(&subject, CYCLONEDX, Bytes::from_static(b"bill"), annotations).unwrap();
        let manifest: Value = serde_json::from_slice(&ours.manifest.content).unwrap();
        assert_eq!(manifest["subject"]["mediaType"], INDEX);
        let before = br#"{"schemaVersion":2,"manifests":[{"digest":"sha256:0"}]}"#;
        for (before, place) in [(None, 0), (Some(&before[..]), 1)] {
            let list: Value = serde_json::from_slice(&ours.listed_after(before).unwrap().content).unwrap();
            let entry = &list["manifests"][place];
            assert_eq!(entry["digest"], ours.manifest.digest().to_string());
            assert_eq!((&entry["artifactType"], &entry["annotations"]["a"]), (&CYCLONEDX.into(), &"b".into()));
            assert_eq!(list["manifests"].as_array().unwrap().len(), place + 1);
        }
        assert!(ours.listed_after(Some(b"{}")).is_err());
    }

    #[test]
    fn attachment_that_is_listed_already_is_listed_once() {
        let subject = Document { media_type: INDEX, content: Bytes::from_static(b"{}") };
        let attached = |content: &'static [u8]| {
            Attachment::new(&subject, CYCLONEDX, Bytes::from_static(content), Annotations::new()).unwrap()
        };
        let (first, second) = (attached(b"first"), attached(b"second"));
        let one = first.listed_after(None).unwrap();
        let both = second.listed_after(Some(&*one.content)).unwrap();
        for again in [&first, &second] {
            assert_eq!(again.listed_after(Some(&*both.content)).unwrap(), both);
        }
        // The entry is ours, whatever another client has written for it.
        let other = String::from_utf8(both.content.to_vec()).unwrap().replace(CYCLONEDX, "application/json");
        let list: Value =
            serde_json::from_slice(&second.listed_after(Some(other.as_bytes())).unwrap().content).unwrap();
        let kinds: Vec<_> = list["manifests"].as_array().unwrap().iter().map(|entry| &entry["artifactType"]).collect();
        assert_eq!(kinds, ["application/json", CYCLONEDX]);
    }
}
