//! `cargo xtask generate`: writes all files and tables that come from the Rust types. They are committed, so that a review shows
//! how a change affects users.

mod difference;
mod events;
mod fields;
mod lines;
mod readme;
mod reference;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use chart::files::{FOLDER, Files};

use crate::workspace;

/// Generate files from the Rust types: the chart's files, values and annotations, tables in READMEs, the reference of the book
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write nothing, and fail if a file is stale
    #[arg(long)]
    pub(crate) check: bool,
}

/// The generators. Each returns the contents of its files and writes none; it may read files that it fills in.
const GENERATORS: &[fn() -> Result<Files>] = &[chart::files::generated, readme::files, reference::files];

/// Folders that contain only generated files. A file in them that no generator returns is removed.
const FOLDERS: &[&str] = &[FOLDER, reference::FOLDER];

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut wanted = Files::new();
    for generator in GENERATORS {
        wanted.append(&mut generator()?);
    }
    let changes = changes(workspace::root(), &wanted)?;
    for Change { path, old, new } in &changes {
        if args.check {
            print!("{}", difference::between(path, old.as_deref(), new.as_deref()));
        } else {
            write(&workspace::root().join(path), new.as_deref())?;
            println!("{} {}", if new.is_some() { "wrote" } else { "removed" }, path.display());
        }
    }
    if args.check && !changes.is_empty() {
        println!("\n{} generated files are stale: run `make generate` and commit the result", changes.len());
        return Ok(ExitCode::FAILURE);
    }
    println!("{} generated files are up to date", wanted.len());
    Ok(ExitCode::SUCCESS)
}

/// Whether a generator writes the whole file at this path, so that `--check` compares each line of it.
pub(crate) fn writes(path: &str) -> bool {
    FOLDERS.iter().any(|folder| Path::new(path).starts_with(folder))
}

/// A file that differs from its generated content.
#[derive(Debug, PartialEq, Eq)]
struct Change {
    path: PathBuf,
    old: Option<String>,
    new: Option<String>,
}

/// The changes that bring the files below `root` up to date.
fn changes(root: &Path, wanted: &Files) -> Result<Vec<Change>> {
    let mut changes = Vec::new();
    for (path, new) in wanted {
        let old = fs::read_to_string(root.join(path)).ok();
        if old.as_ref() != Some(new) {
            changes.push(Change { path: path.clone(), old, new: Some(new.clone()) });
        }
    }
    for folder in FOLDERS {
        for path in below(root, Path::new(folder)) {
            if !wanted.contains_key(&path) {
                let old = fs::read_to_string(root.join(&path))
                    .with_context(|| format!("could not read {}", path.display()))?;
                changes.push(Change { path, old: Some(old), new: None });
            }
        }
    }
    Ok(changes)
}

fn below(root: &Path, folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root.join(folder)).into_iter().flatten().flatten();
    let paths = entries.map(|entry| (folder.join(entry.file_name()), entry.path().is_dir()));
    let mut files: Vec<_> =
        paths.flat_map(|(path, is_dir)| if is_dir { below(root, &path) } else { vec![path] }).collect();
    files.sort();
    files
}

fn write(file: &Path, text: Option<&str>) -> Result<()> {
    let Some(text) = text else {
        return fs::remove_file(file).with_context(|| format!("could not remove {}", file.display()));
    };
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder).with_context(|| format!("could not create {}", folder.display()))?;
    }
    fs::write(file, text).with_context(|| format!("could not write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_missing_and_left_over_files_are_found() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| Path::new(FOLDER).join("foo").join(name);
        for (name, text) in [("same", "1"), ("stale", "1"), ("left-over", "1")] {
            write(&root.path().join(path(name)), Some(text)).unwrap();
        }
        let wanted: Files = ["same", "missing"].map(|name| (path(name), "1".to_owned())).into();
        let wanted = wanted.into_iter().chain([(path("stale"), "2".to_owned())]).collect();

        let one = |name, old: Option<&str>, new: Option<&str>| Change {
            path: path(name),
            old: old.map(str::to_owned),
            new: new.map(str::to_owned),
        };
        let expected =
            [one("missing", None, Some("1")), one("stale", Some("1"), Some("2")), one("left-over", Some("1"), None)];
        assert_eq!(changes(root.path(), &wanted).unwrap(), expected);

        for Change { path, new, .. } in expected {
            write(&root.path().join(path), new.as_deref()).unwrap();
        }
        assert_eq!(changes(root.path(), &wanted).unwrap(), []);
    }
}
