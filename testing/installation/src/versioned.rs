//! The operators' image under other versions, without a build.

use anyhow::{Context as _, Result};
use images::image::Descriptor;
use images::store::Stored;
use images::{Digest, Image, Store};
use serde_json::Value;

use crate::mirror::{copy, find, machine};

/// Copies an image of this machine into another store: `REPOSITORY:TAG` or `REPOSITORY@DIGEST`. The copy names this version and this
/// commit. Its programs are the same, so all such copies share their layer. Returns the digest.
pub fn copy_as_version(image: &str, version: &str, commit: &str, to: &Store) -> Result<Digest> {
    let machine = machine()?;
    let stored = find(&machine, image)?.with_context(|| format!("this machine has no image {image}"))?;
    let copied = labelled(&machine, &stored, version, commit)?;
    to.put(&copied)?;
    Ok(copied.digest())
}

/// The image with this version and this commit in its labels, and with this tag.
fn labelled(store: &Store, stored: &Stored, version: &str, commit: &str) -> Result<Image> {
    let mut image = copy(store, stored, stored.reference.with_tag(version))?;
    let mut config: Value = serde_json::from_slice(&image.config).context("the configuration of the image")?;
    for (name, value) in [("version", version), ("revision", commit)] {
        config["config"]["Labels"][format!("org.opencontainers.image.{name}")] = value.into();
    }
    image.config = serde_json::to_vec(&config)?;
    let mut manifest = store.manifest(&stored.digest)?;
    manifest.config = Descriptor::of(&manifest.config.media_type, &image.config);
    image.manifest = serde_json::to_vec(&manifest)?;
    Ok(image)
}

#[cfg(test)]
mod tests {
    use images::{ImageSpec, Layer, Reference};

    use super::*;

    #[test]
    fn versions_differ_in_their_labels_alone() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let mut files = Layer::new();
        files.file("/content", "x", 0o644);
        let references = vec![Reference::parse("localhost/app:trial").unwrap()];
        let labels = [("org.opencontainers.image.title".to_owned(), "app".to_owned())].into();
        let spec = ImageSpec { references, files, entrypoint: vec!["/app".to_owned()], labels, ..ImageSpec::default() };
        store.put(&spec.build().unwrap()).unwrap();
        let stored = store.list().unwrap().remove(0);

        let versions = ["0.1.0", "0.1.1"].map(|version| labelled(&store, &stored, version, "abc").unwrap());
        assert_ne!(versions[0].digest(), versions[1].digest());
        for (image, version) in versions.iter().zip(["0.1.0", "0.1.1"]) {
            store.put(image).unwrap();
            let name = Reference::parse(&format!("localhost/app:{version}")).unwrap();
            assert_eq!(store.find(&name).unwrap().unwrap().digest, image.digest());
            let manifest = store.manifest(&image.digest()).unwrap();
            assert_eq!(manifest.config.digest, Digest::of(&image.config));
            assert_eq!(manifest.layers[0].digest, Digest::of(&image.layer));
            let config: Value = serde_json::from_slice(&image.config).unwrap();
            assert_eq!(config["config"]["Entrypoint"][0], "/app");
            let label = |name: &str| &config["config"]["Labels"][format!("org.opencontainers.image.{name}")];
            assert_eq!([label("title"), label("version"), label("revision")], ["app", version, "abc"]);
        }
    }
}
