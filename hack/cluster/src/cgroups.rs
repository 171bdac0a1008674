//! The cgroups of a real node: one of its own below the root of each hierarchy.
//!
//! Version 1 (a hierarchy for each controller) is what this was tried on. Version 2 (one for all) follows the kernel's
//! and the kubelet's documentation.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

const ROOT: &str = "/sys/fs/cgroup";
/// What the kubelet asks of version 2.
const CONTROLLERS: [&str; 5] = ["cpu", "cpuset", "memory", "pids", "io"];

/// Creates the cgroup `name` in every hierarchy.
pub(crate) fn create(name: &str) -> Result<()> {
    if is_v2() {
        for controller in CONTROLLERS {
            let file = Path::new(ROOT).join("cgroup.subtree_control");
            fs::write(&file, format!("+{controller}")).with_context(|| {
                format!("could not turn on the cgroup controller {controller}: in a container, give it its own cgroup")
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

/// Moves the calling process into the part for daemons, in every hierarchy: the kubelet wants them to agree.
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
        let _ = fs::write(root.join("cgroup.procs"), "0"); // it may have no process of ours
    }
}

/// Removes the cgroup and everything below, once its processes have gone.
pub(crate) fn remove(name: &str) -> Result<()> {
    for _ in 0..100 {
        let left: Vec<_> = existing(name).into_iter().filter(|folder| !remove_tree(folder)).collect();
        if left.is_empty() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(50)); // the kernel is still taking processes apart
    }
    bail!("the cgroups {name} have processes that are not ours: see {:?}", existing(name))
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
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())); // not the links to them
    folders.map(|entry| entry.path()).filter(|path| path.join("cgroup.procs").is_file()).collect()
}

fn is_v2() -> bool {
    Path::new(ROOT).join("cgroup.controllers").is_file()
}

/// A new cpuset of version 1 is empty, and then takes no process ("No space left on device").
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
