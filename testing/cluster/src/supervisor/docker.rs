//! A Docker daemon in Linux namespaces of its own, for the nodes of kind on a machine without Docker.
//!
//! The daemon sees its own root file system, its own network without a way out, and its own processes. Its containers are in one
//! cgroup. So the network, the mounts and the settings of the machine stay as they are, and everything ends with process 1.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive, unmount};
use rustix::process::{Resource, Rlimit, WaitOptions, getrlimit, pivot_root, setrlimit, wait};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::namespaces::{Ip, c_string, end_others, tmpfs};
use super::{MEMBER_OF, forwarder, runc};
use crate::missing::{bare, last_line, require};
use crate::network::{Family, Node, REGISTRY_PORT};
use crate::tools::Lock;
use crate::{cgroups, network_namespace};

/// How the daemon runs. It is in the daemon's folder, which has everything that the daemon writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DaemonSpec {
    /// The folder of the daemon.
    pub(crate) folder: PathBuf,
    /// The root file system with Docker. It stays as it is.
    pub(crate) root: PathBuf,
    /// The images that nodes can pull.
    pub(crate) images: PathBuf,
    /// The cgroup for the daemon and its containers.
    pub(crate) cgroup: String,
    /// The daemon ends when it has had no containers for this time.
    pub(crate) idle: Duration,
}

impl DaemonSpec {
    pub(crate) fn file(folder: &Path) -> PathBuf {
        folder.join("daemon.json")
    }

    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let file = Self::file(folder);
        let text = fs::read(&file).with_context(|| format!("could not read {}", file.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("{} is damaged", file.display()))
    }

    pub(crate) fn write(&self) -> Result<()> {
        let file = Self::file(&self.folder);
        fs::write(&file, serde_json::to_vec_pretty(self)?)
            .with_context(|| format!("could not write {}", file.display()))
    }
}

/// The address of the registry from which nodes pull. All of them reach it, since it is an address of the network that routes
/// between them.
pub(crate) fn registry() -> std::net::SocketAddr {
    (Family::V4.address(Node::FIRST), REGISTRY_PORT).into()
}

/// The daemon's socket in its folder.
pub(crate) const SOCKET: &str = "docker.sock";
/// The daemon's log in its folder.
pub(crate) const LOG: &str = "docker.log";
/// The log of its supervisor in the same folder.
pub(crate) const START_LOG: &str = "start.log";
/// Where the daemon's folder is in its root file system.
const HOME: &str = "/operators";

/// The lock for starting and removing the daemon in this folder. It is outside of the folder, so that it outlives it.
pub(crate) fn lock(folder: &Path) -> PathBuf {
    folder.with_extension("lock")
}

/// Runs the daemon in new namespaces until it ends, and then removes what is outside of them.
pub(super) fn run(folder: &Path) -> Result<()> {
    let _ = rustix::process::setsid(); // fails only if this process already leads a session
    let cgroup = DaemonSpec::read(folder)?.cgroup;
    cgroups::create(&cgroup)?;
    let mut inside = super::namespaces::unshare(&["docker-inside"], folder, Stdio::null())?;
    let ended = inside.status().context("could not start unshare")?;
    let why = last_line(&fs::read(folder.join(START_LOG)).unwrap_or_default());
    clear(folder, &cgroup, !ended.success())?;
    if ended.success() { Ok(()) } else { bail!("{why}") }
}

/// Removes what a daemon that has ended leaves: its cgroups, its folder and its lock. After a failure, the logs stay to tell why. If
/// another call holds the lock, it starts the daemon again or removes it. It then removes the rest too.
fn clear(folder: &Path, cgroup: &str, has_failed: bool) -> Result<()> {
    let Some(lock) = Lock::try_acquire(&lock(folder))? else { return Ok(()) };
    cgroups::remove(cgroup)?;
    if has_failed {
        return empty(folder, has_failed);
    }
    fs::remove_dir_all(folder).with_context(|| format!("could not remove {}", folder.display()))?;
    lock.remove();
    Ok(())
}

/// Removes what is in the daemon's folder, with or without the logs. Nothing of the machine is mounted there.
fn empty(folder: &Path, keeps_logs: bool) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("could not read {}", folder.display()))?;
    for path in entries.flatten().map(|entry| entry.path()) {
        if !(keeps_logs && path.extension().is_some_and(|extension| extension == "log")) {
            // What stays after an error, the next start removes.
            let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        }
    }
    Ok(())
}

/// Runs the daemon as a child of process 1, until it has no containers for a while.
pub(super) fn run_inside(folder: &Path) -> Result<()> {
    let spec = DaemonSpec::read(folder)?;
    cgroups::enter(&spec.cgroup)?;
    let registry = set_up_network()?;
    enter_root(&spec)?;
    serve_images(registry);
    let files = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: files, maximum: files })?;
    let mut daemon = start()?;
    let ended = watch(&mut daemon, spec.idle);
    end_others();
    empty(Path::new(HOME), ended.is_err())?;
    cgroups::leave();
    cgroups::remove(&spec.cgroup)?;
    ended
}

/// Waits until the daemon has had no containers for a while, and reaps orphans.
fn watch(daemon: &mut Child, idle: Duration) -> Result<()> {
    let mut busy = Instant::now();
    while busy.elapsed() < idle {
        thread::sleep(Duration::from_millis(500));
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if pid.as_raw_nonzero().get().cast_unsigned() == daemon.id() {
                bail!("the Docker daemon ended: {status:?}");
            }
        }
        if has_containers() {
            busy = Instant::now();
        }
    }
    eprintln!("the Docker daemon has had no containers for {idle:?}: it stops");
    Ok(())
}

/// Each container has a process of this name, which starts it and waits for it.
fn has_containers() -> bool {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path().join("comm"))
        .any(|comm| fs::read_to_string(comm).is_ok_and(|name| name.starts_with("containerd-shim")))
}

/// The network of the daemon has only a loopback interface at first. Docker adds its bridges.
fn set_up_network() -> Result<TcpListener> {
    let ip = Ip::here()?;
    ip.run("link set lo up")?;
    ip.run(&format!("addr add {} dev lo", Family::V4.address(Node::FIRST)))?;
    TcpListener::bind(registry()).context("could not listen for the registry")
}

fn serve_images(listener: TcpListener) {
    thread::spawn(move || {
        if let Err(error) = images::serve(listener, Path::new("/images")) {
            eprintln!("the registry ended: {error:#}");
        }
    });
}

/// What is mounted in the root file system of the daemon, beside an overlay for its changes.
#[derive(Debug, PartialEq, Eq)]
enum Mount {
    /// A new file system of this type.
    New(&'static str),
    /// A folder of the machine, or a file, alone.
    Bind(PathBuf),
    /// A folder of the machine with everything that is mounted in it.
    BindAll(PathBuf),
}

/// The mounts, in order. The new `/sys` belongs to the new network, so it has to show the machine's cgroups again.
fn mounts(spec: &DaemonSpec, program: &Path) -> Vec<(&'static str, Mount)> {
    vec![
        ("/proc", Mount::New("proc")),
        ("/sys", Mount::New("sysfs")),
        ("/sys/fs/cgroup", Mount::BindAll("/sys/fs/cgroup".into())),
        ("/dev", Mount::BindAll("/dev".into())),
        ("/run", Mount::New("tmpfs")),
        ("/tmp", Mount::New("tmpfs")),
        (HOME, Mount::Bind(spec.folder.clone())),
        ("/images", Mount::Bind(spec.images.clone())),
        ("/var/lib/docker", Mount::Bind(spec.folder.join("data"))), // Docker cannot work on an overlay
        ("/runtime", Mount::Bind(program.to_path_buf())),
    ]
}

/// Makes the root file system and enters it.
fn enter_root(spec: &DaemonSpec) -> Result<()> {
    let scratch = spec.folder.join("scratch");
    tmpfs(&scratch)?;
    let [root, upper, work] = ["root", "upper", "work"].map(|name| scratch.join(name));
    for folder in [&root, &upper, &work, &spec.folder.join("data")] {
        fs::create_dir_all(folder)?;
    }
    let options = format!("lowerdir={},upperdir={},workdir={}", spec.root.display(), upper.display(), work.display());
    mount("overlay", &root, "overlay", MountFlags::empty(), &*c_string(&options)?)
        .context("could not mount an overlay on the root file system of Docker")?;
    let program = std::env::current_exe()?;
    for (place, what) in mounts(spec, &program) {
        let target = root.join(place.trim_start_matches('/'));
        match &what {
            Mount::Bind(source) if source.is_file() => drop(File::create(&target)?),
            _ => fs::create_dir_all(&target)?,
        }
        let done = match &what {
            Mount::New(kind) => mount(*kind, &target, *kind, MountFlags::empty(), None),
            Mount::Bind(source) => mount_bind(source, &target),
            Mount::BindAll(source) => mount_bind_recursive(source, &target),
        };
        done.with_context(|| format!("could not mount {what:?} on {}", target.display()))?;
    }
    fs::create_dir_all(root.join("lib/modules"))?; // kind mounts it in its nodes
    fs::create_dir_all(root.join("usr/local/sbin"))?;
    symlink("/runtime", root.join("usr/local/sbin").join(runc::NAME))?;
    fs::write(root.join("etc/resolv.conf"), "")?;

    std::env::set_current_dir(&root)?;
    pivot_root(".", ".").context("could not enter the root file system of Docker")?;
    unmount(".", UnmountFlags::DETACH).context("could not leave the root file system of the machine")?;
    std::env::set_current_dir("/")?;
    Ok(())
}

/// The configuration of the daemon.
fn configuration(cgroup: &str) -> Value {
    json!({
        "hosts": [format!("unix://{HOME}/{SOCKET}")],
        "data-root": "/var/lib/docker",
        "exec-root": "/run/docker",
        "pidfile": "/run/docker.pid",
        "cgroup-parent": format!("/{cgroup}"),
        "storage-driver": "overlay2",
        "userland-proxy": false,
        "default-runtime": "bounded",
        "runtimes": {"bounded": {"path": format!("/usr/local/sbin/{}", runc::NAME)}},
    })
}

fn start() -> Result<Child> {
    let spec = DaemonSpec::read(Path::new(HOME))?;
    let file = "/run/daemon.json";
    fs::write(file, configuration(&spec.cgroup).to_string())?;
    let log = File::create(Path::new(HOME).join(LOG))?;
    let mut daemon = bare("dockerd");
    daemon.arg("--config-file").arg(file).env("PATH", "/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin");
    daemon.env(MEMBER_OF, &spec.folder).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    daemon.spawn().context("could not start dockerd")
}

/// Forwards connections to a port of this machine to a port of the container with this first process, until that ends.
pub(super) fn forward(pid: i32, from: u16, to: u16) -> Result<()> {
    let _ = rustix::process::setsid(); // fails only if this process already leads a session
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, from))
        .with_context(|| format!("could not listen on port {from}: does another program use it?"))?;
    network_namespace::enter(pid)?;
    forwarder::forward(listener, to);
    while Path::new(&format!("/proc/{pid}")).exists() {
        thread::sleep(Duration::from_millis(500));
    }
    Ok(())
}

/// A command that runs this crate's supervisor for a purpose of its own, in the background.
pub(crate) fn background(program: &Path, folder: &Path, log: &Path) -> Result<Command> {
    require("unshare", "util-linux")?;
    let output = File::create(log).with_context(|| format!("could not create {}", log.display()))?;
    let mut command = bare(program);
    command.env(MEMBER_OF, folder).current_dir("/").stdin(Stdio::null());
    command.stdout(output.try_clone()?).stderr(output);
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> DaemonSpec {
        DaemonSpec {
            folder: "/state/.kind".into(),
            root: "/cache/root".into(),
            images: "/cache/images".into(),
            cgroup: "operators-kind-1".into(),
            idle: Duration::from_mins(5),
        }
    }

    #[test]
    fn cgroups_of_the_machine_are_mounted_after_the_new_sys() {
        let mounts = mounts(&spec(), Path::new("/target/supervisor"));
        let place = |wanted: &str| mounts.iter().position(|(place, _)| *place == wanted).unwrap();
        assert!(place("/sys") < place("/sys/fs/cgroup"));
        assert!(mounts.iter().all(|(place, _)| !place.starts_with("/operators/")), "the folder is emptied in the end");
        assert_eq!(mounts[place("/sys")].1, Mount::New("sysfs"), "that of the machine would show its network");
        assert_eq!(mounts[place("/var/lib/docker")].1, Mount::Bind("/state/.kind/data".into()));
    }

    #[test]
    fn daemon_listens_on_a_socket_of_its_folder_alone_and_keeps_to_its_cgroup() {
        let configuration = configuration(&spec().cgroup);
        assert_eq!(configuration["hosts"], json!(["unix:///operators/docker.sock"]));
        assert_eq!(configuration["cgroup-parent"], "/operators-kind-1");
        assert_eq!(configuration["runtimes"]["bounded"]["path"], "/usr/local/sbin/runc-within-bounds");
    }

    #[test]
    fn daemon_that_has_ended_leaves_nothing_but_the_logs_of_a_failure() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join(".kind");
        let left = |folder: &Path| {
            let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        fs::create_dir_all(folder.join("data")).unwrap();
        for file in [LOG, START_LOG, "daemon.json"] {
            fs::write(folder.join(file), "").unwrap();
        }
        let other_call = Lock::try_acquire(&lock(&folder)).unwrap().unwrap();
        clear(&folder, "operators-kind-of-a-test", false).unwrap();
        assert_eq!(left(&folder).len(), 4, "the holder of the lock uses them");
        drop(other_call);
        clear(&folder, "operators-kind-of-a-test", true).unwrap();
        assert_eq!(left(&folder), [LOG, START_LOG]);
        clear(&folder, "operators-kind-of-a-test", false).unwrap();
        assert!(left(root.path()).is_empty(), "also after the idle time");
    }

    #[test]
    fn lock_of_the_daemon_outlives_its_folder() {
        assert_eq!(lock(Path::new("/state/.kind")), Path::new("/state/.kind.lock"));
    }

    #[test]
    fn spec_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let written = DaemonSpec { folder: folder.path().to_path_buf(), ..spec() };
        written.write().unwrap();
        assert_eq!(DaemonSpec::read(folder.path()).unwrap(), written);
    }
}
