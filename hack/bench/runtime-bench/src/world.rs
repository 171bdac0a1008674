//! The cluster around the program: definitions, load, a stand-in for the kubelet, and watches that observe the effects.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use cluster::Cluster;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::{apps::v1::Deployment, batch::v1::Job, coordination::v1::Lease};
use kube::{
    Api, Client, Config, ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
    runtime::{WatchStreamExt, watcher},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::{
    kind::Kind,
    kubelet,
    operator::{Operator, USER},
};

/// A change of one object.
#[derive(Clone, Copy)]
pub(crate) enum Change {
    /// Delete its Deployment.
    Delete,
    /// Change the replicas of its Deployment.
    Edit,
    /// Change the size in its own spec.
    Scale,
}

pub(crate) struct World {
    kind: Kind,
    objects: Api<DynamicObject>,
    deployments: Api<Deployment>,
    leases: Api<Lease>,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    state: Mutex<State>,
    news: Notify,
}

#[derive(Default)]
struct State {
    objects: Readiness,
    deployments: HashMap<String, Form>,
    /// Deployments whose status says that all their pods are ready.
    rollouts: Readiness,
    /// The number of Jobs, by owner.
    jobs: HashMap<String, usize>,
    /// Objects that have completed a run and have none in progress.
    ended: HashSet<String>,
}

/// Which objects are ready.
#[derive(Default)]
struct Readiness {
    by_name: HashMap<String, bool>,
    /// The number of those that are ready: counting 100,000 objects again for each event would take the time of the program.
    ready: usize,
}

/// The fields of a Deployment in which effects are visible.
#[derive(Clone, PartialEq)]
struct Form {
    uid: String,
    generation: i64,
    replicas: i64,
}

const PATIENCE: Duration = Duration::from_mins(10);
const PACE: Duration = Duration::from_millis(30);
/// How many creates are under way at a time.
const CREATES: usize = 4;
/// How often a create is sent while the API server is too busy for it, and the pause before the next attempt.
const ATTEMPTS: u32 = 20;
const AGAIN: Duration = Duration::from_millis(500);
/// The interval between two reports of progress.
const PROGRESS: Duration = Duration::from_secs(10);

impl World {
    pub(crate) async fn prepare(kind: Kind, cluster: &Cluster, program: &Path) -> Result<Self> {
        let client = install(cluster, program).await?;
        let world = Self {
            kind,
            objects: Api::default_namespaced_with(client.clone(), &kind.resource()),
            deployments: Api::default_namespaced(client.clone()),
            leases: Api::default_namespaced(client.clone()),
            seen: Arc::default(),
        };
        tokio::spawn(watch_objects(world.objects.clone(), world.seen.clone()));
        if kind.has_deployment() {
            tokio::spawn(watch_deployments(world.deployments.clone(), world.seen.clone()));
        }
        if kind == Kind::Crontab {
            tokio::spawn(watch_jobs(Api::default_namespaced(client), world.seen.clone()));
        }
        Ok(world)
    }

    /// Creates the objects with these numbers, a few at a time. A `CronTab` runs at `schedule`. Now and then reports how many exist.
    pub(crate) async fn create(&self, indices: Range<usize>, schedule: &str, progress: impl Fn(usize)) -> Result<()> {
        let created = AtomicUsize::new(0);
        let told = Mutex::new(Instant::now());
        futures::stream::iter(indices.map(Ok::<_, anyhow::Error>))
            .try_for_each_concurrent(CREATES, async |index| {
                self.create_one(index, schedule).await?;
                let created = created.fetch_add(1, Ordering::Relaxed) + 1;
                let mut told = told.lock();
                if told.elapsed() >= PROGRESS {
                    *told = Instant::now();
                    progress(created);
                }
                Ok(())
            })
            .await
    }

    async fn create_one(&self, index: usize, schedule: &str) -> Result<()> {
        let name = name(index);
        let mut object = DynamicObject::new(&name, &self.kind.resource());
        object.data = json!({"spec": self.kind.spec(&name, schedule)});
        let mut attempt = 1;
        loop {
            match self.objects.create(&PostParams::default(), &object).await {
                Ok(_) => return Ok(()),
                // The answer to an earlier attempt was lost.
                Err(kube::Error::Api(status)) if status.code == 409 && attempt > 1 => return Ok(()),
                Err(kube::Error::Api(status)) if (400..500).contains(&status.code) && status.code != 429 => {
                    return Err(kube::Error::Api(status).into());
                }
                Err(error) if attempt == ATTEMPTS => return Err(error.into()),
                Err(_) => tokio::time::sleep(AGAIN).await,
            }
            attempt += 1;
        }
    }

    /// Waits until the program holds the lease. Returns the seconds since its start.
    pub(crate) async fn until_leader(&self, operator: &Operator) -> Result<f64> {
        while operator.started.elapsed() < PATIENCE {
            let leases = self.leases.list(&kube::api::ListParams::default()).await?;
            let is_held = |lease: &Lease| {
                lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_ref()).is_some_and(|it| !it.is_empty())
            };
            if leases.iter().any(is_held) {
                return Ok(operator.started.elapsed().as_secs_f64());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        bail!("no process leads")
    }

    /// Waits until all objects are ready, however many they are. Returns the seconds since the program's start.
    pub(crate) async fn until_all_ready(&self, count: usize, operator: &Operator) -> Result<f64> {
        self.follow_ready(count, |ready| eprintln!("ready: {ready} of {count}")).await?;
        Ok(operator.started.elapsed().as_secs_f64())
    }

    pub(crate) async fn until_ready(&self, count: usize) -> Result<()> {
        self.until("all objects are ready", |state| state.objects.ready >= count).await
    }

    /// Waits until `count` objects are ready, however long that takes. Reports their number again and again.
    ///
    /// # Errors
    ///
    /// If no further object becomes ready for a long time.
    pub(crate) async fn follow_ready(&self, count: usize, progress: impl Fn(usize)) -> Result<()> {
        self.follow(count, |state| state.objects.ready, progress).await
    }

    /// Like [`follow_ready`](Self::follow_ready), and waits until the simulated kubelet has written so many statuses too.
    pub(crate) async fn follow_rollouts(&self, count: usize, progress: impl Fn(usize)) -> Result<()> {
        self.follow(count, |state| state.objects.ready.min(state.rollouts.ready), progress).await
    }

    async fn follow(&self, count: usize, counted: impl Fn(&State) -> usize, progress: impl Fn(usize)) -> Result<()> {
        let (mut last, mut told) = ((0, Instant::now()), Instant::now());
        loop {
            let news = self.seen.news.notified();
            let ready = counted(&self.seen.state.lock());
            if ready >= count {
                return Ok(());
            }
            if ready != last.0 {
                last = (ready, Instant::now());
            }
            ensure!(
                last.1.elapsed() < PATIENCE,
                "only {ready} of {count} objects are ready, and no more within {PATIENCE:?}"
            );
            if told.elapsed() >= PROGRESS {
                told = Instant::now();
                progress(ready);
            }
            let _ = tokio::time::timeout(PROGRESS, news).await; // without news, it looks again too
        }
    }

    /// Waits until `count` objects have a Job.
    ///
    /// # Errors
    ///
    /// If an object has two Jobs.
    pub(crate) async fn until_jobs(&self, count: usize) -> Result<()> {
        self.until("all objects have a Job", |state| state.jobs.len() >= count).await?;
        let state = self.seen.state.lock();
        let twice: Vec<&String> = state.jobs.iter().filter(|(_, jobs)| **jobs > 1).map(|(owner, _)| owner).collect();
        ensure!(twice.is_empty(), "more than one Job: {twice:?}");
        Ok(())
    }

    /// Waits until `count` objects report that their run has ended.
    pub(crate) async fn until_ended(&self, count: usize) -> Result<()> {
        self.until("all runs have ended", |state| state.ended.len() >= count).await
    }

    /// Changes the objects with these numbers one after another. Returns the seconds from each request until its effect is observed.
    pub(crate) async fn change(&self, change: Change, indices: impl IntoIterator<Item = usize>) -> Result<Vec<f64>> {
        let mut latencies = Vec::new();
        for index in indices {
            let (name, begun) = (name(index), Instant::now());
            let before = self.form(&name).context("no Deployment")?;
            match change {
                Change::Delete => drop(self.deployments.delete(&name, &DeleteParams::default()).await?),
                Change::Edit => {
                    let patch = Patch::Merge(json!({"spec": {"replicas": before.replicas + 4}}));
                    self.deployments.patch(&name, &PatchParams::default(), &patch).await?;
                }
                Change::Scale => self.resize(&name, before.replicas + 2).await?,
            }
            let is_done = |now: &Form| match change {
                Change::Delete => now.uid != before.uid,
                Change::Edit => now.generation >= before.generation + 2 && now.replicas == before.replicas,
                Change::Scale => now.replicas == before.replicas + 2,
            };
            self.until("a change has its effect", |state| state.deployments.get(&name).is_some_and(is_done)).await?;
            latencies.push(begun.elapsed().as_secs_f64());
            tokio::time::sleep(PACE.saturating_sub(begun.elapsed())).await;
        }
        Ok(latencies)
    }

    /// Ends the leader, then resizes an object. Returns the seconds until the next leader has acted on it.
    pub(crate) async fn hand_over(&self, index: usize, end: impl AsyncFnOnce() -> Result<()>) -> Result<f64> {
        let (name, begun) = (name(index), Instant::now());
        let replicas = self.form(&name).context("no Deployment")?.replicas + 1;
        end().await?;
        self.resize(&name, replicas).await?;
        let is_done = |state: &State| state.deployments.get(&name).is_some_and(|now| now.replicas == replicas);
        self.until("the next leader writes", is_done).await?;
        Ok(begun.elapsed().as_secs_f64())
    }

    /// Resizes an object as soon as the API server accepts that, and waits until the program has acted on it. Right after its start,
    /// an API server may refuse requests.
    pub(crate) async fn until_it_acts(&self, index: usize) -> Result<()> {
        let (name, begun) = (name(index), Instant::now());
        let replicas = self.form(&name).context("no Deployment")?.replicas + 1;
        while let Err(error) = self.resize(&name, replicas).await {
            ensure!(begun.elapsed() < PATIENCE, "the API server refuses a change: {error:#}");
            tokio::time::sleep(AGAIN).await;
        }
        let is_done = |state: &State| state.deployments.get(&name).is_some_and(|now| now.replicas == replicas);
        self.until("the program acts on a change", is_done).await
    }

    async fn resize(&self, name: &str, size: i64) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": {(self.kind.size_field()): size}}));
        self.objects.patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    fn form(&self, name: &str) -> Option<Form> {
        self.seen.state.lock().deployments.get(name).cloned()
    }

    async fn until(&self, what: &str, is_so: impl Fn(&State) -> bool) -> Result<()> {
        let look = async {
            loop {
                let news = self.seen.news.notified();
                if is_so(&self.seen.state.lock()) {
                    return;
                }
                news.await;
            }
        };
        tokio::time::timeout(PATIENCE, look).await.with_context(|| format!("not within {PATIENCE:?}: {what}"))
    }
}

/// Installs the definitions and gives the operator all permissions. Returns a client for the load.
pub(crate) async fn install(cluster: &Cluster, program: &Path) -> Result<Client> {
    let definitions = definitions(program)?;
    let mut kubectl = cluster.kubectl(["apply", "--server-side", "-f", "-"]);
    let mut child = kubectl.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
    std::io::Write::write_all(&mut child.stdin.take().context("no pipe")?, &definitions)?;
    ensure!(child.wait()?.success(), "kubectl could not apply the definitions, see above");
    let bound = cluster
        .kubectl(["create", "clusterrolebinding", "bench", "--clusterrole=cluster-admin", &format!("--user={USER}")])
        .stdout(Stdio::null())
        .status()?;
    ensure!(bound.success(), "the role is not bound");

    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig())?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// The definitions of the program's kinds.
fn definitions(program: &Path) -> Result<Vec<u8>> {
    let printed = Command::new(program).arg("crds").output();
    let printed = printed.with_context(|| format!("could not run {}", program.display()))?;
    let said = String::from_utf8_lossy(&printed.stderr);
    ensure!(printed.status.success(), "`{} crds`: {}: {}", program.display(), printed.status, said.trim_end());
    Ok(printed.stdout)
}

impl Seen {
    fn learn(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.news.notify_one();
    }
}

impl Readiness {
    fn learn(&mut self, name: String, ready: bool) {
        let was_ready = self.by_name.insert(name, ready).unwrap_or_default();
        self.ready = self.ready + usize::from(ready) - usize::from(was_ready);
    }
}

async fn watch_objects(api: Api<DynamicObject>, seen: Arc<Seen>) {
    let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff().applied_objects());
    while let Some(event) = events.next().await {
        let Ok(object) = event else { continue };
        let status = &object.data["status"];
        let conditions = status["conditions"].as_array().map_or(&[][..], Vec::as_slice);
        let is_true = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
        let ready =
            conditions.iter().any(is_true) && status["observedGeneration"].as_i64() == object.metadata.generation;
        let ended = status["lastSuccessfulTime"].is_string() && status["activeJobs"] == 0;
        seen.learn(|state| {
            state.objects.learn(object.name_any(), ready);
            if ended {
                state.ended.insert(object.name_any());
            }
        });
    }
}

async fn watch_jobs(api: Api<Job>, seen: Arc<Seen>) {
    let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff().touched_objects());
    let mut known = HashSet::new();
    while let Some(event) = events.next().await {
        let Ok(job) = event else { continue };
        let owner = job.owner_references().first().map(|owner| owner.name.clone());
        if let Some(owner) = owner.filter(|_| known.insert(job.uid())) {
            seen.learn(|state| *state.jobs.entry(owner).or_default() += 1);
        }
    }
}

/// Also simulates the Deployment controller and the kubelet: Deployments become ready at once.
async fn watch_deployments(api: Api<Deployment>, seen: Arc<Seen>) {
    let mut events =
        std::pin::pin!(watcher(api.clone(), watcher::Config::default()).default_backoff().applied_objects());
    while let Some(event) = events.next().await {
        let Ok(object) = event else { continue };
        let replicas = object.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
        let form = Form {
            uid: object.uid().unwrap_or_default(),
            generation: object.metadata.generation.unwrap_or_default(),
            replicas: replicas.into(),
        };
        let observed = object.status.as_ref().and_then(|status| status.observed_generation);
        let is_rolled_out = observed == object.metadata.generation;
        seen.learn(|state| {
            state.rollouts.learn(object.name_any(), is_rolled_out);
            state.deployments.insert(object.name_any(), form);
        });
        kubelet::roll_out(&api, &object);
    }
}

fn name(index: usize) -> String {
    format!("cr-{index:05}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_that_prints_no_definitions_is_an_error() {
        assert_eq!(definitions(Path::new("echo")).unwrap(), b"crds\n");
        let error = definitions(Path::new("cat")).unwrap_err().to_string(); // there is no file of this name
        assert!(error.starts_with("`cat crds`: ") && error.contains("cat: crds: "), "{error}");
        assert!(definitions(Path::new("/no/such/program")).unwrap_err().to_string().contains("/no/such/program"));
    }

    #[test]
    fn ready_objects_are_counted_once() {
        let mut objects = Readiness::default();
        for (name, ready, expected) in [
            ("a", false, 0),
            ("a", true, 1),
            ("a", true, 1),
            ("b", true, 2),
            ("a", false, 1),
            ("b", true, 1),
            ("b", false, 0),
        ] {
            objects.learn(name.to_owned(), ready);
            assert_eq!(objects.ready, expected, "{name} {ready}");
        }
    }
}
