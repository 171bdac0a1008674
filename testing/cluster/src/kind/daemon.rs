//! Builds, starts and stops the Docker of this repository: see [`docker`](crate::supervisor::docker) for the daemon itself.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use super::engine::path_with;
use super::steps::{Steps, finish};
use super::{debian, node_image};
use crate::layout::{self, Layout};
use crate::missing::{Missing, last_line};
use crate::progress::{self, Event, Progress};
use crate::spec::Nodes;
use crate::supervisor::docker::{self, DaemonSpec};
use crate::tools::{self, Lock, Tool, Tools, hex};
use crate::{cgroups, prerequisites, remove, supervisor_program};

/// How long another call may take to build everything.
const PATIENCE: Duration = Duration::from_hours(1);
/// How long the daemon runs without containers.
const IDLE: Duration = Duration::from_mins(5);
/// How long the daemon may take for an answer. One that is frozen never answers.
const ANSWER: Duration = Duration::from_secs(30);

/// The daemon of this user. All clusters of kind share it.
#[derive(Debug)]
pub(super) struct Daemon {
    folder: PathBuf,
    /// The folder with the command `docker`.
    programs: PathBuf,
}

/// The files from which the daemon and the nodes are made, in the cache.
struct Parts {
    engine: PathBuf,
    debian: PathBuf,
    node: PathBuf,
    /// The name of the node image.
    image: String,
}

impl Parts {
    fn of(version: &str, programs: &[Tool]) -> Result<Self> {
        let cache = tools::cache().with_file_name("kind");
        let key = |text: String| hex(&Sha256::digest(text)[..4]);
        let node = tools::pins_key(programs, &node_image::inputs())?;
        Ok(Self {
            engine: cache.join(format!("docker-{}", key(format!("{:?}", debian::ENGINE)))),
            debian: cache.join(format!("debian-{}.tar", key(format!("{:?}", debian::NODE)))),
            node: cache.join(format!("node-{node}.tar")),
            image: format!("localhost/operators/kind-node:{version}-{node}"),
        })
    }
}

impl Daemon {
    /// The daemon, with the node image of this Kubernetes loaded. Returns the name of that image. Builds what is missing, and starts
    /// the daemon.
    pub(super) fn ready(kubernetes: Tool, progress: Progress<'_>) -> Result<(Self, String)> {
        prerequisites::check(Nodes::Real, &Layout::at(folder()))?;
        let programs = node_image::tools(kubernetes);
        let tools = Tools::locate_or_build(&programs, progress)?;
        let store = images::default_store()?;
        images::ensure_fixtures(&store, &mut |text| progress(Event::Note(text)))
            .map_err(|error| Missing(format!("could not build the images for the nodes of kind: {error:#}")))?;

        let what = "preparing Docker for kind";
        let _lock = Lock::acquire(&docker::lock(&folder()), what, PATIENCE, progress)?;
        let version = tools::kubernetes_version_of(kubernetes)?;
        let parts = Parts::of(&version, &programs)?;
        let running = Self::running();
        let has_image = running.as_ref().is_some_and(|daemon| daemon.has(&parts.image));
        let missing =
            [!parts.engine.is_dir(), !parts.debian.is_file(), !parts.node.is_file(), running.is_none(), !has_image];
        let mut steps = Steps::new(missing.iter().filter(|missing| **missing).count(), progress);
        fs::create_dir_all(parts.engine.with_file_name(""))?;
        if !parts.engine.is_dir() {
            steps.next("unpacking Docker from Debian packages", |tick| unpack_docker(&parts.engine, tick))?;
        }
        if !parts.debian.is_file() {
            let make = |partial: &Path, log: &Path, tick: &dyn Fn()| debian::NODE.make(partial, log, tick);
            steps.next("making a Debian root file system for nodes", |tick| in_cache(&parts.debian, tick, make))?;
        }
        if !parts.node.is_file() {
            steps.next("building the node image of kind", |tick| {
                in_cache(&parts.node, tick, |partial, log, tick| {
                    let work = log.with_extension("work");
                    node_image::build(&tools, &version, &parts.debian, &work, partial, tick)
                })
            })?;
        }
        let daemon = match running {
            Some(daemon) => daemon,
            None => steps.next("starting Docker in namespaces of its own", |tick| Self::start(&parts, &store, tick))?,
        };
        if !has_image {
            steps.next("loading the node image of kind", |tick| daemon.import(&parts, tick))?;
        }
        Ok((daemon, parts.image))
    }

    /// The daemon, if it answers.
    pub(super) fn running() -> Option<Self> {
        let spec = DaemonSpec::read(&folder()).ok()?;
        let daemon = Self { folder: folder(), programs: spec.root.with_file_name("bin") };
        daemon.answers().then_some(daemon)
    }

    fn start(parts: &Parts, store: &Path, tick: &dyn Fn()) -> Result<Self> {
        let folder = folder();
        clean(&folder)?; // a crash may have left processes and files
        fs::create_dir_all(&folder).with_context(|| format!("could not create {}", folder.display()))?;
        let spec = DaemonSpec {
            folder: folder.clone(),
            root: parts.engine.join("files"),
            images: store.to_path_buf(),
            cgroup: cgroup(&folder),
            idle: IDLE,
        };
        spec.write()?;
        let log = folder.join(docker::START_LOG);
        let mut child = docker::background(&supervisor_program::locate()?, &folder, &log)?
            .arg("docker")
            .arg(&folder)
            .spawn()
            .context("could not start the supervisor of Docker")?;
        let daemon = Self { folder, programs: parts.engine.join("bin") };
        let begun = Instant::now();
        while !daemon.answers() {
            let words = |file: &Path| last_line(&fs::read(file).unwrap_or_default());
            if let Some(status) = child.try_wait()? {
                bail!("Docker did not start ({status}): {}; {}", words(&log), words(&daemon.folder.join(docker::LOG)));
            }
            if begun.elapsed() > Duration::from_mins(2) {
                bail!("Docker does not answer: see {}", daemon.folder.join(docker::LOG).display());
            }
            std::thread::sleep(Duration::from_millis(200));
            tick();
        }
        Ok(daemon)
    }

    /// The variables with which `docker` and kind use this daemon.
    pub(super) fn environment(&self) -> Vec<(&'static str, OsString)> {
        vec![
            ("DOCKER_HOST", format!("unix://{}", self.folder.join(docker::SOCKET).display()).into()),
            ("DOCKER_CONFIG", self.folder.join("config").into()),
            ("PATH", path_with(self.programs.clone())),
        ]
    }

    fn docker(&self) -> Command {
        let mut docker = Command::new(self.programs.join("docker"));
        docker.envs(self.environment()).stdin(Stdio::null());
        docker
    }

    fn answers(&self) -> bool {
        let is_there = self.folder.join(docker::SOCKET).exists();
        is_there && succeeds_within(self.docker().args(["version", "--format={{.Server.Version}}"]), ANSWER)
    }

    fn has(&self, image: &str) -> bool {
        succeeds(self.docker().args(["image", "inspect", image]))
    }

    fn import(&self, parts: &Parts, tick: &dyn Fn()) -> Result<()> {
        let entrypoint = serde_json::to_string(&node_image::ENTRYPOINT)?;
        let mut import = self.docker();
        import.args(["import", "--change", &format!("ENTRYPOINT {entrypoint}"), "--change", "ENV container=docker"]);
        finish(import.arg(&parts.node).arg(&parts.image), &self.folder.join("import.log"), tick)
    }
}

/// Ends the daemon and removes everything that belongs to it, also after a crash. Returns `false` if it answers and `is_used`; then it
/// stays.
pub(super) fn stop_unless(is_used: impl FnOnce(&Daemon) -> Result<bool>) -> Result<bool> {
    stop_in(&folder(), || Daemon::running().map_or(Ok(false), |daemon| is_used(&daemon)))
}

/// The same for the daemon in this folder. Looks at it under its lock, when no other call starts or stops it.
fn stop_in(folder: &Path, is_used: impl FnOnce() -> Result<bool>) -> Result<bool> {
    let file = docker::lock(folder);
    if !folder.is_dir() && !file.exists() && cgroups::existing(&cgroup(folder)).is_empty() {
        return Ok(true);
    }
    let lock = Lock::acquire(&file, "preparing Docker for kind", PATIENCE, &progress::quiet)?;
    if is_used()? {
        return Ok(false);
    }
    clean(folder)?;
    lock.remove();
    Ok(true)
}

fn clean(folder: &Path) -> Result<()> {
    remove::end_processes(folder)?;
    cgroups::remove(&cgroup(folder))?;
    if folder.is_dir() {
        fs::remove_dir_all(folder).with_context(|| format!("could not remove {}", folder.display()))?;
    }
    Ok(())
}

/// The folder of the daemon. Its name cannot be that of a cluster.
fn folder() -> PathBuf {
    layout::root().join(".kind")
}

/// The name of the cgroup, unique to the folder.
fn cgroup(folder: &Path) -> String {
    format!("operators-kind-{}", hex(&Sha256::digest(folder.as_os_str().as_encoded_bytes())[..4]))
}

fn succeeds(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Like [`succeeds`]. Ends a command that takes longer.
fn succeeds_within(command: &mut Command, limit: Duration) -> bool {
    let Ok(mut child) = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() else { return false };
    let begun = Instant::now();
    while begun.elapsed() < limit {
        if let Ok(Some(status)) = child.try_wait() {
            return status.success();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = child.kill(); // it may have ended meanwhile
    let _ = child.wait();
    false
}

fn unpack_docker(target: &Path, tick: &dyn Fn()) -> Result<()> {
    in_cache(target, tick, |partial, log, tick| {
        let (root, programs) = (partial.join("files"), partial.join("bin"));
        fs::create_dir_all(&programs)?;
        debian::ENGINE.make(&root, log, tick)?;
        debian::link_iptables(&root)?;
        Ok(std::os::unix::fs::symlink("../files/usr/bin/docker", programs.join("docker"))?)
    })
}

/// Makes a file or a folder of the cache, which appears only when it is complete. `make` gets its preliminary name and that of a
/// log.
fn in_cache(target: &Path, tick: &dyn Fn(), make: impl FnOnce(&Path, &Path, &dyn Fn()) -> Result<()>) -> Result<()> {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    // mmdebstrap recognises an archive by the end of the name.
    let (partial, log) = (target.with_file_name(format!("partial-{name}")), target.with_extension("log"));
    let work = log.with_extension("work");
    for left in [&partial, &work] {
        remove_any(left)?;
    }
    fs::create_dir_all(&work)?;
    make(&partial, &log, tick)?;
    remove_any(&work)?;
    remove_any(&log)?;
    fs::rename(&partial, target).with_context(|| format!("could not create {}", target.display()))
}

fn remove_any(path: &Path) -> Result<()> {
    let done = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match done {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("could not remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_of_the_cache_appears_only_when_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("debian-1.tar");
        let broken = in_cache(&target, &|| {}, |partial, _, _| {
            fs::write(partial, "half")?;
            bail!("no room")
        });
        assert_eq!(broken.unwrap_err().to_string(), "no room");
        assert!(!target.exists());
        in_cache(&target, &|| {}, |partial, _, _| {
            assert!(!partial.exists() && partial.to_string_lossy().ends_with(".tar"));
            Ok(fs::write(partial, "whole")?)
        })
        .unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "whole");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn folder_of_the_daemon_is_not_a_cluster() {
        assert!(Layout::of(".kind").is_err());
    }

    #[test]
    fn daemon_that_does_not_answer_is_removed_and_a_used_one_stays() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join(".kind");
        let entries = || fs::read_dir(root.path()).unwrap().count();
        assert!(stop_in(&folder, || bail!("there is nothing to look at")).unwrap());
        assert_eq!(entries(), 0);
        fs::create_dir_all(folder.join("data/overlay2")).unwrap(); // as after a kill of its supervisor
        assert!(!stop_in(&folder, || Ok(true)).unwrap());
        assert!(folder.join("data/overlay2").is_dir());
        assert!(stop_in(&folder, || Ok(false)).unwrap());
        assert_eq!(entries(), 0, "its lock goes, too");
    }

    #[test]
    fn frozen_daemon_does_not_block_its_user() {
        let begun = Instant::now();
        assert!(!succeeds_within(Command::new("sleep").arg("60"), Duration::from_millis(50)));
        assert!(begun.elapsed() < Duration::from_secs(30));
        assert!(succeeds_within(&mut Command::new("true"), Duration::from_secs(30)));
        assert!(!succeeds_within(&mut Command::new("false"), Duration::from_secs(30)));
    }
}
