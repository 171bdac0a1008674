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
    let variant = Variant { platform, profile: PROFILE, version: env!("CARGO_PKG_VERSION"), commit: None };
    let store = Store::open(folder.join("store"))?;
    operator::build_variant(variant, workspace::root(), &store, &Reference::parse(operator::DEFAULT_TAG)?)?;
    operator::programs(workspace::root(), variant)?.into_iter().next().context("the image has no program")
}

/// The emulator of this platform: the one on the PATH, or that of a Debian package, which is only unpacked.
fn emulator(platform: Platform) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<_> = std::env::split_paths(&path).collect();
    find_emulator(platform, &folders, |package| Debian::shared()?.files(package))
}

/// The emulator in one of these folders of programs, or in a package that `unpack` unpacks into the folder that it returns. Older
/// releases of Debian have the static emulators in a package of their own. In newer ones, the usual emulators are static, and that
/// package is empty.
fn find_emulator(platform: Platform, folders: &[PathBuf], unpack: impl Fn(&str) -> Result<PathBuf>) -> Result<PathBuf> {
    let usual = match platform {
        Platform::Amd64 => "qemu-x86_64",
        Platform::Arm64 => "qemu-aarch64",
    };
    let alone = format!("{usual}-static");
    let found = |folder: &Path, name: &str| Some(folder.join(name)).filter(|file| file.is_file());
    let installed = [alone.as_str(), usual].into_iter().find_map(|name| folders.iter().find_map(|it| found(it, name)));
    if let Some(installed) = installed {
        return Ok(installed);
    }
    for (package, name) in [("qemu-user-static", alone.as_str()), ("qemu-user", usual)] {
        if let Some(unpacked) = found(&unpack(package)?.join("usr/bin"), name) {
            return Ok(unpacked);
        }
    }
    bail!(
        "neither of the packages qemu-user-static and qemu-user has an emulator of {platform}: put {usual} on the PATH"
    )
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
    fn emulator_is_installed_or_in_one_of_two_packages() {
        let root = tempfile::tempdir().unwrap();
        let make = |file: &str| {
            let file = root.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, "").unwrap();
            file
        };
        let find = || {
            let unpack = |package: &str| Ok(root.path().join(package));
            find_emulator(Platform::Arm64, &[root.path().join("bin")], unpack).map_err(|error| error.to_string())
        };
        assert!(find().unwrap_err().contains("put qemu-aarch64 on the PATH"));
        // Each of these is preferred to the earlier ones.
        for file in [
            "qemu-user/usr/bin/qemu-aarch64",
            "qemu-user-static/usr/bin/qemu-aarch64-static",
            "bin/qemu-aarch64",
            "bin/qemu-aarch64-static",
        ] {
            let file = make(file);
            assert_eq!(find(), Ok(file));
        }
    }

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
