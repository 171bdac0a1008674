//! Elections on a real API server. Durations are short, so that many elections fit into a minute.
#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use cluster::{Cluster, Nodes};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Namespace};
use kube::{
    Api, Client,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use leader_election::{Config, Elector, Ended, Health, Leadership, State};
use serde_json::json;
use tokio::{task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;

const PATIENCE: Duration = Duration::from_mins(1);

/// A namespace with its own lease, on a real API server.
struct World {
    cluster: Arc<Cluster>,
    name: String,
    arena: Arena,
}

/// All tokens of a test. Asserts that at most one of them is alive.
#[derive(Clone, Default)]
struct Arena {
    tokens: Arc<Mutex<Vec<Leadership>>>,
}

struct Candidate {
    identity: String,
    stop: CancellationToken,
    state: tokio::sync::watch::Receiver<State>,
    health: Health,
    task: JoinHandle<Ended>,
}

impl World {
    async fn new(start: impl FnOnce() -> anyhow::Result<Cluster> + Send + 'static) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        drop(rustls::crypto::ring::default_provider().install_default());
        let cluster = tokio::task::spawn_blocking(move || cluster::or_skip(start())).await.unwrap()?;
        let name = format!("lease-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let world = Self { cluster: Arc::new(cluster), name, arena: Arena::default() };
        let namespaces: Api<Namespace> = Api::all(world.client().await);
        let metadata = ObjectMeta { name: Some(world.name.clone()), ..ObjectMeta::default() };
        namespaces.create(&PostParams::default(), &Namespace { metadata, ..Namespace::default() }).await.unwrap();
        Some(world)
    }

    async fn client(&self) -> Client {
        let kubeconfig = Kubeconfig::read_from(self.cluster.kubeconfig()).unwrap();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        leader_election::client(config, Duration::from_millis(1_200)).unwrap()
    }

    async fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client().await, &self.name)
    }

    /// Starts a replica whose work continues for this time after the end of the leadership or after `stop`.
    async fn start(&self, work_goes_on: Duration) -> Candidate {
        let config = Config {
            lease_duration: Duration::from_secs(2),
            renew_deadline: Duration::from_millis(1_200),
            retry_period: Duration::from_millis(300),
            ..Config::new(&*self.name, "manager")
        };
        let identity = config.identity.clone();
        let elector = Elector::new(self.client().await, config).unwrap();
        let (state, health, stop) = (elector.state(), elector.health(), CancellationToken::new());
        let (arena, stopped) = (self.arena.clone(), stop.clone());
        let work = move |leadership: Leadership| {
            arena.enter(&leadership);
            let stopped = stopped.clone();
            async move {
                tokio::select! {
                    () = leadership.lost() => {}
                    () = stopped.cancelled() => {}
                }
                tokio::time::sleep(work_goes_on).await;
            }
        };
        Candidate { identity, state, health, task: tokio::spawn(elector.run(stop.clone(), work)), stop }
    }

    async fn end(self) {
        let namespaces: Api<Namespace> = Api::all(self.client().await);
        drop(namespaces.delete(&self.name, &DeleteParams::default()).await);
    }
}

impl Arena {
    fn enter(&self, token: &Leadership) {
        let mut tokens = self.tokens.lock().unwrap();
        tokens.retain(Leadership::is_alive);
        tokens.push(token.clone());
        let alive: Vec<_> = tokens.iter().filter(|token| token.is_alive()).collect();
        assert!(alive.len() <= 1, "two tokens are alive: {alive:?}");
    }
}

impl Candidate {
    async fn until_leading(&mut self) -> Leadership {
        let leads = self.state.wait_for(|state| matches!(state, State::Leading(_)));
        match &*timeout(PATIENCE, leads).await.unwrap().unwrap() {
            State::Leading(token) => token.clone(),
            State::Standby => unreachable!("`wait_for` excludes it"),
        }
    }

    /// Stops it and waits for its end.
    async fn stop(self) {
        self.stop.cancel();
        assert_eq!(timeout(PATIENCE, self.task).await.unwrap().unwrap(), Ended::Stopped);
    }

    /// Kills it, like `kill -KILL`.
    async fn kill(self) {
        self.task.abort();
        drop(self.task.await);
    }

    /// Waits until it stands by and watches the lease.
    async fn until_standing_by(&self) {
        timeout(PATIENCE, async {
            while !self.health.describe().contains(" leads") {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await
        .unwrap();
        tokio::time::sleep(Duration::from_millis(500)).await; // for its watch to begin
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn release_hands_over_at_once_and_crash_after_lease_duration() {
    let Some(world) = World::new(|| Cluster::shared(Nodes::None)).await else { return };
    let mut leader = world.start(Duration::ZERO).await;
    leader.until_leading().await;
    let (mut clean, mut crashed, mut before, mut more) = (Vec::new(), Vec::new(), 0, 0);
    for round in 0..24 {
        let mut next = world.start(Duration::ZERO).await;
        next.until_standing_by().await;
        let begin = Instant::now();
        let crash = round % 3 == 2;
        if crash {
            leader.kill().await;
        } else {
            leader.stop().await;
        }
        let token = next.until_leading().await;
        let transitions = token.epoch().transitions;
        assert!(transitions > before, "{transitions} after {before}");
        more += transitions - before - 1;
        before = transitions;
        if crash { &mut crashed } else { &mut clean }.push(begin.elapsed());
        leader = next;
    }
    clean.sort();
    crashed.sort();
    eprintln!("after a release: {clean:?}");
    eprintln!("after a crash: {crashed:?}");
    assert!(clean[clean.len() / 2] < Duration::from_millis(500), "{clean:?}");
    assert!(*clean.last().unwrap() < Duration::from_secs(1), "{clean:?}");
    assert!(more < 3, "{more} terms too many: only a machine that pauses may cause one");
    // Lease duration, retry period with jitter, and one second for a loaded machine.
    assert!(*crashed.last().unwrap() < Duration::from_millis(2_000 + 660 + 1_000), "{crashed:?}");
    leader.stop().await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn l6_successor_leads_only_after_the_work_has_ended() {
    let Some(world) = World::new(|| Cluster::shared(Nodes::None)).await else { return };
    let mut leader = world.start(Duration::from_secs(3)).await;
    let token = leader.until_leading().await;
    let mut next = world.start(Duration::ZERO).await;
    next.until_standing_by().await;
    leader.stop.cancel();
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert!(token.is_alive(), "alive for longer than the lease duration, because it keeps renewing");
    next.until_leading().await;
    assert!(!token.is_alive());
    leader.stop().await;
    next.stop().await;
    let lease = world.leases().await.get("manager").await.unwrap();
    assert_eq!(lease.spec.unwrap().holder_identity.unwrap_or_default(), "");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn l5_edited_or_deleted_lease_is_acquired_again() {
    let Some(world) = World::new(|| Cluster::shared(Nodes::None)).await else { return };
    let leases = world.leases().await;
    let edits = [
        Some((json!({"metadata": {"annotations": {"note": "1"}}}), true)),
        Some((json!({"spec": {"leaseDurationSeconds": 1, "leaseTransitions": 0}}), true)),
        Some((json!({"spec": {"holderIdentity": "garbage"}}), false)),
        Some((json!({"spec": {"holderIdentity": null, "renewTime": null}}), false)),
        Some((json!({"spec": null}), false)),
        None,
    ];
    let mut candidates = [world.start(Duration::ZERO).await, world.start(Duration::ZERO).await];
    for edit in edits {
        let token = first_to_lead(&mut candidates).await;
        let stays = if let Some((patch, stays)) = &edit {
            leases.patch("manager", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
            *stays
        } else {
            leases.delete("manager", &DeleteParams::default()).await.unwrap();
            false
        };
        if stays {
            tokio::time::sleep(Duration::from_millis(1_500)).await;
            assert!(token.is_alive(), "{edit:?}");
        } else {
            timeout(PATIENCE, token.lost()).await.unwrap();
            let next = first_to_lead(&mut candidates).await;
            let (before, after) = (token.epoch(), next.epoch());
            assert!(before.lease_uid != after.lease_uid || before.transitions < after.transitions, "{edit:?}");
        }
    }
    for candidate in candidates {
        candidate.stop().await;
    }
    world.end().await;
}

async fn first_to_lead(candidates: &mut [Candidate; 2]) -> Leadership {
    let [one, other] = candidates;
    loop {
        let token = tokio::select! {
            token = one.until_leading() => token,
            token = other.until_leading() => token,
        };
        if token.is_alive() {
            return token;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn l1_hanging_api_server_kills_the_token_but_not_the_elector() {
    let Some(world) = World::new(|| Cluster::fresh(Nodes::None)).await else { return };
    let mut leader = world.start(Duration::ZERO).await;
    let token = leader.until_leading().await;
    let standby = world.start(Duration::ZERO).await;
    standby.until_standing_by().await;
    let pause = |pauses: bool| {
        let cluster = world.cluster.clone();
        tokio::task::spawn_blocking(move || {
            if pauses { cluster.pause_part("kube-apiserver") } else { cluster.resume_part("kube-apiserver") }.unwrap();
        })
    };
    pause(true).await.unwrap();
    let begin = Instant::now();
    timeout(PATIENCE, token.lost()).await.unwrap();
    eprintln!("dead {:?} after the API server hung", begin.elapsed());
    assert!(begin.elapsed() < Duration::from_millis(1_300));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!((leader.health.check(), standby.health.check()), (Ok(()), Ok(())));
    pause(false).await.unwrap();
    let mut candidates = [leader, standby];
    let next = first_to_lead(&mut candidates).await;
    assert!(next.epoch().transitions > token.epoch().transitions);
    assert!(!token.is_alive());
    for candidate in candidates {
        eprintln!("{}: {}", candidate.identity, candidate.health.describe());
        candidate.stop().await;
    }
}
