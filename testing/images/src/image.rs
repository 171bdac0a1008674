//! Builds an image: one layer, a configuration with the command to start, and a manifest that names both.

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{Digest, Layer, Platform, Reference};

/// The media type of every manifest here.
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const LAYER_GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// The content of an image and how to start it.
#[derive(Clone, Debug, Default)]
pub struct ImageSpec {
    /// The names of the image. All of them will point to the same manifest.
    pub references: Vec<Reference>,
    /// The files.
    pub files: Layer,
    /// The program; a pod's `command` replaces it.
    pub entrypoint: Vec<String>,
    /// The arguments of the entrypoint; a pod's `args` replace them.
    pub cmd: Vec<String>,
    /// `NAME=value` pairs, in order.
    pub env: Vec<String>,
    /// The user, as `uid:gid`; empty means root. Use numbers, because the kubelet cannot check names for `runAsNonRoot`.
    pub user: String,
    /// The working directory; empty means `/`.
    pub workdir: String,
    /// TCP ports. They are documentation only.
    pub ports: Vec<u16>,
    /// Labels, preferably `org.opencontainers.image.*`.
    pub labels: BTreeMap<String, String>,
    /// Where the programs run; `None` means on machines like this one.
    pub platform: Option<Platform>,
    /// How to compress the layer.
    pub compression: Compression,
    /// A digest of all inputs of the image, by which `ensure_fixtures` recognises images that are up to date.
    pub inputs: Option<Digest>,
}

/// How the layer is stored and sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// No compression, for images that stay on this machine.
    #[default]
    None,
    /// gzip, for images that users download.
    Gzip,
}

/// A finished image, as the store keeps it.
#[derive(Clone, Debug)]
pub struct Image {
    /// The names of the image.
    pub references: Vec<Reference>,
    /// The manifest, which names the other blobs.
    pub manifest: Vec<u8>,
    /// The configuration.
    pub config: Vec<u8>,
    /// The layer as it is stored.
    pub layer: Vec<u8>,
    /// See [`ImageSpec::inputs`].
    pub inputs: Option<Digest>,
}

/// A pointer from a manifest or an index to a blob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// The type of the blob.
    pub media_type: String,
    /// The digest of the blob.
    pub digest: Digest,
    /// The length of the blob in bytes.
    pub size: u64,
    /// Names and other remarks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// An OCI image manifest.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    schema_version: u8,
    media_type: String,
    /// The configuration.
    pub config: Descriptor,
    /// The layers. Images of this crate have one.
    pub layers: Vec<Descriptor>,
}

impl ImageSpec {
    /// Packs the image. The same spec always gives the same bytes, so its digest can be compared between machines.
    pub fn build(self) -> Result<Image> {
        let tar = self.files.tar()?;
        let diff_id = Digest::of(&tar);
        let config = serde_json::to_vec(&self.config(&diff_id))?;
        let (media_type, layer) = match self.compression {
            Compression::None => (LAYER, tar),
            Compression::Gzip => (LAYER_GZIP, gzip(&tar)?),
        };
        let manifest = Manifest {
            schema_version: 2,
            media_type: MANIFEST.to_owned(),
            config: Descriptor::of(CONFIG, &config),
            layers: vec![Descriptor::of(media_type, &layer)],
        };
        let manifest = serde_json::to_vec(&manifest)?;
        Ok(Image { references: self.references, manifest, config, layer, inputs: self.inputs })
    }

    fn config(&self, diff_id: &Digest) -> Value {
        let ports: BTreeMap<String, Value> = self.ports.iter().map(|port| (format!("{port}/tcp"), json!({}))).collect();
        let workdir = if self.workdir.is_empty() { "/" } else { &self.workdir };
        json!({
            // Without a time of creation, so that two builds are equal.
            "architecture": self.platform.map_or_else(architecture, Platform::architecture),
            "os": "linux",
            "config": {
                "User": self.user,
                "Env": self.env,
                "Entrypoint": self.entrypoint,
                "Cmd": self.cmd,
                "WorkingDir": workdir,
                "ExposedPorts": ports,
                "Labels": self.labels,
            },
            "rootfs": { "type": "layers", "diff_ids": [diff_id] },
        })
    }
}

impl Image {
    /// The digest of the manifest, which is the image's digest in a registry.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.manifest)
    }
}

impl Descriptor {
    /// A descriptor of `blob`.
    pub fn of(media_type: &str, blob: &[u8]) -> Self {
        Self {
            media_type: media_type.to_owned(),
            digest: Digest::of(blob),
            size: blob.len() as u64,
            annotations: BTreeMap::new(),
        }
    }
}

/// The name of this machine's architecture in images.
fn architecture() -> &'static str {
    Platform::here().map_or(std::env::consts::ARCH, Platform::architecture)
}

/// Compresses the bytes. The same bytes always give the same result.
pub fn gzip(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    // flate2 writes no time and no name into the header, so the result depends only on the input.
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes)?;
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn spec(compression: Compression) -> ImageSpec {
        let mut files = Layer::new();
        files.file("/app", "#!", 0o755);
        ImageSpec {
            references: vec![Reference::parse("localhost/app:1").unwrap()],
            files,
            entrypoint: vec!["/app".into()],
            user: "65532:65532".into(),
            ports: vec![8080],
            compression,
            ..ImageSpec::default()
        }
    }

    #[test]
    fn two_builds_are_byte_identical() {
        for compression in [Compression::None, Compression::Gzip] {
            let (one, other) = (spec(compression).build().unwrap(), spec(compression).build().unwrap());
            assert_eq!((one.manifest, one.config, one.layer), (other.manifest, other.config, other.layer));
        }
    }

    #[test]
    fn manifest_and_config_have_correct_digests() {
        let image = spec(Compression::Gzip).build().unwrap();
        let manifest: Manifest = serde_json::from_slice(&image.manifest).unwrap();
        assert_eq!(manifest.config.digest, Digest::of(&image.config));
        assert_eq!(manifest.layers[0].digest, Digest::of(&image.layer));

        let mut tar = Vec::new();
        flate2::read::GzDecoder::new(image.layer.as_slice()).read_to_end(&mut tar).unwrap();
        let config: Value = serde_json::from_slice(&image.config).unwrap();
        assert_eq!(config["rootfs"]["diff_ids"][0], Digest::of(&tar).to_string());
        assert_eq!(config["config"]["User"], "65532:65532");
        assert_eq!(config["config"]["ExposedPorts"], json!({"8080/tcp": {}}));
    }
}
