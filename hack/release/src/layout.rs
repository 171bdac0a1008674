//! A release as a folder, for a publisher that compiles nothing: an OCI image layout, with the digests that get a tag beside it.
//!
//! Cargo runs the build scripts of crates with all rights that it has itself. So in the workflow, one job builds the release and writes
//! this folder, and another job, which alone may push and sign, publishes it by `publish.sh`.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use images::image::Descriptor;
use images::{Digest, Store};
use serde_json::json;

use crate::Artifacts;
use crate::artifacts::write;
use crate::oci::{Document, EMPTY_CONFIG, INDEX};

/// The file that names the digests of the image's index and of the chart, both of which get a tag.
pub const DIGESTS: &str = "digests.json";

/// Checks that [`export`] can write into this folder: everything in it is published, so nothing may be there already.
pub fn check_unused(folder: &Path) -> Result<()> {
    let is_used = fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some());
    ensure!(!is_used, "{} is not empty: delete it, or name another folder", folder.display());
    Ok(())
}

/// Writes everything that goes to the registry, without signatures, into an empty or a new folder.
///
/// # Errors
///
/// Also if a blob of the store does not have the digest of its name.
pub fn export(artifacts: &Artifacts, store: &Store, folder: &Path) -> Result<()> {
    check_unused(folder)?;
    let layout = Store::open(folder)?;
    let put = |blob: &[u8]| write(&layout.blob_path(&Digest::of(blob)), blob);
    for image in &artifacts.images {
        let manifest = store.manifest(&image.digest)?;
        let parts = manifest.layers.iter().chain([&manifest.config]).map(|part| &part.digest);
        for digest in parts.chain([&image.digest]) {
            let path = store.blob_path(digest);
            let blob = fs::read(&path).with_context(|| format!("could not read {}", path.display()))?;
            ensure!(Digest::of(&blob) == *digest, "{} does not have the digest of its name", path.display());
            put(&blob)?;
        }
    }
    let bills = &artifacts.bills;
    let blobs = [&artifacts.package.config, &artifacts.package.content];
    for blob in blobs.into_iter().chain(bills.iter().map(|bill| &bill.content)) {
        put(blob)?;
    }
    put(EMPTY_CONFIG)?;
    // A bill names its image, but no manifest names the bill. So the layout itself has to.
    let mut entries = Vec::new();
    for document in [&artifacts.index, &artifacts.chart].into_iter().chain(bills.iter().map(|bill| &bill.manifest)) {
        let Document { media_type, content } = document;
        put(content)?;
        entries.push(Descriptor::of(media_type, content));
    }
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries});
    write(&folder.join("index.json"), index.to_string().as_bytes())?;
    let digests = json!({"image": artifacts.index.digest(), "chart": artifacts.chart.digest()});
    write(&folder.join(DIGESTS), digests.to_string().as_bytes())
}
