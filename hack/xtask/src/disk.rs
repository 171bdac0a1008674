//! Whether the disk has room for a build. A run on a full disk fails after a quarter of an hour or later, somewhere in a compiler or
//! in etcd. This check says so at the beginning, before hours of work, and makes the run a failure. It stops no other step: the figures
//! are estimates, and a step that needs little may still succeed.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::report::Outcome;
use crate::workspace;

/// What a run writes, in GB.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// In a new checkout.
    pub(crate) new: u64,
    /// When the target folder has the results of an earlier run.
    pub(crate) again: u64,
}

/// Compares the free space of the target folder's file system with what the run needs.
pub(crate) fn check(room: Room) -> Result<Outcome> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace::root().join("target"), PathBuf::from);
    let needed = if is_built(&target) { room.again } else { room.new };
    if let Some(refusal) = refusal(&target, free(&target)?, needed) {
        bail!("{refusal}");
    }
    Ok(Outcome::Passed)
}

/// Whether the tests were built here before, and not only this program.
fn is_built(target: &Path) -> bool {
    let names = std::fs::read_dir(target.join("debug/deps")).into_iter().flatten().flatten();
    names.map(|entry| entry.file_name()).any(|name| name.to_string_lossy().starts_with("e2e-"))
}

/// The free space in GB of the file system that has this folder, or will have it.
fn free(folder: &Path) -> Result<u64> {
    let existing = folder.ancestors().find(|it| it.exists()).unwrap_or(Path::new("/"));
    let system = rustix::fs::statvfs(existing).with_context(|| format!("could not measure {}", existing.display()))?;
    Ok(system.f_bavail.saturating_mul(system.f_frsize) / 1_000_000_000)
}

fn refusal(target: &Path, free: u64, needed: u64) -> Option<String> {
    (free < needed).then(|| {
        format!(
            "{} has {free} GB of free space, but the run needs {needed} GB: remove what you do not need, or set \
             CARGO_TARGET_DIR to a folder on a larger disk",
            target.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_disk_is_refused_with_both_figures() {
        assert_eq!(refusal(Path::new("/t"), 20, 20), None);
        let refused = refusal(Path::new("/t"), 19, 20).expect("19 GB are too few");
        assert!(refused.starts_with("/t has 19 GB of free space, but the run needs 20 GB: "), "{refused}");
    }

    #[test]
    fn folder_that_does_not_exist_yet_has_the_space_of_its_file_system() {
        let folder = tempfile::tempdir().expect("a folder");
        free(&folder.path().join("not/yet")).expect("a measurement");
    }

    #[test]
    fn only_a_folder_with_built_tests_needs_less() {
        let target = tempfile::tempdir().expect("a folder");
        assert!(!is_built(target.path()));
        let deps = target.path().join("debug/deps");
        std::fs::create_dir_all(&deps).expect("a folder");
        std::fs::write(deps.join("xtask-1"), "").expect("a file");
        assert!(!is_built(target.path()));
        std::fs::write(deps.join("e2e-1"), "").expect("a file");
        assert!(is_built(target.path()));
    }
}
