//! A layer: the files of an image, packed so that the same files always give the same bytes.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use anyhow::{Context as _, Result};
use tar::{EntryType, Header};

/// The files of an image, in memory. All files belong to root and have the time 0. Missing parent directories are added.
#[derive(Clone, Debug, Default)]
pub struct Layer {
    entries: BTreeMap<String, Entry>,
}

#[derive(Clone, Debug)]
enum Entry {
    Directory { mode: u32 },
    File { content: Vec<u8>, mode: u32 },
    Symlink { target: String },
}

impl Layer {
    /// A layer without files.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a directory. This is necessary only for other modes than 0o755, as for `/tmp`.
    pub fn directory(&mut self, path: &str, mode: u32) -> &mut Self {
        self.add(path, Entry::Directory { mode })
    }

    /// Adds a file.
    pub fn file(&mut self, path: &str, content: impl Into<Vec<u8>>, mode: u32) -> &mut Self {
        self.add(path, Entry::File { content: content.into(), mode })
    }

    /// Adds a copy of a file of this machine. Follows symbolic links.
    pub fn copy(&mut self, path: &str, source: &Path, mode: u32) -> Result<&mut Self> {
        let content = std::fs::read(source).with_context(|| format!("could not read {}", source.display()))?;
        Ok(self.file(path, content, mode))
    }

    /// Adds a symbolic link.
    pub fn symlink(&mut self, path: &str, target: &str) -> &mut Self {
        self.add(path, Entry::Symlink { target: target.to_owned() })
    }

    /// Packs the files: sorted by path, owned by 0:0, time 0.
    pub fn tar(&self) -> io::Result<Vec<u8>> {
        let mut archive = tar::Builder::new(Vec::new());
        for (path, entry) in &self.entries {
            let mut header = Header::new_gnu();
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(0);
            match entry {
                Entry::Directory { mode } => {
                    header.set_entry_type(EntryType::Directory);
                    header.set_mode(*mode);
                    header.set_size(0);
                    archive.append_data(&mut header, format!("{path}/"), io::empty())?;
                }
                Entry::File { content, mode } => {
                    header.set_entry_type(EntryType::Regular);
                    header.set_mode(*mode);
                    header.set_size(content.len() as u64);
                    archive.append_data(&mut header, path, content.as_slice())?;
                }
                Entry::Symlink { target } => {
                    header.set_entry_type(EntryType::Symlink);
                    header.set_mode(0o777);
                    header.set_size(0);
                    archive.append_link(&mut header, path, target)?;
                }
            }
        }
        archive.into_inner()
    }

    fn add(&mut self, path: &str, entry: Entry) -> &mut Self {
        let path = path.trim_matches('/');
        for (slash, _) in path.match_indices('/') {
            // A directory that exists already keeps its mode.
            self.entries.entry(path[..slash].to_owned()).or_insert(Entry::Directory { mode: 0o755 });
        }
        self.entries.insert(path.to_owned(), entry);
        self
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;
    use crate::Digest;

    #[test]
    fn the_order_of_calls_does_not_change_the_bytes() {
        let mut one = Layer::new();
        one.file("/usr/bin/a", "a", 0o755)
            .directory("/tmp", 0o1777)
            .symlink("/bin", "usr/bin")
            .file("/tmp/x", "x", 0o644);
        let mut other = Layer::new();
        other.symlink("bin", "usr/bin").file("tmp/x", "x", 0o644).directory("tmp/", 0o1777).file(
            "usr/bin/a",
            "a",
            0o755,
        );
        assert_eq!(one.tar().unwrap(), other.tar().unwrap());
        // A constant, so that the test notices if an update of the crate `tar` changes digests.
        assert_eq!(
            Digest::of(&one.tar().unwrap()).hex(),
            "e6bc49405d4ee5e8095bb3e694b7be17071a8baafb343f2c0ee5af663e11e91c"
        );
    }

    #[test]
    fn parents_precede_children_and_root_owns_all() {
        let mut layer = Layer::new();
        layer.file("/usr/bin/a", "hello", 0o755).symlink("/usr/bin/b", "a");
        let bytes = layer.tar().unwrap();
        let mut seen = Vec::new();
        for entry in tar::Archive::new(bytes.as_slice()).entries().unwrap() {
            let mut entry = entry.unwrap();
            let header = entry.header().clone();
            assert_eq!((header.uid().unwrap(), header.gid().unwrap(), header.mtime().unwrap()), (0, 0, 0));
            let mut content = String::new();
            entry.read_to_string(&mut content).unwrap();
            seen.push((entry.path().unwrap().display().to_string(), header.mode().unwrap(), content));
        }
        let expected =
            [("usr/", 0o755, ""), ("usr/bin/", 0o755, ""), ("usr/bin/a", 0o755, "hello"), ("usr/bin/b", 0o777, "")];
        assert_eq!(seen, expected.map(|(path, mode, content)| (path.to_owned(), mode, content.to_owned())));
    }

    #[test]
    fn long_paths_are_preserved() {
        let path = format!("{}file", "directory/".repeat(20));
        let bytes = Layer::new().file(&path, "x", 0o644).tar().unwrap();
        let names = tar::Archive::new(bytes.as_slice())
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap().path().unwrap().display().to_string())
            .collect::<Vec<_>>();
        assert_eq!(names.last().unwrap(), &path);
    }
}
