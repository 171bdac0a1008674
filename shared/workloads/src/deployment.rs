//! The cached view of a Deployment: its counts, the progress of its rollout, and its images.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use serde::Deserialize;
use serde_json::Value;

use crate::{Child, Live, Viewed, defaults};

impl Viewed for Deployment {
    type View = DeploymentView;
}

impl Child for Deployment {
    const EXCLUSIVE_FIELDS: &'static [&'static [&'static str]] = &[&["spec"]];

    /// An autoscaler, `kubectl rollout pause` and `kubectl rollout restart` write these fields.
    const SHARED_FIELDS: &'static [&'static [&'static str]] =
        &[&["spec", "replicas"], &["spec", "paused"], &["spec", "template", "metadata", "annotations"]];

    fn set_defaults(object: &mut Value) {
        defaults::deployment(object);
    }

    /// Compares the selectors. The operator does not replace a Deployment with another selector: that would end its pods.
    fn immutable_difference(live: &Value, desired: &Value) -> Option<&'static str> {
        let selector = |deployment: &Value| deployment.pointer("/spec/selector").cloned();
        (selector(live) != selector(desired)).then_some("selector")
    }
}

/// The part of a Deployment that reconcilers read.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "wire::Deployment")]
pub struct DeploymentView {
    observed_generation: i64,
    wanted: i32,
    replicas: i32,
    updated: i32,
    ready: i32,
    available: i32,
    progress: Progress,
    /// Seconds since 1970; `i64::MAX` if the Deployment does not tell. An `Option` would take twice the memory.
    renewed: i64,
    refused: Option<Box<str>>,
    containers: Box<[Container]>,
}

/// The state of a rollout according to the Deployment's own `Progressing` condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// The Deployment has no such condition (yet).
    Unknown,
    /// A new template is being rolled out.
    Ongoing {
        /// The name of the `ReplicaSet` of which the Deployment controller last observed progress, if it tells.
        replica_set: Option<Box<str>>,
    },
    /// A user has paused the Deployment (`kubectl rollout pause`).
    Paused,
    /// The last template has been rolled out. The state stays `Complete` when pods die later and while the Deployment scales.
    Complete,
    /// The rollout made no progress for `progressDeadlineSeconds`. Holds the condition's message.
    Stalled(Box<str>),
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Container {
    name: Box<str>,
    #[serde(default)]
    image: Box<str>,
}

impl DeploymentView {
    /// `spec.replicas`.
    pub fn wanted(&self) -> i32 {
        self.wanted
    }

    /// Pods that exist, of any template.
    pub fn replicas(&self) -> i32 {
        self.replicas
    }

    /// Pods of the current template.
    pub fn updated(&self) -> i32 {
        self.updated
    }

    /// Pods that are ready, of any template.
    pub fn ready(&self) -> i32 {
        self.ready
    }

    /// Pods that have been ready for `minReadySeconds`.
    pub fn available(&self) -> i32 {
        self.available
    }

    /// The state of the Deployment's rollout.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// When the Deployment controller last observed progress of the rollout, according to its own clock.
    pub(crate) fn renewed(&self) -> Option<Timestamp> {
        Timestamp::from_second(self.renewed).ok()
    }

    /// The name of the `ReplicaSet` of which the Deployment controller last observed progress, during a rollout. It is that of the
    /// current template only if that progress is later than the last change of the template.
    pub(crate) fn replica_set(&self) -> Option<&str> {
        match &self.progress {
            Progress::Ongoing { replica_set } => replica_set.as_deref(),
            Progress::Unknown | Progress::Paused | Progress::Complete | Progress::Stalled(_) => None,
        }
    }

    /// Why the API server refuses to create pods (a quota, a rule of the namespace), in its own words; at most 512 bytes.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// The image of the container with this name.
    ///
    /// The lookup is by name because a sidecar that a webhook injects may come first in the list.
    pub fn image(&self, container: &str) -> Option<&str> {
        self.containers.iter().find(|it| &*it.name == container).map(|it| &*it.image)
    }

    #[cfg(test)]
    pub(crate) fn containers_heap(&self) -> usize {
        self.containers.iter().map(|it| size_of::<Container>() + it.name.len() + it.image.len()).sum()
    }
}

impl Live<DeploymentView> {
    /// Whether the Deployment controller has observed this Deployment at least once.
    pub fn was_ever_observed(&self) -> bool {
        self.observed_generation > 0
    }

    /// Whether the counts belong to the current spec. Right after a write they still belong to the previous spec.
    pub fn is_observed(&self) -> bool {
        self.was_ever_observed() && self.observed_generation >= self.generation
    }
}

/// The wire format of a Deployment, reduced to the fields that the view needs.
mod wire {
    use super::{Container, DeploymentView, Deserialize, Progress, Timestamp};
    use crate::text::head;

    /// Limits the memory of a view; long enough for a message to the user.
    const MESSAGE_BYTES: usize = 512;

    #[derive(Deserialize, Default)]
    #[serde(default)]
    pub(super) struct Deployment {
        spec: Spec,
        status: Status,
    }

    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Spec {
        replicas: Option<i32>,
        template: Template,
    }

    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Template {
        spec: PodSpec,
    }

    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct PodSpec {
        containers: Box<[Container]>,
    }

    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "camelCase")]
    struct Status {
        observed_generation: i64,
        replicas: i32,
        updated_replicas: i32,
        ready_replicas: i32,
        available_replicas: i32,
        conditions: Vec<Condition>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Condition {
        r#type: Box<str>,
        #[serde(default)]
        status: Box<str>,
        #[serde(default)]
        reason: Box<str>,
        #[serde(default)]
        message: Box<str>,
        #[serde(default)]
        last_update_time: Option<Timestamp>,
    }

    impl From<Deployment> for DeploymentView {
        fn from(Deployment { spec, status }: Deployment) -> Self {
            let failure = status.conditions.iter().find(|it| &*it.r#type == "ReplicaFailure" && &*it.status == "True");
            let refused = failure.map(|it| head(without_pod(&it.message), MESSAGE_BYTES).into());
            let progressing = status.conditions.into_iter().find(|it| &*it.r#type == "Progressing");
            let renewed = progressing.as_ref().and_then(|it| it.last_update_time);
            Self {
                observed_generation: status.observed_generation,
                wanted: spec.replicas.unwrap_or(1),
                replicas: status.replicas,
                updated: status.updated_replicas,
                ready: status.ready_replicas,
                available: status.available_replicas,
                renewed: renewed.map_or(i64::MAX, Timestamp::as_second),
                progress: progressing.map_or(Progress::Unknown, |condition| match &*condition.reason {
                    "NewReplicaSetAvailable" => Progress::Complete,
                    "ProgressDeadlineExceeded" => Progress::Stalled(condition.message),
                    "DeploymentPaused" => Progress::Paused,
                    _ => Progress::Ongoing { replica_set: replica_set(&condition.message).map(Into::into) },
                }),
                refused,
                containers: spec.template.spec.containers,
            }
        }
    }

    /// Reads the name from `ReplicaSet "x-7d4b9c6f5" is progressing.` and `Created new replica set "x-7d4b9c6f5"`.
    fn replica_set(message: &str) -> Option<&str> {
        let (_, rest) = message.split_once("ReplicaSet \"").or_else(|| message.split_once("replica set \""))?;
        rest.split_once('"').map(|(name, _)| name)
    }

    /// Strips `pods "x-7d4b9c6f5-x2x8q" is forbidden: `. Each attempt has another pod name, and no such pod exists.
    fn without_pod(message: &str) -> &str {
        let rest = message.strip_prefix("pods \"").and_then(|it| it.split_once("\" is forbidden: "));
        rest.map_or(message, |(_, why)| why)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn view(object: Value) -> DeploymentView {
        serde_json::from_value(object).expect("a view of the object")
    }

    #[test]
    fn unobserved_deployment_has_unknown_progress() {
        let fresh = view(json!({"metadata": {"name": "x"}, "spec": {"replicas": 0}}));
        assert_eq!((fresh.wanted(), fresh.ready(), fresh.progress()), (0, 0, &Progress::Unknown));
        assert_eq!(view(json!({})).wanted(), 1, "as the API server defaults it");
    }

    #[test]
    fn progress_follows_the_progressing_condition() {
        let progress = |reason: &str| {
            let conditions = json!([
                {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable"},
                {"type": "Progressing", "status": "?", "reason": reason, "message": "words"},
            ]);
            view(json!({"status": {"conditions": conditions}})).progress().clone()
        };
        let ongoing = || Progress::Ongoing { replica_set: None };
        assert_eq!((progress("NewReplicaSetCreated"), progress("ReplicaSetUpdated")), (ongoing(), ongoing()));
        assert_eq!(progress("NewReplicaSetAvailable"), Progress::Complete);
        assert_eq!((progress("DeploymentPaused"), progress("DeploymentResumed")), (Progress::Paused, ongoing()));
        assert_eq!(progress("ProgressDeadlineExceeded"), Progress::Stalled("words".into()));
    }

    #[test]
    fn replica_set_is_that_of_the_last_progress() {
        let named = |reason: &str, message: &str| {
            let condition = json!({"type": "Progressing", "status": "True", "reason": reason, "message": message});
            view(json!({"status": {"conditions": [condition]}})).replica_set().map(ToOwned::to_owned)
        };
        for (reason, message, expected) in [
            ("NewReplicaSetCreated", r#"Created new replica set "x-7d4b9c6f5""#, Some("x-7d4b9c6f5")),
            ("FoundNewReplicaSet", r#"Found new replica set "x-7d4b9c6f5""#, Some("x-7d4b9c6f5")),
            ("ReplicaSetUpdated", r#"ReplicaSet "x-7d4b9c6f5" is progressing."#, Some("x-7d4b9c6f5")),
            ("ReplicaSetUpdated", r#"Deployment "x" is progressing."#, None),
            ("DeploymentResumed", "Deployment is resumed", None),
            ("NewReplicaSetAvailable", r#"ReplicaSet "x-7d4b9c6f5" has successfully progressed."#, None),
        ] {
            assert_eq!(named(reason, message).as_deref(), expected, "{message}");
        }
    }

    #[test]
    fn refusal_is_read_from_replica_failure() {
        let refused = |status: &str, message: &str| {
            let condition =
                json!({"type": "ReplicaFailure", "status": status, "reason": "FailedCreate", "message": message});
            view(json!({"status": {"conditions": [condition]}})).refused().map(ToOwned::to_owned)
        };
        let quota = "pods \"x-7d4b9c6f5-x2x8q\" is forbidden: exceeded quota: q, requested: pods=1";
        assert_eq!(refused("True", quota).as_deref(), Some("exceeded quota: q, requested: pods=1"));
        assert_eq!(refused("True", "admission webhook says no").as_deref(), Some("admission webhook says no"));
        assert_eq!(refused("False", quota), None);
    }

    #[test]
    fn selector_is_immutable() {
        let selecting = |app: &str| json!({"spec": {"selector": {"matchLabels": {"app": app}}}});
        let difference = Deployment::immutable_difference(&selecting("a"), &selecting("b"));
        assert_eq!((difference, Deployment::REPLACEABLE), (Some("selector"), false));
        assert_eq!(Deployment::immutable_difference(&selecting("a"), &selecting("a")), None);
    }

    #[test]
    fn image_is_found_despite_an_injected_sidecar() {
        let containers = json!([{"name": "proxy", "image": "mesh:1"}, {"name": "memcached", "image": "memcached:1.6"}]);
        let with_sidecar = view(json!({"spec": {"template": {"spec": {"containers": containers}}}}));
        assert_eq!(with_sidecar.image("memcached"), Some("memcached:1.6"));
        assert_eq!(with_sidecar.image("app"), None);
    }
}
