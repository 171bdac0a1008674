//! The kernel's watches for files, of which each node needs many.

use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::missing::Missing;

/// The number of inotify instances, the kernel's watches for files, that one node has: 17 to 20 were counted.
const WATCHES: usize = 20;

/// Checks that the kernel has enough watches for this many nodes. Otherwise some program of a node fails much later, and does not
/// say why.
pub(super) fn check(nodes: usize) -> Result<()> {
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_user_instances").unwrap_or_default();
    let Ok(limit) = limit.trim().parse::<usize>() else { return Ok(()) };
    match too_few(limit, used(), nodes) {
        Some(why) => Err(Missing(why).into()),
        None => Ok(()),
    }
}

fn too_few(limit: usize, used: usize, nodes: usize) -> Option<String> {
    let needed = nodes * WATCHES;
    (used + needed > limit).then(|| {
        format!(
            "{nodes} nodes of kind need about {needed} inotify instances, but other programs use {used} of {limit}: stop other \
             clusters (`cargo xtask cluster list`), or raise fs.inotify.max_user_instances"
        )
    })
}

/// The number of inotify instances that processes of this machine have open.
fn used() -> usize {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let files = processes.flat_map(|process| fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten());
    files.filter(|file| is_watch(&file.path())).count()
}

/// Whether this open file of a process is an inotify instance.
fn is_watch(file: &Path) -> bool {
    fs::read_link(file).is_ok_and(|target| target == Path::new("anon_inode:inotify"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exhausted_watches_are_reported_before_the_nodes_start() {
        assert_eq!(too_few(128, 128 - 3 * WATCHES, 3), None);
        let why = too_few(128, 100, 3).unwrap();
        assert!(why.contains("use 100 of 128") && why.contains("cargo xtask cluster list"), "{why}");
    }

    #[test]
    fn open_watch_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("one");
        std::os::unix::fs::symlink("anon_inode:inotify", &link).unwrap();
        assert!(is_watch(&link));
        assert!(!is_watch(Path::new("/proc/self/fd/0")));
    }
}
