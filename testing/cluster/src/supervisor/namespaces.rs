//! The Linux namespaces of a real node: processes, mounts, network, host name.
//!
//! Everything in them vanishes with process 1; only cgroups stay. There is no default route, so nothing in the cluster reaches
//! anything outside.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::thread;

use anyhow::{Context, Result, bail};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};

use super::MEMBER_OF;
use crate::cgroups;
use crate::layout::Layout;
use crate::missing::{bare, last_line, require};
use crate::network::{DNS_IP, NODE, NODE_IP, SERVICES};
use crate::parts::REGISTRY;
use crate::spec::Spec;

/// The sysctls that the kubelet requires. It would otherwise set them for the whole machine.
const SYSCTLS: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// Becomes `unshare`, whose child is the supervisor as process 1 of new namespaces. If one of them is killed, the other ends too.
pub(super) fn enter(spec: &Spec) -> Result<()> {
    cgroups::create(&spec.cgroup())?;
    let outside = TcpListener::bind((Ipv4Addr::LOCALHOST, spec.ports.api))
        .with_context(|| format!("could not listen on port {}", spec.ports.api))?;
    let unshare = require("unshare", "util-linux")?;
    let error = bare(unshare)
        .args(["--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc"])
        .args(["--propagation", "private"])
        .arg(std::env::current_exe()?)
        .arg("node")
        .arg(&spec.folder)
        .env(MEMBER_OF, &spec.folder)
        .stdin(OwnedFd::from(outside))
        .exec();
    Err(error).context("could not start unshare")
}

/// Prepares the namespaces for a node: cgroup, mounts, sysctls, host name and network.
pub(super) fn furnish(spec: &Spec) -> Result<()> {
    cgroups::enter(&spec.cgroup())?;
    mount_folders(&spec.layout())?;
    pretend_sysctls(&spec.layout())?;
    rustix::system::sethostname(NODE.as_bytes()).context("could not set the host name")?;
    set_up_network()
}

/// Starts the registry from which the node pulls its images.
pub(super) fn serve_images(spec: &Spec) -> Result<()> {
    let Some(store) = spec.images.clone() else { return Ok(()) };
    let listener = TcpListener::bind(REGISTRY).context("could not listen for the registry")?;
    thread::spawn(move || {
        if let Err(error) = images::serve(listener, &store) {
            eprintln!("the registry ended: {error:#}");
        }
    });
    Ok(())
}

/// Ends all remaining processes and removes the mounts and cgroups. This is the last step before process 1 ends.
pub(super) fn clear(spec: &Spec) -> Result<()> {
    for _ in 0..100 {
        let others = other_processes();
        if others.is_empty() {
            break;
        }
        for pid in others {
            let _ = kill_process(pid, Signal::KILL); // fails if it has already ended
        }
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        thread::sleep(std::time::Duration::from_millis(20));
    }
    let _ = unmount(spec.layout().data(""), UnmountFlags::DETACH);
    cgroups::leave();
    cgroups::remove(&spec.cgroup())
}

/// Mounts scratch space for the daemons: a tmpfs for data, a tmpfs on /run, and overlays on folders of the host, so that changes
/// to them stay in these namespaces.
fn mount_folders(layout: &Layout) -> Result<()> {
    let data = layout.data("");
    tmpfs(&data)?;
    tmpfs(Path::new("/run"))?;
    for name in ["etc", "opt", "var"] {
        let lower = Path::new("/").join(name);
        if !lower.is_dir() {
            continue;
        }
        let (upper, work) =
            (layout.data(&format!("overlay/{name}/upper")), layout.data(&format!("overlay/{name}/work")));
        fs::create_dir_all(&upper)?;
        fs::create_dir_all(&work)?;
        let options = format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
        mount("overlay", &lower, "overlay", MountFlags::empty(), &*c_string(&options)?)
            .with_context(|| format!("could not mount an overlay on {}", lower.display()))?;
    }
    for folder in ["etcd", "containerd", "kubelet", "sysctl"] {
        fs::create_dir_all(layout.data(folder))?;
    }
    fs::create_dir_all("/run/lock")?;
    // The logs of pods are outside of the namespaces, so that they survive the node.
    let kept = layout.folder().join("log/pods");
    fs::create_dir_all(&kept)?;
    fs::create_dir_all("/var/log/pods")?;
    mount_bind(&kept, "/var/log/pods").context("could not mount /var/log/pods")
}

/// Makes the kubelet read the values that it requires, by mounting files over those of the kernel. The machine's values stay.
fn pretend_sysctls(layout: &Layout) -> Result<()> {
    for (name, wanted) in SYSCTLS {
        let real = Path::new("/proc/sys").join(name);
        let Ok(value) = fs::read_to_string(&real) else { continue };
        if value.trim() != wanted {
            let file = layout.data("sysctl").join(name.replace('/', "."));
            fs::write(&file, format!("{wanted}\n"))?;
            mount_bind(&file, &real).with_context(|| format!("could not mount a file on {}", real.display()))?;
        }
    }
    Ok(())
}

/// Sets up the loopback interface with the addresses of the node and of DNS, and a route for the addresses of Services. The
/// kernel needs that route before kube-proxy rewrites these addresses.
fn set_up_network() -> Result<()> {
    let ip = require("ip", "iproute2")?;
    for args in [
        "link set lo up".to_owned(),
        format!("addr add {NODE_IP}/32 dev lo"),
        format!("addr add {DNS_IP}/32 dev lo"),
        format!("route add {SERVICES} dev lo src {NODE_IP}"),
    ] {
        let done = bare(&ip).args(args.split(' ')).output()?;
        if !done.status.success() {
            bail!("ip {args}: {}", last_line(&done.stderr));
        }
    }
    fs::write("/proc/sys/net/ipv4/ip_forward", "1").context("could not enable IP forwarding")
}

fn tmpfs(on: &Path) -> Result<()> {
    fs::create_dir_all(on)?;
    mount("tmpfs", on, "tmpfs", MountFlags::empty(), c"mode=755")
        .with_context(|| format!("could not mount a tmpfs on {}", on.display()))
}

fn c_string(text: &str) -> Result<std::ffi::CString> {
    Ok(std::ffi::CString::new(text)?)
}

/// All processes of this pid namespace except this one.
fn other_processes() -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|number| *number != 1).filter_map(Pid::from_raw).collect()
}
