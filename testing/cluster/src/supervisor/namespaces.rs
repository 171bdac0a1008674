//! The Linux namespaces of real nodes: processes, mounts, network, host name.
//!
//! The first node shares its namespaces with the control plane. Each other node has namespaces of its own inside of those.
//! Everything in them vanishes with process 1; only cgroups stay. There is no default route, so nothing in the cluster reaches
//! anything outside.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, wait};
use rustix::thread::{ThreadNameSpaceType, UnshareFlags, move_into_thread_name_spaces};

use super::MEMBER_OF;
use crate::cgroups;
use crate::layout::Layout;
use crate::missing::{bare, last_line, require};
use crate::network::{Family, IpFamily, Node};
use crate::parts::registry;
use crate::spec::Spec;

/// The sysctls that the kubelet requires. It would otherwise set them for the whole machine.
pub(crate) const SYSCTLS: [(&str, &str); 6] = [
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
    let mut unshare = unshare(&["node"], &spec.folder, OwnedFd::from(outside))?;
    Err(unshare.exec()).context("could not start unshare")
}

/// The command `unshare`, whose child runs this program with these arguments and the folder as process 1 of new namespaces.
pub(super) fn unshare(args: &[&str], folder: &Path, input: impl Into<Stdio>) -> Result<Command> {
    let mut unshare = bare(require("unshare", "util-linux")?);
    unshare
        .args(["--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc"])
        .args(["--propagation", "private"])
        .arg(std::env::current_exe()?)
        .args(args)
        .arg(folder)
        .env(MEMBER_OF, folder)
        .stdin(input);
    Ok(unshare)
}

/// Prepares the namespaces for the first node: cgroup, mounts, sysctls, host name and network.
pub(super) fn furnish(spec: &Spec) -> Result<()> {
    cgroups::enter(&spec.cgroup())?;
    tmpfs(&spec.layout().data(""))?;
    for part in ["etcd", "sysctl"] {
        fs::create_dir_all(spec.layout().data(part))?;
    }
    furnish_node(&spec.layout(), Node::FIRST)?;
    set_up_network(spec.ip_family)
}

/// Puts this process, which is process 1 of its process namespace, into the other namespaces of a further node, and prepares them.
pub(super) fn furnish_machine(spec: &Spec, node: Node) -> Result<()> {
    let outside = File::open("/proc/self/ns/net").context("could not open the network")?;
    let new = UnshareFlags::NEWNET | UnshareFlags::NEWNS | UnshareFlags::NEWUTS | UnshareFlags::NEWIPC;
    #[expect(deprecated, reason = "the flag that makes it unsafe is not used")]
    rustix::thread::unshare(new).context("could not create namespaces")?;
    mount("proc", "/proc", "proc", MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC, None)
        .context("could not mount /proc")?;
    let cgroup = spec.cgroup_of(node);
    cgroups::remove(&cgroup)?; // after a restart: the kubelet would look for the containers of the old cgroups for half a minute
    cgroups::create(&cgroup)?;
    cgroups::enter(&cgroup)?;
    furnish_node(&spec.layout(), node)?;
    join_networks(spec.ip_family, node, &outside)
}

/// Puts this process, which is in the process namespace of a further node, into the node's other namespaces and its cgroup.
pub(super) fn join_machine(cgroup: &str) -> Result<()> {
    let machine = pidfd_open(Pid::INIT, PidfdFlags::empty()).context("could not open process 1 of the node")?;
    let kinds = ThreadNameSpaceType::NETWORK
        | ThreadNameSpaceType::MOUNT
        | ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME
        | ThreadNameSpaceType::INTER_PROCESS_COMMUNICATION;
    move_into_thread_name_spaces(machine.as_fd(), kinds).context("could not enter the namespaces of the node")?;
    cgroups::enter(cgroup)
}

fn furnish_node(layout: &Layout, node: Node) -> Result<()> {
    mount_folders(layout, node)?;
    pretend_sysctls(layout)?;
    rustix::system::sethostname(node.to_string().as_bytes()).context("could not set the host name")
}

/// Starts the registry from which the node pulls its images.
pub(super) fn serve_images(spec: &Spec) -> Result<()> {
    let Some(store) = spec.images.clone() else { return Ok(()) };
    let listener = TcpListener::bind(registry(spec)).context("could not listen for the registry")?;
    thread::spawn(move || {
        if let Err(error) = images::serve(listener, &store) {
            eprintln!("the registry ended: {error:#}");
        }
    });
    Ok(())
}

/// Ends all remaining processes and removes the mounts and cgroups. This is the last step before process 1 ends.
pub(super) fn clear(spec: &Spec) -> Result<()> {
    end_others();
    let _ = unmount(spec.layout().data(""), UnmountFlags::DETACH);
    cgroups::leave();
    cgroups::remove(&spec.cgroup())
}

/// Ends all other processes of this process namespace, of which this is process 1.
pub(super) fn end_others() {
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
}

/// Mounts scratch space for the daemons of a node: a tmpfs on /run, and overlays on folders of the host, so that changes to them
/// stay in these namespaces. What a node writes there and to its data survives its restart, like a disk; /run does not.
fn mount_folders(layout: &Layout, node: Node) -> Result<()> {
    let data = |part: &str| layout.data(&format!("{node}/{part}"));
    tmpfs(Path::new("/run"))?;
    for name in ["etc", "opt", "var"] {
        let lower = Path::new("/").join(name);
        if !lower.is_dir() {
            continue;
        }
        if !node.is_first() {
            // The overlay of the first node: the kernel limits the depth of overlays.
            unmount(&lower, UnmountFlags::DETACH).with_context(|| format!("could not unmount {}", lower.display()))?;
        }
        let (upper, work) = (data(&format!("overlay/{name}/upper")), data(&format!("overlay/{name}/work")));
        fs::create_dir_all(&upper)?;
        fs::create_dir_all(&work)?;
        let options = format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
        mount("overlay", &lower, "overlay", MountFlags::empty(), &*c_string(&options)?)
            .with_context(|| format!("could not mount an overlay on {}", lower.display()))?;
    }
    for part in ["containerd", "kubelet"] {
        fs::create_dir_all(data(part))?;
    }
    fs::create_dir_all("/run/lock")?;
    // The logs of pods are outside of the namespaces, so that they survive the node. Each node has its own folder, because a
    // kubelet removes the logs of pods that it does not know.
    let kept = layout.folder().join("log").join(node.part("pods"));
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

/// Sets up the loopback interface with the addresses of the first node, and a route for the addresses of Services. The
/// kernel needs that route before kube-proxy rewrites these addresses.
fn set_up_network(families: IpFamily) -> Result<()> {
    let ip = Ip::here()?;
    ip.run("link set lo up")?;
    for family in families.families() {
        let (own, services) = (family.address(Node::FIRST), family.services());
        ip.run(&format!("addr add {own} dev lo{}", at_once(*family)))?;
        ip.run(&format!("route add {services} dev lo src {own}"))?;
        forward(*family)?;
    }
    Ok(())
}

/// Joins the network of a further node to that of the first, which is `outside`, by a pair of interfaces. The first node routes
/// between the pods of all nodes.
fn join_networks(families: IpFamily, node: Node, outside: &File) -> Result<()> {
    // This process is process 1, and the programs below run in its process namespace.
    let (inside, outside) = (Ip::here()?, Ip::in_network(&format!("/proc/1/fd/{}", outside.as_raw_fd()))?);
    // After a restart of the node, the kernel may not have removed the old pair yet.
    let _ = outside.run(&format!("link delete {node}"));
    outside.run(&format!("link add name {node} type veth peer name eth0 netns 1"))?;
    inside.run("link set lo up")?;
    inside.run("link set eth0 up")?;
    outside.run(&format!("link set {node} up"))?;
    for family in families.families() {
        let (own, first, pods) = (family.address(node), family.address(Node::FIRST), family.pods_on(node));
        let nodad = at_once(*family);
        inside.run(&format!("addr add {own} dev eth0{nodad}"))?;
        inside.run(&format!("route add {first} dev eth0 src {own}"))?;
        inside.run(&format!("route add {} via {first} dev eth0 src {own}", family.everything()))?;
        outside.run(&format!("addr add {first} dev {node}{nodad}"))?;
        outside.run(&format!("route add {own} dev {node} src {first}"))?;
        outside.run(&format!("route add {pods} via {own} dev {node} src {first}"))?;
        forward(*family)?;
    }
    Ok(())
}

/// The end of a command that adds an address. Without the search for duplicates, an address of IPv6 is usable at once.
fn at_once(family: Family) -> &'static str {
    match family {
        Family::V4 => "",
        Family::V6 => " nodad",
    }
}

fn forward(family: Family) -> Result<()> {
    let file = match family {
        Family::V4 => "/proc/sys/net/ipv4/ip_forward",
        Family::V6 => "/proc/sys/net/ipv6/conf/all/forwarding",
    };
    fs::write(file, "1").with_context(|| format!("could not enable {file}"))
}

/// The program `ip`, in one network.
pub(super) struct Ip {
    program: PathBuf,
    /// The arguments before those of `ip`, if another program runs it.
    before: Vec<String>,
}

impl Ip {
    pub(super) fn here() -> Result<Self> {
        Ok(Self { program: require("ip", "iproute2")?, before: Vec::new() })
    }

    /// In the network whose file this is.
    fn in_network(file: &str) -> Result<Self> {
        let ip = require("ip", "iproute2")?.display().to_string();
        Ok(Self { program: require("nsenter", "util-linux")?, before: vec![format!("--net={file}"), "--".into(), ip] })
    }

    pub(super) fn run(&self, args: &str) -> Result<()> {
        let done = bare(&self.program).args(&self.before).args(args.split(' ')).output()?;
        if !done.status.success() {
            bail!("ip {args}: {}", last_line(&done.stderr));
        }
        Ok(())
    }
}

pub(super) fn tmpfs(on: &Path) -> Result<()> {
    fs::create_dir_all(on)?;
    mount("tmpfs", on, "tmpfs", MountFlags::empty(), c"mode=755")
        .with_context(|| format!("could not mount a tmpfs on {}", on.display()))
}

pub(super) fn c_string(text: &str) -> Result<std::ffi::CString> {
    Ok(std::ffi::CString::new(text)?)
}

/// All processes of this pid namespace except this one.
fn other_processes() -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|number| *number != 1).filter_map(Pid::from_raw).collect()
}
