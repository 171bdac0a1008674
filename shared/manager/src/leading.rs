//! Decides whether this process may write: always if there is no election, else only as the leader, and only while its
//! leadership is alive.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leader_election::{Config, Leadership, Loss, Observer};

use workloads::Fence;

use crate::{
    events::{EventType, Note, Recorder, Reference},
    metrics::Metrics,
    object::ObjectKey,
    settings::Settings,
};

/// The file with the namespace of the pod, which every pod with a service account has.
const POD_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// The right to write, which is checked as the last step before a write is sent. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Leading {
    /// `None` where there is no election.
    tenure: Option<Arc<Mutex<Tenure>>>,
}

#[derive(Debug, Default)]
struct Tenure {
    /// The latest leadership; `None` before the first.
    token: Option<Leadership>,
    /// How often this process has become leader.
    terms: u64,
}

impl Leading {
    /// Returns the right of a process with an election: no writes before [`Leading::begin`].
    pub(crate) fn elected() -> Self {
        Self { tenure: Some(Arc::default()) }
    }

    /// Begins a term: from now on this leadership decides.
    pub(crate) fn begin(&self, leadership: Leadership) {
        if let Some(mut tenure) = self.tenure() {
            tenure.token = Some(leadership);
            tenure.terms += 1;
        }
    }

    /// Whether a write may be sent at this moment. A leadership that was lost never comes back to life.
    pub(crate) fn may_write(&self) -> bool {
        self.tenure().is_none_or(|tenure| tenure.token.as_ref().is_some_and(Leadership::is_alive))
    }

    /// Returns the fence of this leadership, which a status that holds memory stores; `None` where there is no election.
    pub(crate) fn fence(&self) -> Option<Fence> {
        let tenure = self.tenure()?;
        let epoch = tenure.token.as_ref()?.epoch();
        Some(Fence { lease: epoch.lease_uid.to_string(), epoch: epoch.transitions.into() })
    }

    /// Checks the fence of a stored status. If it is of a later term of our lease, then our leadership is over: another process
    /// leads, or the lease was restored from a backup and counts its terms again.
    pub(crate) fn witness(&self, written: &Fence) {
        let Some(tenure) = self.tenure() else { return };
        let Some(token) = tenure.token.as_ref().filter(|token| *token.epoch().lease_uid == *written.lease) else {
            return;
        };
        token.witness(u32::try_from(written.epoch).unwrap_or_default());
    }

    /// Returns how often this process has become leader; 0 where there is no election. Other processes may have written
    /// between two terms.
    pub(crate) fn term(&self) -> u64 {
        self.tenure().map_or(0, |tenure| tenure.terms)
    }

    fn tenure(&self) -> Option<MutexGuard<'_, Tenure>> {
        Some(self.tenure.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Returns the namespace that this process runs in; `None` outside of a cluster.
pub(crate) fn pod_namespace() -> Option<String> {
    std::fs::read_to_string(POD_NAMESPACE).ok().map(|text| text.trim().to_owned())
}

/// Returns the election that the flags request, if any, or a message why it is not possible.
pub(crate) fn election(settings: &Settings) -> Result<Option<Config>, String> {
    if !settings.leader_elect {
        return Ok(None);
    }
    let namespace = settings.leader_election_namespace.clone().or_else(pod_namespace).ok_or_else(|| {
        "--leader-elect outside of a cluster: set the namespace of the lease with --leader-election-namespace"
            .to_owned()
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

/// Reports the election by events and metrics.
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
