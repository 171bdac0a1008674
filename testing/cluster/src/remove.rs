//! Stops a cluster and removes whatever is left of it.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::cgroups;
use crate::kind;
use crate::layout::Layout;
use crate::progress;
use crate::spec::{Nodes, Spec};
use crate::supervisor::MEMBER_OF;
use crate::tools::Lock;

/// Ends all processes of the cluster and removes all its files. Returns `false` if there were none.
///
/// This also works after a crash, because it finds processes by their environment and needs no record of them.
pub fn down(name: &str) -> Result<bool> {
    let layout = Layout::of(name)?;
    if kind::exists(&layout) {
        kind::down(name)?;
        return Ok(true);
    }
    let what = format!("starting or removing the cluster {name}");
    let lock = Lock::acquire(&layout.lock(), &what, Duration::from_mins(5), &progress::quiet)?;
    let existed = layout.folder().is_dir();
    clean(&layout)?;
    lock.remove();
    Ok(existed)
}

/// Like [`down`], for callers that hold the cluster's lock.
pub(crate) fn clean(layout: &Layout) -> Result<()> {
    end(layout)?;
    if !layout.folder().is_dir() {
        return Ok(());
    }
    fs::remove_dir_all(layout.folder()).with_context(|| format!("could not remove {}", layout.folder().display()))
}

/// Ends all processes of the cluster, and keeps the files.
pub(crate) fn end(layout: &Layout) -> Result<()> {
    let Some(spec) = Spec::read(layout).ok().filter(|spec| spec.nodes == Nodes::Real) else {
        return end_processes(layout.folder());
    };
    for node in spec.real_nodes() {
        cgroups::thaw(&spec.cgroup_of(node))?; // a frozen process does not end
    }
    end_processes(layout.folder())?;
    cgroups::remove(&spec.cgroup())
}

/// Kills all processes whose environment names the folder. Process 1 of a real node is one of them, and all other processes of
/// the node end with it.
pub(crate) fn end_processes(folder: &Path) -> Result<()> {
    for _ in 0..200 {
        let left = members(folder);
        if left.is_empty() {
            return Ok(());
        }
        for pid in left {
            let _ = kill_process(pid, Signal::KILL); // it may have ended meanwhile
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bail!("these processes of {} do not end: {:?}", folder.display(), members(folder))
}

/// The processes of the cluster in this folder.
pub(crate) fn members(folder: &Path) -> Vec<Pid> {
    let wanted = [MEMBER_OF.as_bytes(), b"=", folder.as_os_str().as_bytes()].concat();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let ours = numbers.filter(|number| {
        let environment = fs::read(format!("/proc/{number}/environ")).unwrap_or_default(); // ended, or another user's
        environment.split(|byte| *byte == 0).any(|variable| variable == wanted)
    });
    ours.filter_map(Pid::from_raw).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_processes_of_the_folder_are_ended() {
        let (ours, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let start =
            |folder: &Path| std::process::Command::new("sleep").arg("60").env(MEMBER_OF, folder).spawn().unwrap();
        let (mut first, mut second) = (start(ours.path()), start(other.path()));
        while members(ours.path()).is_empty() {
            std::thread::yield_now(); // between fork and exec, the child still has this process's environment
        }
        end_processes(ours.path()).unwrap();
        assert!(!first.wait().unwrap().success());
        assert!(second.try_wait().unwrap().is_none());
        second.kill().unwrap();
        second.wait().unwrap();
    }
}
