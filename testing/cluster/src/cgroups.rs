//! The cgroups of a real node. The node has one cgroup below the root of each hierarchy.
//!
//! Version 1 (one hierarchy for each controller) has been tested. The code for version 2 (one hierarchy for all) follows the
//! documentation of the kernel and the kubelet.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

const ROOT: &str = "/sys/fs/cgroup";
/// The controllers that the kubelet requires with version 2.
const CONTROLLERS: [&str; 5] = ["cpu", "cpuset", "memory", "pids", "io"];

/// Creates the cgroup `name` in every hierarchy.
pub(crate) fn create(name: &str) -> Result<()> {
    if is_v2() {
        for controller in CONTROLLERS {
            let file = Path::new(ROOT).join("cgroup.subtree_control");
            fs::write(&file, format!("+{controller}")).with_context(|| {
                format!("could not enable the cgroup controller {controller}: in a container, give it its own cgroup")
            })?;
        }
    }
    for root in hierarchies() {
        let folder = root.join(name);
        fs::create_dir_all(folder.join("system")).with_context(|| format!("could not create {}", folder.display()))?;
        for (folder, parent) in [(folder.clone(), root), (folder.join("system"), folder)] {
            copy_cpuset(&folder, &parent)?;
        }
    }
    Ok(())
}

/// Moves the calling process into the subgroup for daemons, in every hierarchy: the kubelet requires the same cgroup in all.
pub(crate) fn enter(name: &str) -> Result<()> {
    for root in hierarchies() {
        let file = root.join(name).join("system/cgroup.procs");
        fs::write(&file, "0").with_context(|| format!("could not enter {}", file.display()))?;
    }
    Ok(())
}

/// Moves the calling process out again, so that [`remove`] can succeed.
pub(crate) fn leave() {
    for root in hierarchies() {
        let _ = fs::write(root.join("cgroup.procs"), "0"); // an error is harmless; `remove` then reports what is left
    }
}

/// Removes the cgroup and everything below. Waits up to 5 s for its processes to end.
pub(crate) fn remove(name: &str) -> Result<()> {
    for _ in 0..100 {
        let left: Vec<_> = existing(name).into_iter().filter(|folder| !remove_tree(folder)).collect();
        if left.is_empty() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50)); // the kernel still cleans up ended processes
    }
    bail!("processes that do not belong to the cluster are in its cgroups {name}: see {:?}", existing(name))
}

/// The folders of this cgroup that exist.
pub(crate) fn existing(name: &str) -> Vec<PathBuf> {
    hierarchies().into_iter().map(|root| root.join(name)).filter(|folder| folder.is_dir()).collect()
}

fn hierarchies() -> Vec<PathBuf> {
    if is_v2() {
        return vec![ROOT.into()];
    }
    let entries = fs::read_dir(ROOT).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())); // without symbolic links
    folders.map(|entry| entry.path()).filter(|path| path.join("cgroup.procs").is_file()).collect()
}

fn is_v2() -> bool {
    Path::new(ROOT).join("cgroup.controllers").is_file()
}

/// Copies the CPUs and memory nodes of the parent. With version 1, a new cpuset is empty, and the kernel refuses to move a
/// process into it ("No space left on device").
fn copy_cpuset(folder: &Path, parent: &Path) -> Result<()> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        if !is_v2() && folder.join(file).is_file() {
            fs::write(folder.join(file), fs::read(parent.join(file))?)
                .with_context(|| format!("could not set {} of {}", file, folder.display()))?;
        }
    }
    Ok(())
}

fn remove_tree(folder: &Path) -> bool {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path());
        }
    }
    fs::remove_dir(folder).is_ok()
}
