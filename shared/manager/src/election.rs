//! The leader election that the flags request, and how the process reports it.

use std::sync::Arc;

use cache::ObjectKey;
use leader_election::{Config, Leadership, Observer, StopReason};

use crate::{
    events::{EventType, Note, Recorder, Reference},
    metrics::Metrics,
    settings::Settings,
};

/// The file with the namespace of the pod, which every pod with a service account has.
const POD_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

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
pub(crate) struct LeadershipMetrics {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) recorder: Recorder,
    pub(crate) config: Config,
}

impl Observer for LeadershipMetrics {
    fn started_leading(&self, leadership: &Leadership) {
        self.metrics.leader_status.with_label_values(&[&self.config.name]).set(1);
        self.event(leadership, "became leader");
    }

    fn stopped_leading(&self, leadership: &Leadership, _: StopReason) {
        self.metrics.leader_status.with_label_values(&[&self.config.name]).set(0);
        self.event(leadership, "stopped leading");
    }

    fn slow_path(&self) {
        self.metrics.leader_slowpath.with_label_values(&[&self.config.name]).inc();
    }
}

impl LeadershipMetrics {
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
