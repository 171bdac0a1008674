//! Pushes an image of the store.

use anyhow::{Context as _, Result};
use bytes::Bytes;
use images::image::MANIFEST;
use images::reference::Repository;
use images::{Digest, Reference, Store};

use crate::{Client, Name, Pushed};

/// What a push sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// The digest of the image in the registry, the same as in the store.
    pub digest: Digest,
    /// The bytes that crossed the network, without headers. 0 if the registry had everything already.
    pub bytes: u64,
}

/// Puts the image `from` of the store into the repository of `to`, under its tag. The tag comes last, so it never names an
/// incomplete image.
///
/// # Errors
///
/// If the store has no image of this name, or the registry refuses it.
pub async fn push(client: &Client, store: &Store, from: &Reference, to: &Reference) -> Result<Sent> {
    let stored = store.find(from)?.with_context(|| format!("{from} is not in {}", store.root().display()))?;
    push_digest(client, store, &stored.digest, &to.repository, &Name::Tag(to.tag.clone())).await
}

/// The same for an image with this digest, under a tag or only under its digest, as an index names it.
pub async fn push_digest(
    client: &Client,
    store: &Store,
    digest: &Digest,
    to: &Repository,
    name: &Name,
) -> Result<Sent> {
    let manifest = store.manifest(digest)?;
    let mut sent = Sent { digest: digest.clone(), bytes: 0 };
    for descriptor in manifest.layers.iter().chain([&manifest.config]) {
        let blob = read(store, &descriptor.digest)?;
        sent.add(client.push_blob(to, &blob).await?, &blob);
    }
    let manifest = read(store, digest)?;
    sent.add(client.push_manifest(to, name, MANIFEST, &manifest).await?, &manifest);
    Ok(sent)
}

impl Sent {
    fn add(&mut self, pushed: Pushed, content: &Bytes) {
        if pushed == Pushed::Uploaded {
            self.bytes += content.len() as u64;
        }
    }
}

fn read(store: &Store, digest: &Digest) -> Result<Bytes> {
    let path = store.blob_path(digest);
    Ok(std::fs::read(&path).with_context(|| format!("could not read {}", path.display()))?.into())
}
