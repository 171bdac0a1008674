//! Snapshots of a cluster's store and their restore, as an administrator does it with backups of etcd.

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

/// A copy of all data that a cluster's etcd had at one moment. It is in the cluster's folder and is removed with the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    name: String,
    folder: PathBuf,
    label: Label,
}

/// The metadata of a snapshot, stored beside the data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Label {
    /// The time of the snapshot, in seconds since 1970.
    taken: u64,
    /// The store's resource version shortly before the snapshot; `None` if the API server did not answer.
    resource_version: Option<u64>,
}

/// How to restore a snapshot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Restore {
    /// Raises the store's revision by this number and marks all lower revisions as compacted, with `etcdutl snapshot restore
    /// --bump-revision … --mark-compacted`. Resource versions then do not go back, and the API server refuses watches from before
    /// the restore as too old; otherwise such watches send nothing. The first use builds `etcdutl`.
    pub bump_revision: Option<u64>,
}

/// The resource versions around a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restored {
    /// The last resource version before the restore; `None` if the API server did not answer.
    pub before: Option<u64>,
    /// The first resource version after the restore.
    pub after: u64,
}

/// How long a part may take to end after SIGTERM. etcd needs milliseconds; an API server with open watches would wait for them
/// for a minute.
const END: Duration = Duration::from_secs(3);
/// How long etcd and the API server may take to be ready again.
const READY: Duration = Duration::from_mins(1);
const ETCD: &str = "etcd";
const API_SERVER: &str = "kube-apiserver";

impl Snapshot {
    /// The name of the snapshot, unique in its cluster.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The copy of etcd's data directory.
    pub fn data(&self) -> PathBuf {
        self.folder.join(ETCD)
    }

    /// The time of the snapshot.
    pub fn taken(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(self.label.taken)
    }

    /// The store's resource version shortly before the snapshot; `None` if the API server did not answer.
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
    /// Copies etcd's data to a snapshot with this name, which must be new in this cluster.
    ///
    /// This pauses etcd for some tenths of a second. So the copy is what a crash at that moment would have left, and contains all
    /// that etcd has acknowledged. Nothing restarts, and no connection ends.
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

    /// Resets the store to the snapshot, and waits until the API server is ready again.
    ///
    /// Resource versions go back too, and the API server uses them a second time, for other changes.
    pub fn restore(&self, snapshot: &Snapshot) -> Result<Restored> {
        self.restore_with(snapshot, &Restore::default(), &progress::quiet)
    }

    /// Like [`restore`](Self::restore), with options.
    ///
    /// The steps are those that Kubernetes documents for administrators. All clients of the API server among the parts end, then
    /// the API server, then etcd, each by SIGTERM. Then etcd's data are replaced. Then etcd, the API server and the other parts
    /// start again. containerd and its pods continue to run. Parts that a test has stopped stay stopped, except etcd and the API
    /// server.
    pub fn restore_with(&self, snapshot: &Snapshot, how: &Restore, progress: Progress<'_>) -> Result<Restored> {
        let (layout, data) = (self.layout()?, self.etcd_data()?);
        if self.is_shared() {
            bail!(
                "other tests use the cluster {}: restore only clusters of `Cluster::fresh` or with your own name",
                self.name()
            );
        }
        if !snapshot.folder.starts_with(layout.snapshots()) {
            let (name, cluster) = (&snapshot.name, self.name());
            bail!(
                "the snapshot {name} is not of the cluster {cluster}: its certificates and service account keys differ"
            );
        }
        let _lock = self.lock(progress)?;
        let tools = match how.bump_revision {
            Some(_) => Some(Tools::locate_or_build(&[Tool::Etcdutl], progress)?),
            None => None,
        };
        let before = self.resource_version().ok();
        let users = self.users_of_the_api_server()?;
        let steps = Steps { of: 5, progress };

        // The copy comes first, beside the old data: if it fails, the cluster still runs.
        let new = data.with_extension("restored");
        steps.run(1, "copying the snapshot", || {
            files::remove(&new)?;
            files::copy(&snapshot.data(), &new)
        })?;
        steps.run(2, "stopping the control plane", || {
            for part in users.iter().rev().map(String::as_str).chain([API_SERVER, ETCD]) {
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

    /// Replaces the restored data with a version of them that has higher revisions.
    fn bump(&self, by: u64, tools: &Tools, data: &Path, new: &Path) -> Result<()> {
        // etcd writes its log at once but its database only from time to time, and etcdutl reads only the database. A clean stop
        // writes the database.
        self.start_etcd()?;
        if !self.terminate_part(ETCD, END)? {
            bail!("etcd did not end within {} s, so its database may lack entries of its log", END.as_secs());
        }
        let member = parts::flags(parts::etcd_member(&self.supervised()?.spec));
        let output = bare(tools.binary("etcdutl")?)
            .args(["snapshot", "restore"])
            .arg(data.join("member/snap/db"))
            .args(["--skip-hash-check", "--mark-compacted"]) // a copied database has no hash
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

    /// Starts etcd and waits until it is healthy. It has then applied its whole log. And an API server that starts without a
    /// running etcd would lose a second.
    fn start_etcd(&self) -> Result<()> {
        self.start_part(ETCD)?;
        let port = self.supervised()?.spec.ports.etcd;
        self.in_network(|| {
            let begun = Instant::now();
            while !is_healthy(port).unwrap_or(false) {
                if begun.elapsed() > READY {
                    bail!("etcd did not start on the restored data: see {}", self.log(ETCD).display());
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            Ok(())
        })
    }

    /// The running parts that cache data of the API server.
    fn users_of_the_api_server(&self) -> Result<Vec<String>> {
        let status = self.status()?;
        let runs = |name: &str| {
            let idle = [PartState::Stopped, PartState::Failed, PartState::Waiting];
            status.parts.iter().any(|part| part.name == name && !idle.contains(&part.state))
        };
        let plans = parts::plans(&self.supervised()?.spec)?;
        Ok(plans
            .into_iter()
            .filter(|plan| plan.begins == Begins::WithApi)
            .map(|plan| plan.name)
            .filter(|it| runs(it))
            .collect())
    }

    fn state_of(&self, part: &str) -> Result<PartState> {
        let status = self.status()?;
        status.parts.iter().find(|it| it.name == part).map(|it| it.state).with_context(|| format!("no part {part}"))
    }

    /// The latest resource version of the store.
    fn resource_version(&self) -> Result<u64> {
        let answer = self.api()?.get("/api/v1/namespaces?limit=1")?.json();
        let version = answer["metadata"]["resourceVersion"].as_str().context("the list has no resource version")?;
        version.parse().with_context(|| format!("{version} is not a number"))
    }

    fn layout(&self) -> Result<Layout> {
        Ok(self.supervised()?.spec.layout())
    }

    /// The path of etcd's data on this machine. With a real node, they are on a private tmpfs, and the path leads through
    /// `/proc`.
    fn etcd_data(&self) -> Result<PathBuf> {
        let ours = self.supervised()?;
        let data = ours.spec.layout().data(ETCD);
        if ours.spec.nodes != Nodes::Real {
            return Ok(data);
        }
        let inside = data.strip_prefix("/").unwrap_or(&data);
        Ok(Path::new("/proc").join(ours.pid.to_string()).join("root").join(inside))
    }

    /// Locks the cluster, so that no other call starts, stops, copies or restores it at the same time.
    fn lock(&self, progress: Progress<'_>) -> Result<Lock> {
        let what = format!("working on the cluster {}", self.name());
        Lock::acquire(&self.layout()?.lock(), &what, Duration::from_mins(5), progress)
    }
}

/// Whether etcd reports that it is healthy. For this it answers a read that needs its whole log.
fn is_healthy(port: u16) -> std::io::Result<bool> {
    let mut etcd = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    etcd.set_read_timeout(Some(Duration::from_secs(10)))?;
    etcd.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    etcd.read_to_string(&mut answer)?;
    Ok(answer.contains(r#""health":"true""#))
}

/// Reports the progress of numbered steps.
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
