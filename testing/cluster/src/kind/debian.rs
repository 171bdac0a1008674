//! Root file systems from Debian packages. `mmdebstrap` makes them in a folder; nothing is installed on this machine.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::steps::finish;
use crate::missing::{Missing, require};

/// A root file system.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Root {
    /// How much of Debian it has: `minbase` is a system, `extract` has only the files of the packages and of what they need.
    variant: &'static str,
    packages: &'static [&'static str],
}

/// Docker, which starts the nodes of kind.
pub(super) const ENGINE: Root = Root { variant: "extract", packages: &["docker.io", "iptables"] };

/// A node of kind, before kind's files and the programs of Kubernetes: the packages of kind's own node image that are needed here.
pub(super) const NODE: Root = Root {
    variant: "minbase",
    packages: &[
        "systemd",
        "bash",
        "ca-certificates",
        "conntrack",
        "curl",
        "e2fsprogs",
        "ethtool",
        "hostname",
        "iproute2",
        "iptables",
        "jq",
        "kmod",
        "libseccomp2",
        "mount",
        "nftables",
        "procps",
        "util-linux",
    ],
};

impl Root {
    /// Makes the file system in `target`: in a folder, or in an archive if the name ends with `.tar`.
    pub(super) fn make(&self, target: &Path, log: &Path, tick: &dyn Fn()) -> Result<()> {
        let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let suite = codename(&system).ok_or_else(|| {
            Missing("the nodes of kind are built from Debian packages: use Debian, or a machine with Docker".into())
        })?;
        for (program, package) in [("perl", "perl"), ("apt-get", "apt"), ("dpkg-deb", "dpkg")] {
            require(program, package)?;
        }
        let mmdebstrap = images::debian::Debian::shared()?.files("mmdebstrap")?.join("usr/bin");
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::iter::once(mmdebstrap.clone()).chain(std::env::split_paths(&path));
        let mut make = Command::new(require("unshare", "util-linux")?);
        make.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private", "--"]);
        make.arg(mmdebstrap.join("mmdebstrap")).args(self.arguments()).arg(suite).arg(target).args(sources());
        make.env("PATH", std::env::join_paths(folders)?).env("LC_ALL", "C.UTF-8");
        finish(&mut make, log, tick)
    }

    fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["--mode=root".to_owned(), format!("--variant={}", self.variant)];
        arguments.push(format!("--include={}", self.packages.join(",")));
        for unused in ["doc", "man", "locale", "info"] {
            arguments.push(format!("--dpkgopt=path-exclude=/usr/share/{unused}/*"));
        }
        arguments
    }
}

/// The name of this machine's release of Debian; `None` for other systems.
fn codename(os_release: &str) -> Option<String> {
    let value = |name: &str| {
        let line = os_release.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
        Some(line.trim_matches('"').to_owned())
    };
    value("ID").filter(|id| id == "debian").and_then(|_| value("VERSION_CODENAME"))
}

/// The list of this machine's own sources of Debian, which may be mirrors. Without one, mmdebstrap uses Debian's servers.
fn sources() -> Option<PathBuf> {
    let files = ["/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"];
    files.into_iter().map(PathBuf::from).find(|file| fs::metadata(file).is_ok_and(|it| it.len() > 0))
}

/// Completes Docker's root file system, whose packages are only unpacked: their scripts would link these names.
pub(super) fn link_iptables(root: &Path) -> Result<()> {
    for family in ["iptables", "ip6tables"] {
        for suffix in ["", "-save", "-restore"] {
            let link = root.join("usr/sbin").join(format!("{family}{suffix}"));
            symlink("xtables-nft-multi", &link).with_context(|| format!("could not create {}", link.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_debian_has_a_suite() {
        let debian = "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nVERSION_CODENAME=bookworm\nID=debian\n";
        assert_eq!(codename(debian), Some("bookworm".into()));
        assert_eq!(codename("ID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME=noble\n"), None);
        assert_eq!(codename(""), None);
    }

    #[test]
    fn packages_of_docker_are_only_unpacked() {
        let arguments = ENGINE.arguments();
        assert!(arguments.contains(&"--variant=extract".to_owned()));
        assert!(arguments.contains(&"--include=docker.io,iptables".to_owned()));
        assert!(arguments.contains(&"--dpkgopt=path-exclude=/usr/share/doc/*".to_owned()));
    }
}
