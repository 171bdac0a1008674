//! A mirror of images, as a cluster without internet has one.

use std::{
    fs,
    net::{Ipv4Addr, TcpListener},
    thread,
};

use anyhow::{Context as _, Result};
use cluster::Cluster;
use images::{Digest, Image, Reference, Store, store::Stored};
use tempfile::TempDir;

/// What holds the namespaces of every pod. A node needs it before it can run the operators.
const SANDBOX: &str = "localhost/pause:1";

/// A registry in the network of a cluster, from which alone the nodes of the cluster pull. It has images of this machine's store under
/// the names that they have in a mirror, and ends with the process.
#[derive(Debug)]
pub struct Mirror {
    prefix: String,
    store: Store,
    /// The folder of the store.
    _folder: TempDir,
}

impl Mirror {
    /// Starts a mirror without images, whose names will begin with `prefix`.
    ///
    /// # Errors
    ///
    /// If this repository does not run the cluster.
    pub fn start(cluster: &Cluster, prefix: &str) -> Result<Self> {
        let folder = TempDir::with_prefix("mirror-").context("could not make a folder")?;
        let store = Store::open(folder.path())?;
        let machine = machine()?;
        let sandbox = find(&machine, SANDBOX)?.context("the store has no image of a sandbox")?;
        store.put(&copy(&machine, &sandbox, sandbox.reference.clone())?)?;

        let listener = cluster
            .in_network(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("could not listen for the mirror"))?;
        cluster.pull_only_from(listener.local_addr()?)?;
        let root = folder.path().to_owned();
        thread::spawn(move || {
            if let Err(error) = images::serve(listener, &root) {
                eprintln!("the mirror ended: {error:#}");
            }
        });
        Ok(Self { prefix: prefix.to_owned(), store, _folder: folder })
    }

    /// Copies an image to the mirror: `REPOSITORY:TAG` or `REPOSITORY@DIGEST`. Returns whether this machine has the image.
    pub fn add(&self, name: &str) -> Result<bool> {
        let machine = machine()?;
        let Some(stored) = find(&machine, name)? else { return Ok(false) };
        let mirrored = Reference::parse(&format!("{}/{}", self.prefix, stored.reference))?;
        self.store.put(&copy(&machine, &stored, mirrored)?)?;
        Ok(true)
    }
}

/// The images of this machine.
pub(crate) fn machine() -> Result<Store> {
    Store::open(images::default_store()?)
}

/// The image with this name: `REPOSITORY:TAG` or `REPOSITORY@DIGEST`.
pub(crate) fn find(store: &Store, name: &str) -> Result<Option<Stored>> {
    let tagged = Reference::parse(name).ok();
    let is_it = |stored: &Stored| {
        tagged.as_ref() == Some(&stored.reference)
            || format!("{}@{}", stored.reference.repository, stored.digest) == name
    };
    Ok(store.list()?.into_iter().find(is_it))
}

/// The image in the store, under another name.
pub(crate) fn copy(store: &Store, stored: &Stored, name: Reference) -> Result<Image> {
    let read = |digest: &Digest| fs::read(store.blob_path(digest)).with_context(|| format!("could not read {name}"));
    let manifest = store.manifest(&stored.digest)?;
    let layer = manifest.layers.first().context("the image has no layer")?;
    Ok(Image {
        manifest: read(&stored.digest)?,
        config: read(&manifest.config.digest)?,
        layer: read(&layer.digest)?,
        references: vec![name],
        inputs: None,
    })
}

#[cfg(test)]
mod tests {
    use images::{ImageSpec, Layer};

    use super::*;

    #[test]
    fn image_is_found_by_tag_or_digest_and_copied_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        let (from, to) = (Store::open(from).unwrap(), Store::open(to).unwrap());
        let mut files = Layer::new();
        files.file("/content", "x", 0o644);
        let name = Reference::parse("docker.io/library/app:1").unwrap();
        from.put(&ImageSpec { references: vec![name], files, ..ImageSpec::default() }.build().unwrap()).unwrap();

        let by_tag = find(&from, "docker.io/library/app:1").unwrap().unwrap();
        let by_digest = find(&from, &format!("docker.io/library/app@{}", by_tag.digest)).unwrap().unwrap();
        assert_eq!(by_digest.reference, by_tag.reference);
        assert!(find(&from, "docker.io/library/app:2").unwrap().is_none());

        let mirrored = Reference::parse("mirror.example.com/hub/docker.io/library/app:1").unwrap();
        to.put(&copy(&from, &by_tag, mirrored.clone()).unwrap()).unwrap();
        assert_eq!(to.find(&mirrored).unwrap().unwrap().digest, by_tag.digest);
    }
}
