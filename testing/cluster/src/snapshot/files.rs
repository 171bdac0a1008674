//! Copies, replaces and removes whole folders.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Copies a folder with its contents and their modes. etcd refuses data that other users can read.
pub(super) fn copy(from: &Path, to: &Path) -> Result<()> {
    let metadata = fs::metadata(from).with_context(|| format!("could not read {}", from.display()))?;
    fs::create_dir_all(to).with_context(|| format!("could not create {}", to.display()))?;
    fs::set_permissions(to, metadata.permissions())?;
    for entry in fs::read_dir(from).with_context(|| format!("could not read {}", from.display()))? {
        let entry = entry?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy(&path, &target)?;
        } else if path.extension().is_some_and(|extension| extension == "tmp") {
            // Skipped: etcd prepares its next log file this way, with 64 MB of zeros.
        } else if kind.is_file() {
            fs::copy(&path, &target).with_context(|| format!("could not copy {}", path.display()))?;
        } else {
            bail!("{} is neither a file nor a folder", path.display());
        }
    }
    Ok(())
}

/// Removes the folder if it exists.
pub(super) fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("could not remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// Moves `new` to the path `old`, and removes the folder that was there before.
pub(super) fn replace(old: &Path, new: &Path) -> Result<()> {
    let aside = old.with_extension("replaced");
    remove(&aside)?;
    fs::rename(old, &aside).with_context(|| format!("could not rename {}", old.display()))?;
    fs::rename(new, old).with_context(|| format!("could not rename {}", new.display()))?;
    remove(&aside)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn copy_keeps_files_and_modes_but_skips_tmp_files() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("kept/to"));
        fs::create_dir_all(from.join("member/wal")).unwrap();
        fs::set_permissions(from.join("member"), fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(from.join("member/wal/0.wal"), "log").unwrap();
        fs::write(from.join("member/wal/0.tmp"), "zeros").unwrap();

        copy(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(to.join("member/wal/0.wal")).unwrap(), "log");
        assert!(!to.join("member/wal/0.tmp").exists());
        assert_eq!(fs::metadata(to.join("member")).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_folder_is_replaced_whole() {
        let folder = tempfile::tempdir().unwrap();
        let (old, new) = (folder.path().join("etcd"), folder.path().join("etcd.restored"));
        for (at, file) in [(&old, "a"), (&new, "b")] {
            fs::create_dir(at).unwrap();
            fs::write(at.join(file), "").unwrap();
        }
        replace(&old, &new).unwrap();
        assert!(old.join("b").exists() && !old.join("a").exists());
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["etcd"]);
    }

    #[test]
    fn a_failed_copy_names_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let error = copy(&folder.path().join("nowhere"), &folder.path().join("to")).unwrap_err();
        assert!(format!("{error:#}").contains("nowhere"), "{error:#}");
        remove(&folder.path().join("nowhere")).unwrap();
    }
}
