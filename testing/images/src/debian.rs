//! Downloads Debian packages and unpacks them into a cache. It installs nothing and only reads the machine's package lists. Where
//! these are missing or stale, it fetches its own lists into the cache.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::store::cache_folder;

/// Downloads and unpacks packages below one folder.
pub struct Debian {
    cache: PathBuf,
}

/// A package on disk.
pub struct Package {
    /// The folder with the package's files.
    pub root: PathBuf,
    /// The upstream version, such as `1.6.18`.
    pub version: String,
    /// The names of the library packages on which it depends, without the C library.
    pub libraries: Vec<String>,
}

impl Debian {
    /// Uses the cache folder of this user, which the whole workspace shares.
    pub fn shared() -> Result<Self> {
        Self::new(cache_folder()?.join("debian"))
    }

    /// Uses the folder `cache`, and creates it if it does not exist.
    pub fn new(cache: impl Into<PathBuf>) -> Result<Self> {
        let cache = cache.into();
        fs::create_dir_all(&cache).with_context(|| format!("could not make {}", cache.display()))?;
        Ok(Self { cache })
    }

    /// The folder with the files of a package. Uses any version that is unpacked already, and otherwise unpacks the newest.
    pub fn files(&self, name: &str) -> Result<PathBuf> {
        let prefix = format!("{name}_");
        let unpacked = fs::read_dir(&self.cache)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.file_name().and_then(|file| file.to_str()).is_some_and(|file| file.starts_with(&prefix)));
        unpacked.map_or_else(|| self.unpack(name).map(|package| package.root), Ok)
    }

    /// Downloads and unpacks the newest version of a package.
    pub fn unpack(&self, name: &str) -> Result<Package> {
        // Each attempt has its own folder, so that two processes do not overwrite each other's files.
        let folder = tempfile::tempdir_in(&self.cache)?;
        let own = self.own_lists();
        if download(name, folder.path(), &[]).is_err() && download(name, folder.path(), &own).is_err() {
            self.update().and_then(|()| download(name, folder.path(), &own))?;
        }
        let archive = fs::read_dir(folder.path())?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
            .with_context(|| format!("apt-get download {name} created no package"))?;

        let root = folder.path().join("root");
        run(Command::new("dpkg-deb").arg("--extract").arg(&archive).arg(&root))?;
        let field = |name| run(Command::new("dpkg-deb").arg("--field").arg(&archive).arg(name));
        let (version, depends) = (field("Version")?, field("Depends")?);

        let place = self.cache.join(format!("{name}_{}", version.trim().replace(':', "%3a")));
        // If the folder exists, another process has unpacked the same files.
        if !place.exists() && fs::rename(&root, &place).is_err() {
            ensure!(place.exists(), "could not make {}", place.display());
        }
        Ok(Package { root: place, version: upstream(&version), libraries: libraries(&depends) })
    }

    /// Downloads package lists into the cache. Needs no root.
    fn update(&self) -> Result<()> {
        fs::create_dir_all(self.cache.join("lists/partial"))?;
        run(apt_get(&self.own_lists()).arg("update")).map(drop)
    }

    fn own_lists(&self) -> [String; 2] {
        let option = |name, folder: &str| format!("{name}={}", self.cache.join(folder).display());
        [option("Dir::State::Lists", "lists"), option("Dir::Cache", "apt")]
    }
}

fn download(name: &str, folder: &Path, options: &[String]) -> Result<()> {
    run(apt_get(options).arg("download").arg(name).current_dir(folder)).map(drop)
}

fn apt_get(options: &[String]) -> Command {
    let mut command = Command::new("apt-get");
    // If root runs apt-get, it changes to another user by default, which cannot enter a private cache.
    command.args(["-qq", "-o", "APT::Sandbox::User=root"]);
    for option in options {
        command.args(["-o", option]);
    }
    command
}

/// Runs a program and returns its standard output.
fn run(command: &mut Command) -> Result<String> {
    let program = command.get_program().display().to_string();
    let output = command.output().with_context(|| {
        format!("could not run {program}: fixture images come from Debian packages, so build them on Debian or Ubuntu")
    })?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The upstream part of a Debian version: `1:1.35.0-4+deb12u1` becomes `1.35.0`.
fn upstream(version: &str) -> String {
    let version = version.trim();
    let version = version.split_once(':').map_or(version, |(_epoch, rest)| rest);
    version.rsplit_once('-').map_or(version, |(upstream, _revision)| upstream).to_owned()
}

/// The library packages in a `Depends` field, without the C library. The C library comes from this machine, because a loader
/// works only with the C library of the same build.
fn libraries(depends: &str) -> Vec<String> {
    let name = |dependency: &str| dependency.split(['(', ':', '|']).next().unwrap_or_default().trim().to_owned();
    depends.split(',').map(name).filter(|name| name.starts_with("lib") && !name.starts_with("libc6")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_lose_epoch_and_revision() {
        assert_eq!(upstream("1:1.35.0-4+deb12u1+b1\n"), "1.35.0");
        assert_eq!(upstream("1.6.18-1+deb12u1"), "1.6.18");
        assert_eq!(upstream("2.0"), "2.0");
    }

    #[test]
    fn only_library_dependencies_are_kept() {
        let depends =
            "adduser, lsb-base, perl:any, libc6 (>= 2.34), libevent-2.1-7 (>= 2.1.8-stable), libssl3 (>= 3.0.0)";
        assert_eq!(libraries(depends), ["libevent-2.1-7", "libssl3"]);
        assert!(libraries("").is_empty());
    }
}
