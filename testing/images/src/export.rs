//! Writes an image as one file, for `ctr images import`, `podman load` and `docker load`.

use std::io::{self, Read as _};
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::json;
use tar::{EntryType, Header};

use crate::image::Descriptor;
use crate::store::{Index, LAYOUT, Store, named};
use crate::{Digest, Reference};

impl Store {
    /// Writes an image as an OCI archive and returns the digest of its manifest. The archive is deterministic too.
    pub fn export(&self, reference: &Reference, file: &Path) -> Result<Digest> {
        self.export_as(reference, reference, file)
    }

    /// Like [`export`](Self::export), but the archive names the image `name`.
    pub fn export_as(&self, reference: &Reference, name: &Reference, file: &Path) -> Result<Digest> {
        let stored = self.find(reference)?.with_context(|| {
            format!("{reference} is not in {}: `cargo xtask image list` shows the images", self.root().display())
        })?;
        let bytes = self.archive(name, &stored.digest)?;
        crate::store::write_atomically(file, &bytes)?;
        Ok(stored.digest)
    }

    fn archive(&self, reference: &Reference, digest: &Digest) -> Result<Vec<u8>> {
        let manifest = self.manifest(digest)?;
        let entry = Descriptor {
            media_type: crate::image::MANIFEST.to_owned(),
            digest: digest.clone(),
            size: self.blob_path(digest).metadata()?.len(),
            annotations: [].into(),
        };
        let index = Index::new(vec![named(entry, reference)]);
        // Older versions of Docker and podman read only this list, which is older than the OCI layout.
        let docker = json!([{
            "Config": blob_name(&manifest.config.digest),
            "RepoTags": [reference.to_string()],
            "Layers": manifest.layers.iter().map(|layer| blob_name(&layer.digest)).collect::<Vec<_>>(),
        }]);

        let mut archive = tar::Builder::new(Vec::new());
        append(&mut archive, "oci-layout", LAYOUT.as_bytes())?;
        append(&mut archive, "index.json", &serde_json::to_vec(&index)?)?;
        append(&mut archive, "manifest.json", &serde_json::to_vec(&docker)?)?;
        let layers = manifest.layers.iter().map(|layer| &layer.digest);
        for digest in [digest, &manifest.config.digest].into_iter().chain(layers) {
            let mut blob = Vec::new();
            std::fs::File::open(self.blob_path(digest)).and_then(|mut file| file.read_to_end(&mut blob))?;
            append(&mut archive, &blob_name(digest), &blob)?;
        }
        Ok(archive.into_inner()?)
    }
}

fn blob_name(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

fn append(archive: &mut tar::Builder<Vec<u8>>, name: &str, content: &[u8]) -> io::Result<()> {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o644);
    header.set_mtime(0);
    header.set_size(content.len() as u64);
    archive.append_data(&mut header, name, content)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{ImageSpec, Layer};

    #[test]
    fn archive_has_all_blobs_in_oci_and_docker_index() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().join("store")).unwrap();
        let reference = Reference::parse("app:1").unwrap();
        let mut files = Layer::new();
        files.file("/content", "x", 0o644);
        let image = ImageSpec { references: vec![reference.clone()], files, ..ImageSpec::default() }.build().unwrap();
        store.put(&image).unwrap();

        let file = folder.path().join("app.tar");
        assert_eq!(store.export(&reference, &file).unwrap(), image.digest());
        let bytes = std::fs::read(&file).unwrap();
        let mut members = BTreeMap::new();
        for entry in tar::Archive::new(bytes.as_slice()).entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            members.insert(entry.path().unwrap().display().to_string(), content);
        }
        let index: serde_json::Value = serde_json::from_slice(&members["index.json"]).unwrap();
        assert_eq!(index["manifests"][0]["digest"], image.digest().to_string());
        assert_eq!(index["manifests"][0]["annotations"]["io.containerd.image.name"], "docker.io/library/app:1");
        let docker: serde_json::Value = serde_json::from_slice(&members["manifest.json"]).unwrap();
        assert_eq!(members[docker[0]["Config"].as_str().unwrap()], image.config);
        assert_eq!(members[docker[0]["Layers"][0].as_str().unwrap()], image.layer);
        assert_eq!(members[&blob_name(&image.digest())], image.manifest);

        assert!(store.export(&reference.with_tag("2"), &file).is_err());
    }
}
