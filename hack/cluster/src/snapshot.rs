//! Copies of a cluster's store, and the way back to one: what an administrator does with a backup of etcd.

mod files;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::cluster::Cluster;
use crate::layout::{Layout, check_name};
use crate::missing::{bare, last_line};
use crate::parts::{self, Begins};
use crate::progress::{Event, Progress};
use crate::protocol::PartState;
use crate::spec::Nodes;
use crate::tools::{Lock, Tool, Tools};
use crate::{progress, start};

/// A copy of all that a cluster's etcd held at one moment. It is in the cluster's folder, and goes with the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    name: String,
    folder: PathBuf,
    label: Label,
}

/// What is written beside the data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Label {
    /// Seconds since 1970.
    taken: u64,
    /// The store's resource version shortly before; none if the API server did not answer.
    resource_version: Option<u64>,
}

/// How a snapshot is restored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Restore {
    /// Raises the store's revision by so much, and marks everything below as compacted: `etcdutl snapshot restore
    /// --bump-revision … --mark-compacted`. Resource versions then do not go back, and a watch from before the restore is
    /// refused as too old instead of being silent. Needs `etcdutl`, which is built the first time.
    pub bump_revision: Option<u64>,
}

/// What a restore has done to resource versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restored {
    /// The last one before the restore; none if the API server did not answer.
    pub before: Option<u64>,
    /// The first one after it.
    pub after: u64,
}

/// How long a part may take to end when it is asked to. etcd needs milliseconds; an API server with open watches would wait
/// a minute for them.
const END: Duration = Duration::from_secs(3);
/// How long they may take to be ready again.
const READY: Duration = Duration::from_mins(1);
const ETCD: &str = "etcd";
const API_SERVER: &str = "kube-apiserver";

impl Snapshot {
    /// Its name, unique in its cluster.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The copy of etcd's data directory.
    pub fn data(&self) -> PathBuf {
        self.folder.join(ETCD)
    }

    /// When it was taken.
    pub fn taken(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(self.label.taken)
    }

    /// The store's resource version shortly before it was taken; none if the API server did not answer.
    pub fn resource_version(&self) -> Option<u64> {
        self.label.resource_version
    }

    fn read(folder: &Path) -> Result<Self> {
        let file = folder.join("snapshot.json");
        let text = fs::read(&file).with_context(|| format!("could not read {}", file.display()))?;
        let label = serde_json::from_slice(&text).with_context(|| format!("{} is damaged", file.display()))?;
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { name, folder: folder.to_path_buf(), label })
    }
}

impl Cluster {
    /// Copies what etcd holds, under a name that no other snapshot of this cluster has.
    ///
    /// etcd is paused for the copy, some tenths of a second, so the copy is what a crash at that moment would have left:
    /// all that etcd has acknowledged is in it. Nothing is restarted, and no connection ends.
    pub fn snapshot(&self, name: &str) -> Result<Snapshot> {
        check_name(name, "snapshot")?;
        let (layout, data) = (self.layout()?, self.etcd_data()?);
        let _lock = self.lock(&progress::quiet)?;
        let folder = layout.snapshots().join(name);
        if folder.exists() {
            let cluster = self.name();
            bail!(
                "the cluster {cluster} has a snapshot {name} already: choose another name, or remove {}",
                folder.display()
            );
        }
        let partial = layout.snapshots().join(format!(".{name}.partial"));
        files::remove(&partial)?;
        let label = Label { taken: start::now().as_secs(), resource_version: self.resource_version().ok() };

        let paused = self.state_of(ETCD)? == PartState::Running;
        if paused {
            self.pause_part(ETCD)?;
        }
        let copied = files::copy(&data, &partial.join(ETCD));
        if paused {
            self.resume_part(ETCD)?;
        }
        copied?;
        let file = partial.join("snapshot.json");
        fs::write(&file, serde_json::to_vec(&label)?).with_context(|| format!("could not write {}", file.display()))?;
        fs::rename(&partial, &folder).with_context(|| format!("could not create {}", folder.display()))?;
        Snapshot::read(&folder)
    }

    /// The snapshots of this cluster, the oldest first.
    pub fn snapshots(&self) -> Result<Vec<Snapshot>> {
        let entries = fs::read_dir(self.layout()?.snapshots()).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'));
        let mut all = folders.map(|entry| Snapshot::read(&entry.path())).collect::<Result<Vec<_>>>()?;
        all.sort_by(|one, other| (one.label.taken, &one.name).cmp(&(other.label.taken, &other.name)));
        Ok(all)
    }

    /// Puts the store back to what it was when the snapshot was taken, and waits until the API server is ready again.
    ///
    /// Resource versions go back with it, and are given a second time to other changes.
    pub fn restore(&self, snapshot: &Snapshot) -> Result<Restored> {
        self.restore_with(snapshot, &Restore::default(), &progress::quiet)
    }

    /// As [`restore`](Self::restore), with options.
    ///
    /// What Kubernetes tells administrators to do: everything that works with the API server ends, then the API server, then
    /// etcd, each by SIGTERM; etcd's data are replaced; etcd, the API server and the others start again. containerd and its
    /// pods live on. Parts that a test has stopped stay stopped, but for etcd and the API server.
    pub fn restore_with(&self, snapshot: &Snapshot, how: &Restore, progress: Progress<'_>) -> Result<Restored> {
        let (layout, data) = (self.layout()?, self.etcd_data()?);
        if self.is_shared() {
            bail!(
                "other tests use the cluster {}: restore one of `Cluster::fresh` or of a name of your own",
                self.name()
            );
        }
        if !snapshot.folder.starts_with(layout.snapshots()) {
            let (name, cluster) = (&snapshot.name, self.name());
            bail!(
                "the snapshot {name} is not of the cluster {cluster}: other certificates, other service account keys"
            );
        }
        let _lock = self.lock(progress)?;
        let tools = match how.bump_revision {
            Some(_) => Some(Tools::locate_or_build(&[Tool::Etcdutl], progress)?),
            None => None,
        };
        let before = self.resource_version().ok();
        let users: Vec<&str> = self.users_of_the_api_server()?;
        let steps = Steps { of: 5, progress };

        // Beside the old data, so that what can fail, fails while the cluster still runs.
        let new = data.with_extension("restored");
        steps.run(1, "copying the snapshot", || {
            files::remove(&new)?;
            files::copy(&snapshot.data(), &new)
        })?;
        steps.run(2, "stopping the control plane", || {
            for part in users.iter().rev().copied().chain([API_SERVER, ETCD]) {
                self.terminate_part(part, END)?;
            }
            Ok(())
        })?;
        steps.run(3, "replacing etcd's data", || {
            files::replace(&data, &new)?;
            match (how.bump_revision, &tools) {
                (Some(by), Some(tools)) => self.bump(by, tools, &data, &new),
                _ => Ok(()),
            }
        })?;
        steps.run(4, "starting etcd and the API server", || {
            self.start_etcd()?;
            self.start_part(API_SERVER)?;
            self.wait_until_ready(READY)
        })?;
        steps.run(5, "starting the rest", || users.iter().try_for_each(|part| self.start_part(part)))?;
        Ok(Restored { before, after: self.resource_version()? })
    }

    /// Makes of the data, which are in place, others with higher revisions.
    fn bump(&self, by: u64, tools: &Tools, data: &Path, new: &Path) -> Result<()> {
        // etcd writes its log at once but its database now and then, and etcdutl reads the database only.
        self.start_etcd()?;
        if !self.terminate_part(ETCD, END)? {
            bail!("etcd did not end in {} s, so its database may lack what its log has", END.as_secs());
        }
        let member = parts::flags(parts::etcd_member(&self.supervised()?.spec));
        let output = bare(tools.binary("etcdutl")?)
            .args(["snapshot", "restore"])
            .arg(data.join("member/snap/db"))
            .args(["--skip-hash-check", "--mark-compacted"]) // a database that was copied has no hash
            .arg(format!("--bump-revision={by}"))
            .arg(format!("--data-dir={}", new.display()))
            .args(member)
            .output()
            .context("could not start etcdutl")?;
        if !output.status.success() {
            bail!("etcdutl snapshot restore: {}", last_line(&output.stderr));
        }
        files::replace(data, new)
    }

    /// Starts etcd and waits until it is healthy: an API server that finds none loses a second, and by then etcd has applied
    /// all that its log has.
    fn start_etcd(&self) -> Result<()> {
        self.start_part(ETCD)?;
        let port = self.supervised()?.spec.ports.etcd;
        let healthy = || -> Result<()> {
            self.enter_network()?;
            let begun = Instant::now();
            while !is_healthy(port).unwrap_or(false) {
                if begun.elapsed() > READY {
                    bail!("etcd did not start on the restored data: see {}", self.log(ETCD).display());
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            Ok(())
        };
        // A thread of its own, since entering a network is for good.
        std::thread::scope(|scope| scope.spawn(healthy).join()).unwrap_or_else(|_| bail!("a thread panicked"))
    }

    /// The parts that hold what they have read of the API server, and run.
    fn users_of_the_api_server(&self) -> Result<Vec<&'static str>> {
        let status = self.status()?;
        let runs = |name: &str| {
            let idle = [PartState::Stopped, PartState::Failed, PartState::Waiting];
            status.parts.iter().any(|part| part.name == name && !idle.contains(&part.state))
        };
        let plans = parts::plans(&self.supervised()?.spec)?;
        Ok(plans
            .iter()
            .filter(|plan| plan.begins == Begins::WithApi)
            .map(|plan| plan.name)
            .filter(|it| runs(it))
            .collect())
    }

    fn state_of(&self, part: &str) -> Result<PartState> {
        let status = self.status()?;
        status.parts.iter().find(|it| it.name == part).map(|it| it.state).with_context(|| format!("no part {part}"))
    }

    /// The last resource version that was given.
    fn resource_version(&self) -> Result<u64> {
        let answer = self.api()?.get("/api/v1/namespaces?limit=1")?.json();
        let version = answer["metadata"]["resourceVersion"].as_str().context("the list has no resource version")?;
        version.parse().with_context(|| format!("{version} is no number"))
    }

    fn layout(&self) -> Result<Layout> {
        Ok(self.supervised()?.spec.layout())
    }

    /// Where etcd keeps its data, as seen from here: those of a real node are on a tmpfs of its own.
    fn etcd_data(&self) -> Result<PathBuf> {
        let ours = self.supervised()?;
        let data = ours.spec.layout().data(ETCD);
        if ours.spec.nodes != Nodes::Real {
            return Ok(data);
        }
        let inside = data.strip_prefix("/").unwrap_or(&data);
        Ok(Path::new("/proc").join(ours.pid.to_string()).join("root").join(inside))
    }

    /// So that nothing else starts, ends, copies or restores the cluster meanwhile.
    fn lock(&self, progress: Progress<'_>) -> Result<Lock> {
        let what = format!("working on the cluster {}", self.name());
        Lock::acquire(&self.layout()?.lock(), &what, Duration::from_mins(5), progress)
    }
}

/// Whether etcd answers a read that needs all of its log.
fn is_healthy(port: u16) -> std::io::Result<bool> {
    let mut etcd = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    etcd.set_read_timeout(Some(Duration::from_secs(10)))?;
    etcd.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    etcd.read_to_string(&mut answer)?;
    Ok(answer.contains(r#""health":"true""#))
}

/// Tells of one step after the other.
struct Steps<'a> {
    of: usize,
    progress: Progress<'a>,
}

impl Steps<'_> {
    fn run(&self, n: usize, what: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
        let (of, begun) = (self.of, Instant::now());
        (self.progress)(Event::Working { what, n, of, elapsed: Duration::ZERO });
        work().with_context(|| format!("the restore failed while {what}"))?;
        (self.progress)(Event::Done { what, n, of, elapsed: begun.elapsed() });
        Ok(())
    }
}
