//! What is kept of a Pod: whether and where it serves, and what keeps it from serving.

use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;

use crate::{Live, Viewed};

impl Viewed for Pod {
    type View = PodView;
}

/// The part of a Pod that reconcilers read.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "wire::Pod")]
pub struct PodView {
    phase: Phase,
    ready: bool,
    ip: Option<IpAddr>,
    /// Boxed: nearly every pod has none.
    trouble: Option<Box<Trouble>>,
}

/// `status.phase`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub enum Phase {
    /// Not all containers have started.
    #[default]
    Pending,
    /// Bound to a node, and at least one container has started.
    Running,
    /// All containers have ended well, for good.
    Succeeded,
    /// All containers have ended, one of them badly; evicted pods are here too.
    Failed,
    /// The node does not answer. The catch-all for phases of later releases.
    #[serde(other)]
    Unknown,
}

/// Why a pod does not serve, as far as a person can do something about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// No node takes it.
    Unschedulable {
        /// Since when the scheduler says so.
        since: Option<Timestamp>,
        /// The scheduler's words.
        message: Box<str>,
    },
    /// An image cannot be pulled.
    ImagePull {
        /// The image as the pod names it.
        image: Box<str>,
        /// The kubelet's words.
        message: Box<str>,
    },
    /// The image wants to be root, or does not say who it wants to be, and the pod forbids it.
    RunsAsRoot {
        /// The image as the pod names it.
        image: Box<str>,
    },
    /// A container ends again and again.
    CrashLoop {
        /// Its name.
        container: Box<str>,
        /// How it ended the last time.
        exit_code: i32,
        /// How often it has ended.
        exits: i32,
        /// The end of what it said last, or Kubernetes's word for how it ended (`OOMKilled`); at most 200 bytes.
        tail: Box<str>,
    },
}

impl PodView {
    /// Its condition `Ready` is true.
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// Its first address.
    pub fn ip(&self) -> Option<IpAddr> {
        self.ip
    }

    /// What keeps it from serving.
    pub fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_deref()
    }
}

impl Live<PodView> {
    /// It serves or may still come to it: not ended, not being deleted, not lost with its node.
    pub fn is_alive(&self) -> bool {
        self.deleting.is_none() && matches!(self.phase, Phase::Pending | Phase::Running)
    }
}

/// The object as it is on the wire, down to the fields that a view is made of.
mod wire {
    use super::{Deserialize, Phase, PodView, Timestamp, Trouble};
    use crate::text::{head, tail};

    /// Enough for what a person needs; a scheduler's message grows with the cluster.
    const MESSAGE_BYTES: usize = 512;
    const TAIL_BYTES: usize = 200;

    #[derive(Deserialize, Default)]
    #[serde(default)]
    pub(super) struct Pod {
        status: Status,
    }

    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "camelCase")]
    struct Status {
        phase: Phase,
        #[serde(rename = "podIP")]
        pod_ip: Box<str>,
        conditions: Vec<Condition>,
        init_container_statuses: Vec<Container>,
        container_statuses: Vec<Container>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Condition {
        r#type: Box<str>,
        status: Box<str>,
        #[serde(default)]
        message: Box<str>,
        #[serde(default)]
        last_transition_time: Option<Timestamp>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Container {
        name: Box<str>,
        #[serde(default)]
        image: Box<str>,
        #[serde(default)]
        restart_count: i32,
        #[serde(default)]
        state: State,
        #[serde(default)]
        last_state: State,
    }

    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct State {
        waiting: Option<Waiting>,
        terminated: Option<Terminated>,
    }

    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Waiting {
        reason: Box<str>,
        message: Box<str>,
    }

    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "camelCase")]
    struct Terminated {
        exit_code: i32,
        reason: Box<str>,
        message: Box<str>,
    }

    impl From<Pod> for PodView {
        fn from(Pod { status }: Pod) -> Self {
            let condition = |name: &str| status.conditions.iter().find(|it| &*it.r#type == name);
            Self {
                phase: status.phase,
                ready: condition("Ready").is_some_and(|it| &*it.status == "True"),
                ip: status.pod_ip.parse().ok(),
                trouble: condition("PodScheduled")
                    .and_then(unschedulable)
                    .or_else(|| status.init_container_statuses.iter().find_map(Container::trouble))
                    .or_else(|| status.container_statuses.iter().find_map(Container::trouble))
                    .map(Box::new),
            }
        }
    }

    fn unschedulable(scheduled: &Condition) -> Option<Trouble> {
        (&*scheduled.status == "False").then(|| Trouble::Unschedulable {
            since: scheduled.last_transition_time,
            message: head(&scheduled.message, MESSAGE_BYTES).into(),
        })
    }

    impl Container {
        fn trouble(&self) -> Option<Trouble> {
            let waiting = self.state.waiting.as_ref()?;
            match &*waiting.reason {
                "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" => {
                    Some(Trouble::ImagePull { image: self.image.clone(), message: self.pull_message(waiting).into() })
                }
                "CreateContainerConfigError" if waiting.message.contains("runAsNonRoot") => {
                    Some(Trouble::RunsAsRoot { image: self.image.clone() })
                }
                "CrashLoopBackOff" => {
                    let last = self.last_state.terminated.as_ref();
                    Some(Trouble::CrashLoop {
                        container: self.name.clone(),
                        exit_code: last.map_or(0, |it| it.exit_code),
                        // It waits for its next start, so it has ended once more than it was restarted.
                        exits: self.restart_count + 1,
                        tail: last.map_or_else(Box::default, Terminated::last_words),
                    })
                }
                _ => None,
            }
        }

        /// The kubelet's words without its `Back-off pulling image "x": ErrImagePull: `.
        ///
        /// It puts that on and takes it off at every attempt; a message that stays the same causes no writes.
        fn pull_message<'a>(&self, waiting: &'a Waiting) -> &'a str {
            let back_off = format!("Back-off pulling image \"{}\": ", self.image);
            let message = waiting.message.strip_prefix(&back_off).unwrap_or(&waiting.message);
            head(message.strip_prefix("ErrImagePull: ").unwrap_or(message), MESSAGE_BYTES)
        }
    }

    impl Terminated {
        fn last_words(&self) -> Box<str> {
            match self.message.trim() {
                "" => self.reason.clone(),
                message => tail(message, TAIL_BYTES).into(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn view(status: &Value) -> PodView {
        serde_json::from_value(json!({"status": status})).expect("a view of the object")
    }

    fn waiting(reason: &str, message: &str) -> Value {
        json!([{"name": "app", "image": "app:1", "restartCount": 4,
            "state": {"waiting": {"reason": reason, "message": message}},
            "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled", "message": ""}}}])
    }

    fn trouble(reason: &str, message: &str) -> Option<Trouble> {
        view(&json!({"phase": "Pending", "containerStatuses": waiting(reason, message)})).trouble().cloned()
    }

    #[test]
    fn a_pod_that_serves() {
        let pod =
            view(&json!({"phase": "Running", "podIP": "fd00::7", "conditions": [{"type": "Ready", "status": "True"}]}));
        assert!(pod.is_ready());
        assert_eq!((pod.ip(), pod.trouble()), (Some("fd00::7".parse().expect("an address")), None));
    }

    #[test]
    fn a_pod_of_which_nothing_is_known_yet() {
        let fresh: PodView = serde_json::from_value(json!({"metadata": {"name": "x"}})).expect("a view of the object");
        assert_eq!(fresh, PodView { phase: Phase::Pending, ready: false, ip: None, trouble: None });
        assert_eq!(view(&json!({"phase": "Hibernating"})).phase, Phase::Unknown);
    }

    #[test]
    fn starting_is_no_trouble() {
        assert_eq!(trouble("ContainerCreating", ""), None);
        assert_eq!(trouble("PodInitializing", ""), None);
    }

    #[test]
    fn an_image_that_cannot_be_pulled_reads_the_same_at_every_attempt() {
        let expected = Trouble::ImagePull { image: "app:1".into(), message: "not found".into() };
        for (reason, message) in [
            ("ErrImagePull", "not found"),
            ("ImagePullBackOff", r#"Back-off pulling image "app:1": ErrImagePull: not found"#),
        ] {
            assert_eq!(trouble(reason, message), Some(expected.clone()));
        }
    }

    #[test]
    fn an_image_that_wants_to_be_root() {
        let message = r#"container has runAsNonRoot and image will run as root (pod: "x", container: app)"#;
        assert_eq!(trouble("CreateContainerConfigError", message), Some(Trouble::RunsAsRoot { image: "app:1".into() }));
        assert_eq!(trouble("CreateContainerConfigError", r#"secret "x" not found"#), None);
    }

    #[test]
    fn a_container_that_ends_again_and_again() {
        let expected =
            Trouble::CrashLoop { container: "app".into(), exit_code: 137, exits: 5, tail: "OOMKilled".into() };
        assert_eq!(trouble("CrashLoopBackOff", "back-off 5m0s"), Some(expected));
    }

    #[test]
    fn an_init_container_comes_before_the_ones_that_wait_for_it() {
        let pod = view(&json!({
            "initContainerStatuses": waiting("ErrImagePull", "gone"),
            "containerStatuses": waiting("PodInitializing", ""),
        }));
        assert!(matches!(pod.trouble(), Some(Trouble::ImagePull { .. })));
    }

    #[test]
    fn a_pod_that_no_node_takes() {
        let conditions = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": "0/1 nodes are available", "lastTransitionTime": "2026-11-21T10:00:00Z"}]);
        let since = Some("2026-11-21T10:00:00Z".parse().expect("a time"));
        let expected = Trouble::Unschedulable { since, message: "0/1 nodes are available".into() };
        assert_eq!(view(&json!({"conditions": conditions})).trouble(), Some(&expected));
    }
}
