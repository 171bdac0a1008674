//! Installs the few programs that a minimal Debian may lack and that no other step builds.

use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::workspace;

/// Programs that the checks need, each with the Debian package that contains it.
const NEEDED: &[(&str, &str)] =
    &[("cc", "gcc"), ("pkg-config", "pkg-config"), ("nsenter", "util-linux"), ("ip", "iproute2"), ("mount", "mount")];
/// Programs that only some tests need. Without them, these tests are skipped; under `CI` that is an error. The driver's package
/// depends on its browser.
const WANTED: &[(&str, &str)] = &[("chromedriver", "chromium-driver")];

/// Installs the missing packages if this process is root and has apt-get.
///
/// # Errors
///
/// Otherwise the error names the packages to install.
pub(crate) fn ensure() -> Result<()> {
    let python = (!makes_environments()).then_some("python3-venv");
    install(&missing(NEEDED).chain(python).collect::<Vec<_>>())?;
    match install(&missing(WANTED).collect::<Vec<_>>()) {
        Err(error) if !skip::in_ci() => {
            eprintln!("{error:#}; until then, tests that need them are skipped");
            Ok(())
        }
        ended => ended,
    }
}

fn install(packages: &[&str]) -> Result<()> {
    if packages.is_empty() {
        return Ok(());
    }
    let list = packages.join(" ");
    if !is_root() || !exists("apt-get") {
        bail!("install these packages: {list}");
    }
    eprintln!("installing {list}");
    let apt = |arguments: &[&str]| {
        let mut apt = workspace::command("apt-get");
        apt.env("DEBIAN_FRONTEND", "noninteractive").arg("--quiet").args(arguments);
        apt
    };
    workspace::run(&mut apt(&["update"]), "apt-get could not read the lists of packages, see above")?;
    let mut install = apt(&["install", "--yes", "--no-install-recommends"]);
    workspace::run(install.args(packages), &format!("apt-get could not install {list}, see above"))
}

fn missing(of: &[(&str, &'static str)]) -> impl Iterator<Item = &'static str> {
    of.iter().filter(|(program, _)| !exists(program)).map(|(_, package)| *package)
}

/// Whether Python can create virtual environments, for which Debian has a separate package. A check of the chart installs schemas
/// from `PyPI` into one.
fn makes_environments() -> bool {
    let mut python = Command::new("python3");
    python.args(["-c", "import ensurepip, venv"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    python.status().is_ok_and(|status| status.success())
}

fn exists(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let also = ["/usr/sbin", "/sbin"].map(Into::into); // the PATH of ordinary users often lacks them
    std::env::split_paths(&path).chain(also).any(|folder| folder.join(program).is_file())
}

fn is_root() -> bool {
    let user = Command::new("id").arg("-u").stdin(Stdio::null()).output();
    user.is_ok_and(|user| user.stdout == b"0\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn installed_program_is_found() {
        assert!(exists("sh"));
        assert!(!exists("no-such-program"));
    }
}
