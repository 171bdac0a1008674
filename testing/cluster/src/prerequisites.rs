//! Checks what a cluster needs of the machine, before any long work.

use std::path::Path;
use std::process::Output;

use anyhow::{Result, bail};

use crate::layout::Layout;
use crate::missing::{Missing, bare, last_line, require};
use crate::spec::Nodes;

/// Checks that a cluster with these nodes can run on this machine.
///
/// The error names what the machine lacks.
pub(crate) fn check(nodes: Nodes, layout: &Layout) -> Result<()> {
    if !Path::new("/proc/self/fd").is_dir() {
        return Err(Missing("clusters need Linux with /proc".into()).into());
    }
    if nodes == Nodes::Real { check_real(layout) } else { Ok(()) }
}

fn check_real(layout: &Layout) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        let advice = "use `sudo --preserve-env env PATH=$PATH`, or `--nodes simulated`, which needs no root but runs no \
                      containers";
        return Err(Missing(format!("real nodes need root: {advice}")).into());
    }
    for folder in ["/etc", "/opt", "/var", "/run"] {
        if layout.folder().starts_with(folder) {
            bail!(
                "{} cannot hold a real cluster: point OPERATORS_STATE outside of {folder}",
                layout.folder().display()
            );
        }
    }
    for (program, package) in
        [("unshare", "util-linux"), ("nsenter", "util-linux"), ("ip", "iproute2"), ("mount", "mount")]
    {
        require(program, package)?;
    }
    let probes: [(&str, &[&str]); 3] = [
        (
            "namespaces (CAP_SYS_ADMIN)",
            &["--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--mount-proc", "true"],
        ),
        (
            "pairs of network interfaces (veth)",
            &["--net", "ip", "link", "add", "one", "type", "veth", "peer", "name", "two"],
        ),
        ("overlay file systems", &["--mount", "sh", "-c", OVERLAY]),
    ];
    for (what, args) in probes {
        let probe = in_new_namespaces(args)?;
        if !probe.status.success() {
            let why = last_line(&probe.stderr);
            return Err(Missing(format!("real nodes need {what}, which this machine refuses: {why}")).into());
        }
    }
    Ok(())
}

/// Mounts an overlay on a tmpfs. The kernel refuses an overlay on an overlay, which is not what this checks.
const OVERLAY: &str = "mount -t tmpfs tmpfs /tmp && cd /tmp && mkdir l u w m && \
                       mount -t overlay overlay -o lowerdir=l,upperdir=u,workdir=w m";

/// Checks that kube-proxy can program the kernel with this `nft`.
pub(crate) fn check_nft(nft: &Path) -> Result<()> {
    let probe = in_new_namespaces(&["--net", &nft.display().to_string(), "add", "table", "ip", "probe"])?;
    if !probe.status.success() {
        let why = last_line(&probe.stderr);
        return Err(Missing(format!("real nodes need nf_tables, which this machine refuses: {why}")).into());
    }
    Ok(())
}

fn in_new_namespaces(args: &[&str]) -> Result<Output> {
    Ok(bare(require("unshare", "util-linux")?).args(args).output()?)
}
