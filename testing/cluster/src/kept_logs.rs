//! The logs of clusters whose tests failed. They outlive the cluster, so that a workflow can upload them.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::layout;

/// The name of the folder with these logs. It is beside the folder of all clusters.
pub const FAILED_CLUSTERS: &str = "failed-clusters";

/// Where the logs stay that are kept under this name.
pub(crate) fn folder(name: &str) -> PathBuf {
    layout::root().with_file_name(FAILED_CLUSTERS).join(name)
}

/// Copies the logs that are in this folder or below it. Its other files may have credentials. Every user may read the copies: the
/// tests run as root, and what uploads the logs does not.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("could not create {}", to.display()))?;
    for entry in fs::read_dir(from).into_iter().flatten().flatten() {
        let (path, target, kind) = (entry.path(), to.join(entry.file_name()), entry.file_type()?);
        if kind.is_dir() {
            copy(&path, &target)?;
        } else if kind.is_file() && path.extension().is_some_and(|extension| extension == "log") {
            let copied = File::open(&path).and_then(|mut log| io::copy(&mut log, &mut File::create(&target)?));
            copied.with_context(|| format!("could not copy {}", path.display()))?;
        }
    }
    Ok(())
}

/// Lets every user read the files that another program has put into this folder or below it.
pub(crate) fn let_all_read(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, kind) = (entry.path(), entry.file_type()?);
        if kind.is_dir() {
            let_all_read(&path)?;
        } else if kind.is_file() {
            let mode = entry.metadata()?.permissions().mode();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode | 0o444))
                .with_context(|| format!("could not change the permissions of {}", path.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_user_may_read_what_another_program_has_kept() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("pods/one/0.log");
        fs::create_dir_all(log.parent().unwrap()).unwrap();
        fs::write(&log, "text").unwrap();
        fs::set_permissions(&log, fs::Permissions::from_mode(0o640)).unwrap(); // as containerd makes them
        let_all_read(folder.path()).unwrap();
        assert_eq!(fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o644);
    }

    #[test]
    fn logs_are_kept_for_every_user_and_without_credentials() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("cluster"), folder.path().join("kept"));
        fs::create_dir_all(from.join("pods/one")).unwrap();
        for file in ["etcd.log", "pods/one/0.log", "kubeconfig"] {
            fs::write(from.join(file), file).unwrap();
            fs::set_permissions(from.join(file), fs::Permissions::from_mode(0o600)).unwrap();
        }
        copy(&from, &to).unwrap();
        for file in ["etcd.log", "pods/one/0.log"] {
            assert_eq!(fs::read_to_string(to.join(file)).unwrap(), file);
            let (kept, usual) = (to.join(file), folder.path().join("usual"));
            fs::write(&usual, "").unwrap();
            let mode = |file: &Path| fs::metadata(file).unwrap().permissions().mode();
            assert_eq!(mode(&kept), mode(&usual), "{file}");
        }
        assert!(!to.join("kubeconfig").exists());
        copy(&from.join("absent"), &to).unwrap(); // a cluster that ended before it wrote any
    }
}
