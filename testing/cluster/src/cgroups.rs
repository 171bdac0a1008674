//! The cgroups of real nodes. A cluster has one cgroup below the root of each hierarchy.
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

/// Creates the cgroup `name` in every hierarchy. Its parent must exist.
pub(crate) fn create(name: &str) -> Result<()> {
    for root in hierarchies() {
        let folder = root.join(name);
        let parent = folder.parent().unwrap_or(&root);
        if is_v2() {
            enable_controllers(parent)?;
        }
        let system = folder.join("system");
        fs::create_dir_all(&system).with_context(|| format!("could not create {}", system.display()))?;
        copy_cpuset(&folder, parent)?;
        copy_cpuset(&system, &folder)?;
    }
    Ok(())
}

fn enable_controllers(folder: &Path) -> Result<()> {
    for controller in CONTROLLERS {
        fs::write(folder.join("cgroup.subtree_control"), format!("+{controller}")).with_context(|| {
            format!("could not enable the cgroup controller {controller}: in a container, give it its own cgroup")
        })?;
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

/// Freezes all processes in the cgroup and below. They keep their connections but do not run.
pub(crate) fn freeze(name: &str) -> Result<()> {
    set_frozen(name, true)
}

/// Lets the processes in the cgroup run again. Does nothing if they run already, or if there is no such cgroup.
///
/// With version 1, a frozen process does not even end when it is killed.
pub(crate) fn thaw(name: &str) -> Result<()> {
    set_frozen(name, false)
}

fn set_frozen(name: &str, frozen: bool) -> Result<()> {
    let (file, value, report, wanted) = match (is_v2(), frozen) {
        (true, true) => ("cgroup.freeze", "1", "cgroup.events", "frozen 1"),
        (true, false) => ("cgroup.freeze", "0", "cgroup.events", "frozen 0"),
        (false, true) => ("freezer.state", "FROZEN", "freezer.state", "FROZEN"),
        (false, false) => ("freezer.state", "THAWED", "freezer.state", "THAWED"),
    };
    let Some(folder) = existing(name).into_iter().find(|folder| folder.join(file).is_file()) else { return Ok(()) };
    for _ in 0..200 {
        let file = folder.join(file);
        fs::write(&file, value).with_context(|| format!("could not write {}", file.display()))?; // again: the kernel tries again
        if fs::read_to_string(folder.join(report)).is_ok_and(|report| report.lines().any(|line| line == wanted)) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    bail!("{} does not become {wanted}", folder.display())
}

/// The folders of this cgroup that exist.
pub(crate) fn existing(name: &str) -> Vec<PathBuf> {
    hierarchies().into_iter().map(|root| root.join(name)).filter(|folder| folder.is_dir()).collect()
}

/// The root of each hierarchy.
pub(crate) fn hierarchies() -> Vec<PathBuf> {
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
