//! Programs and libraries from the machine's packages. They are used if they are installed; otherwise the packages are downloaded
//! and unpacked into the cache, without installing them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::cache;
use crate::missing::{Missing, last_line, program, require};

/// The packages with `nft` and with the libraries that a minimal system may lack.
const NFT: [&str; 11] = [
    "nftables",
    "libnftables1",
    "libnftnl11",
    "libmnl0",
    "libjansson4",
    "libedit2",
    "libgmp10",
    "libxtables12",
    "libbsd0",
    "libmd0",
    "libtinfo6",
];

/// The folder with `nft`: the machine's own, or the one that was unpacked earlier.
pub(super) fn nft_folder() -> Option<PathBuf> {
    let unpacked = cache().join("nft/bin");
    let folder = program("nft").and_then(|file| Some(file.parent()?.to_path_buf()));
    folder.or_else(|| unpacked.join("nft").is_file().then_some(unpacked))
}

/// Unpacks `nft` if it is missing. The caller must hold its lock.
pub(super) fn unpack_nft() -> Result<PathBuf> {
    if let Some(folder) = nft_folder() {
        return Ok(folder);
    }
    let root = unpack("nft", &NFT, "kube-proxy needs `nft`: install the package nftables")?;
    let program = find(&root, "nft").context("the package nftables has no program `nft`")?;
    let libraries = find(&root, "libnftables.so.1").and_then(|file| Some(file.parent()?.to_path_buf()));
    let script = root.join("bin/nft");
    fs::create_dir_all(root.join("bin"))?;
    let text = format!(
        "#!/bin/sh\nLD_LIBRARY_PATH={} exec {} \"$@\"\n",
        libraries.context("the package libnftables1 has no library")?.display(),
        program.display()
    );
    fs::write(&script, text)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    Ok(root.join("bin"))
}

/// The environment variables with which the build of runc finds the headers and the static library of libseccomp. Empty if they
/// are installed.
pub(super) fn libseccomp() -> Result<Vec<(&'static str, String)>> {
    let pkg_config = require("pkg-config", "pkg-config (runc is linked with libseccomp)")?;
    let installed = Command::new(pkg_config).args(["--variable=libdir", "libseccomp"]).output()?;
    let libraries = String::from_utf8_lossy(&installed.stdout).trim().to_owned();
    if installed.status.success() && Path::new(&libraries).join("libseccomp.a").is_file() {
        return Ok(Vec::new());
    }
    let mut root = cache().join("libseccomp");
    if find(&root, "libseccomp.a").is_none() {
        let advice = "runc needs the headers and the static library of libseccomp: install libseccomp-dev";
        root = unpack("libseccomp", &["libseccomp-dev"], advice)?;
    }
    let archive = find(&root, "libseccomp.a").context("the package libseccomp-dev has no static library")?;
    let folder = archive.parent().unwrap_or(&root).display().to_string();
    Ok(vec![
        ("PKG_CONFIG_PATH", format!("{folder}/pkgconfig")),
        ("PKG_CONFIG_SYSROOT_DIR", root.display().to_string()),
        ("CGO_LDFLAGS", format!("-L{folder}")),
    ])
}

/// Downloads packages and unpacks them into a folder of the cache. If this is not possible, the error contains `advice`.
fn unpack(name: &str, packages: &[&str], advice: &str) -> Result<PathBuf> {
    let (Some(apt), Some(dpkg)) = (program("apt-get"), program("dpkg")) else {
        return Err(Missing(advice.to_owned()).into());
    };
    let folder = cache().join(name);
    let partial = cache().join(format!("{name}.partial.{}", std::process::id()));
    let _ = fs::remove_dir_all(&partial);
    fs::create_dir_all(&partial).with_context(|| format!("could not create {}", partial.display()))?;

    let download = || {
        let mut command = Command::new(&apt);
        command.args(["-o", "APT::Sandbox::User=root", "download"]).args(packages);
        command.current_dir(&partial).stdin(Stdio::null()).output()
    };
    let mut result = download()?;
    if !result.status.success() {
        // A fresh machine has no package lists yet. The update fails without root; the second download then reports the error.
        Command::new(&apt).arg("update").stdin(Stdio::null()).output()?;
        result = download()?;
    }
    if !result.status.success() {
        let _ = fs::remove_dir_all(&partial);
        return Err(Missing(format!("{advice} (apt-get download: {})", last_line(&result.stderr))).into());
    }
    for entry in fs::read_dir(&partial)? {
        let package = entry?.path();
        let unpacked = Command::new(&dpkg).arg("-x").arg(&package).arg(&partial).output()?;
        if !unpacked.status.success() {
            bail!("could not unpack {}: {}", package.display(), last_line(&unpacked.stderr));
        }
        fs::remove_file(package)?;
    }
    if fs::rename(&partial, &folder).is_err() {
        fs::remove_dir_all(&partial)?; // another call has created the same folder
    }
    Ok(folder)
}

/// The file with this name anywhere below the folder. Does not follow symbolic links to folders.
fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let kind = entry.file_type().ok()?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if entry.file_name() == name {
                return Some(entry.path());
            }
        }
    }
    None
}
