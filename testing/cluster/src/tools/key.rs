//! Keys that identify a build of a tool by its inputs.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use super::catalogue::Recipe;

/// A hash of all inputs of a build except the Go release: the pins, the sources in `folder` and the flags.
pub(crate) fn source_key(folder: &Path, recipe: &Recipe) -> Result<String> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .with_context(|| format!("could not read {}", folder.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|file| {
            let name = file.file_name().unwrap_or_default();
            name == "go.mod" || name == "go.sum" || file.extension().is_some_and(|extension| extension == "go")
        })
        .collect();
    files.sort();

    let mut hash = Sha256::new();
    hash.update(format!("{recipe:?} {} {}", std::env::consts::ARCH, super::catalogue::FLAGS.join(" ")));
    for file in files {
        let content = fs::read(&file).with_context(|| format!("could not read {}", file.display()))?;
        hash.update(file.file_name().unwrap_or_default().as_encoded_bytes());
        hash.update((content.len() as u64).to_le_bytes());
        hash.update(content);
    }
    Ok(hex(&hash.finalize()[..6]))
}

/// The version of `module` that this `go.mod` requires.
pub(crate) fn version_of<'a>(go_mod: &'a str, module: &str) -> Option<&'a str> {
    go_mod.lines().find_map(|line| {
        let mut words = line.trim().trim_start_matches("require ").split_whitespace();
        (words.next() == Some(module)).then(|| words.next()).flatten().filter(|version| version.starts_with('v'))
    })
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::Tool;

    #[test]
    fn a_version_is_read_from_both_forms_of_require() {
        let go_mod = "module tools/x\n\nrequire a.io/b v1.2.3\n\nrequire (\n\tc.io/d v0.4.0 // indirect\n)\nreplace e.io/f => e.io/f v9.9.9\n";
        assert_eq!(version_of(go_mod, "a.io/b"), Some("v1.2.3"));
        assert_eq!(version_of(go_mod, "c.io/d"), Some("v0.4.0"));
        assert_eq!(version_of(go_mod, "c.io"), None);
        assert_eq!(version_of(go_mod, "e.io/f"), None);
    }

    #[test]
    fn key_depends_only_on_pins_sources_and_flags() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        let key = |tool: Tool| source_key(folder.path(), tool.recipe().unwrap()).unwrap();

        write("go.mod", "module x");
        let first = key(Tool::Etcd);
        write("README.md", "words");
        assert_eq!(key(Tool::Etcd), first);
        assert_ne!(key(Tool::Kwok), first, "other flags");
        write("main.go", "package main");
        let second = key(Tool::Etcd);
        assert_ne!(second, first);
        write("go.sum", "a.io/b v1.2.3 h1:");
        assert_ne!(key(Tool::Etcd), second);
    }
}
