//! Who may write: everybody where there is no election, else only the leader, and only while the token is alive.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leader_election::{Config, Leadership, Loss, Observer};

use workloads::Fence;

use crate::{
    events::{EventType, Note, Recorder, Reference},
    metrics::Metrics,
    object::ObjectKey,
    settings::Settings,
};

/// The namespace of the pod, as every pod with a service account finds it.
const POD_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// The right to write, asked as the last step before a write is sent. A clone is the same right.
#[derive(Debug, Clone, Default)]
pub(crate) struct Leading {
    /// `None` where there is no election.
    tenure: Option<Arc<Mutex<Tenure>>>,
}

#[derive(Debug, Default)]
struct Tenure {
    /// `None` before the first.
    token: Option<Leadership>,
    /// How often this process has become leader.
    terms: u64,
}

impl Leading {
    /// Nobody may write before [`Leading::begin`].
    pub(crate) fn elected() -> Self {
        Self { tenure: Some(Arc::default()) }
    }

    /// From now on this leadership decides.
    pub(crate) fn begin(&self, leadership: Leadership) {
        if let Some(mut tenure) = self.tenure() {
            tenure.token = Some(leadership);
            tenure.terms += 1;
        }
    }

    /// Whether a write may be sent at this moment. A token that has died never comes back to life.
    pub(crate) fn may_write(&self) -> bool {
        self.tenure().is_none_or(|tenure| tenure.token.as_ref().is_some_and(Leadership::is_alive))
    }

    /// What a status that holds memory says about its writer; `None` where there is no election.
    pub(crate) fn fence(&self) -> Option<Fence> {
        let tenure = self.tenure()?;
        let epoch = tenure.token.as_ref()?.epoch();
        Some(Fence { lease: epoch.lease_uid.to_string(), epoch: epoch.transitions.into() })
    }

    /// Something that holds memory was written under this fence. If that is a later term of our lease, then ours is over: another
    /// process leads, or the lease was restored from a backup and its terms are counted again.
    pub(crate) fn witness(&self, written: &Fence) {
        let Some(tenure) = self.tenure() else { return };
        let Some(token) = tenure.token.as_ref().filter(|token| *token.epoch().lease_uid == *written.lease) else {
            return;
        };
        token.witness(u32::try_from(written.epoch).unwrap_or_default());
    }

    /// How often others may have written before this process did: grows when it becomes leader, and stays 0 where there is
    /// no election.
    pub(crate) fn term(&self) -> u64 {
        self.tenure().map_or(0, |tenure| tenure.terms)
    }

    fn tenure(&self) -> Option<MutexGuard<'_, Tenure>> {
        Some(self.tenure.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The namespace that this process runs in; `None` outside of a cluster.
pub(crate) fn pod_namespace() -> Option<String> {
    std::fs::read_to_string(POD_NAMESPACE).ok().map(|text| text.trim().to_owned())
}

/// The election that the flags ask for, if any; or why it cannot be held.
pub(crate) fn election(settings: &Settings) -> Result<Option<Config>, String> {
    if !settings.leader_elect {
        return Ok(None);
    }
    let namespace = settings.leader_election_namespace.clone().or_else(pod_namespace).ok_or_else(|| {
        "--leader-elect outside of a cluster: say where the lease is with --leader-election-namespace".to_owned()
    })?;
    let config = Config {
        lease_duration: settings.leader_elect_lease_duration,
        renew_deadline: settings.leader_elect_renew_deadline,
        retry_period: settings.leader_elect_retry_period,
        ..Config::new(namespace, settings.leader_election_id.clone())
    };
    config.validate().map_err(|error| format!("--leader-elect: {error}"))?;
    Ok(Some(config))
}

/// Tells people and Prometheus about the election.
pub(crate) struct Tell {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) recorder: Recorder,
    pub(crate) config: Config,
}

impl Observer for Tell {
    fn started_leading(&self, leadership: &Leadership) {
        self.metrics.leader_status.with_label_values(&[&self.config.name]).set(1);
        self.event(leadership, "became leader");
    }

    fn stopped_leading(&self, leadership: &Leadership, _: Loss) {
        self.metrics.leader_status.with_label_values(&[&self.config.name]).set(0);
        self.event(leadership, "stopped leading");
    }

    fn slow_path(&self) {
        self.metrics.leader_slowpath.with_label_values(&[&self.config.name]).inc();
    }
}

impl Tell {
    fn event(&self, leadership: &Leadership, what: &str) {
        let lease = Reference {
            api_version: "coordination.k8s.io/v1".to_owned(),
            kind: "Lease".to_owned(),
            key: ObjectKey::new(&*self.config.namespace, &*self.config.name),
            uid: leadership.epoch().lease_uid.to_string(),
        };
        let message = format!("{} {what}", self.config.identity);
        let note = Note { type_: EventType::Normal, reason: "LeaderElection".into(), message, related: None };
        self.recorder.post("controller-manager", lease, note);
    }
}
