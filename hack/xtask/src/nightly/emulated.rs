//! The program for the other platform, in an emulator: it starts, prints the definitions of its kinds, and reconciles objects of a real
//! API server.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use chart::helm::succeeded;
use images::debian::Debian;
use images::operator::{self, Variant};
use images::{Platform, Reference, Store};

use crate::report::Outcome;
use crate::workspace;

/// The profile of cargo: this step tries the platform, not the speed.
const PROFILE: &str = "dev";
/// Some changes of some objects. An emulated program is many times slower, so it has minutes for each, and for its start.
const RACES: [&str; 8] = ["--rounds", "40", "--objects", "4", "--patience", "120", "--ready-within", "300"];

pub(super) fn nightly() -> Result<Outcome> {
    let here = Platform::here()?;
    let other = Platform::ALL.into_iter().find(|platform| *platform != here).context("there is no other platform")?;
    if let Some(lacking) = operator::lacks(other, workspace::root())? {
        if skip::in_ci() {
            bail!("{lacking}");
        }
        return Ok(Outcome::Skipped(lacking));
    }
    let folder = workspace::root().join("target/emulated");
    let program = script(&folder, &emulator(other)?, &build(other, &folder)?)?;
    let said = succeeded(workspace::command(&program).arg("--version")).context("the emulated program")?;
    ensure!(said.contains(env!("CARGO_PKG_VERSION")), "the program for {other} says that it is {said}");
    let mut races = workspace::cargo();
    races.args(["run", "--package", "runtime-bench", "--", "races"]).args(RACES).arg(&program);
    workspace::run(&mut races, &format!("the program for {other} does not reconcile, see above"))?;
    Ok(Outcome::Passed)
}

/// Builds the image for this platform. Returns its first program.
fn build(platform: Platform, folder: &Path) -> Result<PathBuf> {
    let variant = Variant { platform, profile: PROFILE, commit: None };
    let store = Store::open(folder.join("store"))?;
    operator::build_variant(variant, workspace::root(), &store, &Reference::parse(operator::DEFAULT_TAG)?)?;
    operator::programs(workspace::root(), variant)?.into_iter().next().context("the image has no program")
}

/// The emulator of this platform: the one on the PATH, or that of a Debian package, which is only unpacked.
fn emulator(platform: Platform) -> Result<PathBuf> {
    let name = match platform {
        Platform::Amd64 => "qemu-x86_64-static",
        Platform::Arm64 => "qemu-aarch64-static",
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    if let Some(installed) = installed {
        return Ok(installed);
    }
    let unpacked = Debian::shared()?.files("qemu-user-static")?.join("usr/bin").join(name);
    ensure!(unpacked.is_file(), "the package qemu-user-static has no {name}: put it on the PATH");
    Ok(unpacked)
}

/// Writes a script that runs the program in the emulator.
fn script(folder: &Path, emulator: &Path, program: &Path) -> Result<PathBuf> {
    let words = [emulator, program].map(|path| path.to_str().context("the path of the checkout is not Unicode"));
    let [emulator, program] = words;
    let command = shlex::try_join([emulator?, program?])?;
    let file = folder.join("controller-manager");
    fs::create_dir_all(folder).with_context(|| format!("could not create {}", folder.display()))?;
    fs::write(&file, format!("#!/bin/sh\nexec {command} \"$@\"\n"))
        .with_context(|| format!("could not write {}", file.display()))?;
    fs::set_permissions(&file, Permissions::from_mode(0o755))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn script_gives_the_program_and_its_arguments_to_the_emulator() {
        let folder = tempfile::tempdir().unwrap();
        let script =
            script(&folder.path().join("new"), Path::new("/bin/echo"), Path::new("/a folder/program")).unwrap();
        assert_eq!(fs::metadata(&script).unwrap().permissions().mode() & 0o777, 0o755);
        let said = succeeded(Command::new("/bin/sh").arg(script).args(["run", "two words"])).unwrap();
        assert_eq!(said, "/a folder/program run two words\n");
    }
}
