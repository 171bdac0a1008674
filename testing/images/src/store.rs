//! The image store: a folder in the OCI image layout. `index.json` has one entry for each name; blobs are stored by their digest.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use crate::image::{Descriptor, MANIFEST, Manifest};
use crate::{Digest, Image, Reference};

/// The annotation with the full name of an image, which containerd and skopeo read.
pub(crate) const REF_NAME: &str = "org.opencontainers.image.ref.name";
/// The annotation with the same name for containerd and Docker. Without it, they treat [`REF_NAME`] as a tag alone.
pub(crate) const IMAGE_NAME: &str = "io.containerd.image.name";
/// The annotation with the digest of a fixture's inputs.
const INPUTS: &str = "operators.image.inputs";

/// How long to keep unreferenced blobs, since a node may still pull them.
const KEEP_UNREFERENCED: Duration = Duration::from_hours(1);

/// A folder of images. Several processes may read and write it at once.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
}

/// One name in a store.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The name.
    pub reference: Reference,
    /// The digest of the manifest.
    pub digest: Digest,
    /// The digest of the inputs. Only fixtures have one.
    pub inputs: Option<Digest>,
}

/// An OCI image index.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Index {
    schema_version: u8,
    media_type: String,
    pub(crate) manifests: Vec<Descriptor>,
}

impl Store {
    /// Opens the store in `root`, and creates it if it does not exist.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self> {
        let store = Self { root: root.into() };
        fs::create_dir_all(store.root.join("blobs/sha256"))
            .with_context(|| format!("could not create the image store {}", store.root.display()))?;
        let layout = store.root.join("oci-layout");
        if !layout.exists() {
            write_atomically(&layout, LAYOUT.as_bytes())?;
        }
        Ok(store)
    }

    /// The folder of the store.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Adds an image under all its names. A name of another image now points to this one.
    pub fn put(&self, image: &Image) -> Result<()> {
        if image.references.is_empty() {
            bail!("an image without a name cannot be stored");
        }
        let _lock = self.lock("lock")?;
        let mut descriptor = Descriptor::of(MANIFEST, &image.manifest);
        for blob in [&image.layer, &image.config, &image.manifest] {
            self.write_blob(blob)?;
        }
        if let Some(inputs) = &image.inputs {
            descriptor.annotations.insert(INPUTS.to_owned(), inputs.to_string());
        }
        let mut index = self.index()?;
        index.manifests.retain(|old| reference(old).is_none_or(|name| !image.references.contains(&name)));
        index.manifests.extend(image.references.iter().map(|name| named(descriptor.clone(), name)));
        index.manifests.sort_by_key(reference);
        write_atomically(&self.root.join("index.json"), &serde_json::to_vec_pretty(&index)?)?;
        self.prune(&index)
    }

    /// All names, sorted.
    pub fn list(&self) -> Result<Vec<Stored>> {
        let stored = |descriptor: &Descriptor| {
            Some(Stored {
                reference: reference(descriptor)?,
                digest: descriptor.digest.clone(),
                inputs: descriptor.annotations.get(INPUTS).and_then(|text| Digest::parse(text).ok()),
            })
        };
        Ok(self.index()?.manifests.iter().filter_map(stored).collect())
    }

    /// The image with this name, if there is one.
    pub fn find(&self, reference: &Reference) -> Result<Option<Stored>> {
        Ok(self.list()?.into_iter().find(|stored| stored.reference == *reference))
    }

    /// The manifest with this digest.
    pub fn manifest(&self, digest: &Digest) -> Result<Manifest> {
        let bytes =
            fs::read(self.blob_path(digest)).with_context(|| format!("could not read the manifest {digest}"))?;
        serde_json::from_slice(&bytes).with_context(|| format!("could not read the manifest {digest}"))
    }

    /// The size of an image in bytes, before unpacking.
    pub fn size(&self, digest: &Digest) -> Result<u64> {
        let manifest = self.manifest(digest)?;
        Ok(manifest.config.size + manifest.layers.iter().map(|layer| layer.size).sum::<u64>())
    }

    /// The path of a blob, whether it exists or not.
    pub fn blob_path(&self, digest: &Digest) -> PathBuf {
        self.root.join("blobs/sha256").join(digest.hex())
    }

    /// Locks a file of the store until the result is dropped. The kernel releases the lock when the process ends.
    pub(crate) fn lock(&self, name: &str) -> Result<File> {
        let path = self.root.join(name);
        let file = File::create(&path).and_then(|file| file.lock().map(|()| file));
        file.with_context(|| format!("could not lock {}", path.display()))
    }

    fn index(&self) -> Result<Index> {
        let path = self.root.join("index.json");
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .with_context(|| format!("{} is damaged: delete {}", path.display(), self.root.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Index::new(Vec::new())),
            Err(error) => Err(error).with_context(|| format!("could not read {}", path.display())),
        }
    }

    fn write_blob(&self, blob: &[u8]) -> Result<()> {
        let path = self.blob_path(&Digest::of(blob));
        // A blob with another length is incomplete, for example because of a full disk.
        if fs::metadata(&path).is_ok_and(|metadata| metadata.len() == blob.len() as u64) {
            return Ok(());
        }
        write_atomically(&path, blob)
    }

    /// Deletes old blobs that no name leads to. The caller must hold the lock.
    fn prune(&self, index: &Index) -> Result<()> {
        let mut live = BTreeSet::new();
        for descriptor in &index.manifests {
            let manifest = self.manifest(&descriptor.digest)?;
            live.insert(descriptor.digest.clone());
            live.insert(manifest.config.digest);
            live.extend(manifest.layers.into_iter().map(|layer| layer.digest));
        }
        let old = SystemTime::now() - KEEP_UNREFERENCED;
        for entry in fs::read_dir(self.root.join("blobs/sha256"))? {
            let entry = entry?;
            let digest = Digest::parse(&format!("sha256:{}", entry.file_name().display()));
            if !digest.is_ok_and(|digest| live.contains(&digest)) && entry.metadata()?.modified()? < old {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

/// The default folder of the store: `$OPERATORS_CACHE/images`, otherwise `operators/images` in the user's cache folder.
pub fn default_store() -> Result<PathBuf> {
    Ok(cache_folder()?.join("images"))
}

/// The folder for files outside of the checkout: images and unpacked packages.
pub(crate) fn cache_folder() -> Result<PathBuf> {
    let folder = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    folder("OPERATORS_CACHE")
        .or_else(|| Some(folder("XDG_CACHE_HOME")?.join("operators")))
        .or_else(|| Some(folder("HOME")?.join(".cache/operators")))
        .context("there is no folder for images: set OPERATORS_CACHE or HOME")
}

pub(crate) const LAYOUT: &str = r#"{"imageLayoutVersion":"1.0.0"}"#;

impl Index {
    pub(crate) fn new(manifests: Vec<Descriptor>) -> Self {
        Self { schema_version: 2, media_type: "application/vnd.oci.image.index.v1+json".to_owned(), manifests }
    }
}

fn reference(descriptor: &Descriptor) -> Option<Reference> {
    Reference::parse(descriptor.annotations.get(REF_NAME)?).ok()
}

pub(crate) fn named(mut descriptor: Descriptor, name: &Reference) -> Descriptor {
    descriptor
        .annotations
        .extend(BTreeMap::from([(REF_NAME.to_owned(), name.to_string()), (IMAGE_NAME.to_owned(), name.to_string())]));
    descriptor
}

/// Writes a file atomically: readers find either no file, the old one, or the complete new one.
pub(crate) fn write_atomically(path: &Path, content: &[u8]) -> Result<()> {
    let write = || -> io::Result<()> {
        let mut file = NamedTempFile::new_in(path.parent().unwrap_or(Path::new(".")))?;
        file.write_all(content)?;
        // A temporary file is private, but a node with another user may read the store.
        #[cfg(unix)]
        file.as_file().set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
        file.persist(path)?;
        Ok(())
    };
    write().with_context(|| format!("could not write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ImageSpec, Layer};

    fn image(names: &[&str], content: &str) -> Image {
        let mut files = Layer::new();
        files.file("/content", content, 0o644);
        let references = names.iter().map(|name| Reference::parse(name).unwrap()).collect();
        ImageSpec { references, files, ..ImageSpec::default() }.build().unwrap()
    }

    #[test]
    fn tags_share_a_manifest_and_can_move() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        store.put(&image(&["app:1", "app:latest"], "one")).unwrap();
        store.put(&image(&["app:2", "app:latest"], "two")).unwrap();

        let digests: BTreeMap<_, _> =
            store.list().unwrap().into_iter().map(|stored| (stored.reference.tag, stored.digest)).collect();
        assert_eq!(digests.len(), 3);
        assert_eq!(digests["latest"], digests["2"]);
        assert_ne!(digests["latest"], digests["1"]);
        assert!(store.find(&Reference::parse("app:3").unwrap()).unwrap().is_none());
    }

    #[test]
    fn concurrent_writers_lose_nothing() {
        let folder = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for writer in 0..8 {
                let root = folder.path();
                scope.spawn(move || {
                    for round in 0..5 {
                        let name = format!("app{writer}:{round}");
                        // Opens the store each time, as another process would.
                        Store::open(root).unwrap().put(&image(&[&name, "app:shared"], &name)).unwrap();
                    }
                });
            }
        });
        let store = Store::open(folder.path()).unwrap();
        let list = store.list().unwrap();
        assert_eq!(list.len(), 8 * 5 + 1);
        for stored in list {
            store.size(&stored.digest).unwrap();
        }
    }

    #[test]
    fn old_unreferenced_blob_is_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let (one, two) = (image(&["app:1"], "one"), image(&["app:1"], "two"));
        store.put(&one).unwrap();
        store.put(&two).unwrap();
        let path = store.blob_path(&Digest::of(&one.layer));
        assert!(path.exists(), "a node may still pull it");

        let long_ago = SystemTime::now() - 2 * KEEP_UNREFERENCED;
        File::options().write(true).open(&path).unwrap().set_modified(long_ago).unwrap();
        store.put(&two).unwrap();
        assert!(!path.exists());
        assert!(store.blob_path(&Digest::of(&two.layer)).exists());
    }

    #[test]
    fn truncated_blob_is_rewritten() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let image = image(&["app:1"], "one");
        store.put(&image).unwrap();
        fs::write(store.blob_path(&Digest::of(&image.layer)), "x").unwrap();
        store.put(&image).unwrap();
        assert_eq!(fs::read(store.blob_path(&Digest::of(&image.layer))).unwrap(), image.layer);
    }
}
