//! The wire format of a Pod, reduced to the fields that the view needs.

use jiff::Timestamp;
use serde::Deserialize;

use super::{Phase, PodView, Trouble};
use crate::{
    condition::Condition,
    text::{head, tail},
};

/// Limits the memory of a view, since a scheduler's message grows with the cluster. Long enough for a message to the user.
const MESSAGE_BYTES: usize = 512;
const TAIL_BYTES: usize = 200;
/// Restarts from which a container is in a crash loop. A single restart is an accident.
const LOOP: i32 = 2;

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Pod {
    spec: Spec,
    status: Status,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Spec {
    containers: Vec<Declared>,
}

/// A container in the spec.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Declared {
    ports: Vec<Port>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Port {
    container_port: u16,
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
    running: Option<Running>,
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
struct Running {
    started_at: Option<Timestamp>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Terminated {
    exit_code: i32,
    reason: Box<str>,
    message: Box<str>,
}

impl From<Pod> for PodView {
    fn from(Pod { spec, status }: Pod) -> Self {
        let ports = spec.containers.iter().flat_map(|container| &container.ports);
        let condition = |name: &str| status.conditions.iter().find(|it| &*it.r#type == name);
        Self {
            phase: status.phase,
            ready: condition("Ready").is_some_and(|it| &*it.status == "True"),
            ip: status.pod_ip.parse().ok(),
            port: ports.map(|port| port.container_port).next(),
            trouble: condition("PodScheduled")
                .and_then(unschedulable)
                .or_else(|| status.init_container_statuses.iter().find_map(Container::trouble))
                .or_else(|| status.container_statuses.iter().find_map(Container::trouble))
                .or_else(|| preparing(condition("PodScheduled")?, condition("PodReadyToStartContainers")?))
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

/// The kubelet waits for volumes, and then for the network, before it pulls the first image. Only its events say for which.
fn preparing(scheduled: &Condition, ready_to_start: &Condition) -> Option<Trouble> {
    let waits = &*scheduled.status == "True" && &*ready_to_start.status == "False";
    // The later of the two times: a pod that has already run may have to start again.
    let since = [scheduled, ready_to_start].into_iter().filter_map(|it| it.last_transition_time).max();
    waits.then_some(Trouble::Preparing { since })
}

impl Container {
    fn trouble(&self) -> Option<Trouble> {
        match &self.state {
            State { waiting: Some(waiting), .. } => self.waits(waiting),
            // A container in a crash loop runs for a moment between two ends. It must not look healthy each time.
            State { running: Some(running), .. } if self.restart_count >= LOOP => {
                let last = self.last_state.terminated.as_ref();
                let end = last.filter(|end| !end.never_started() && !end.is_lost())?;
                Some(self.crash_loop(end, self.restart_count, running.started_at))
            }
            State { terminated: Some(end), .. } if self.restart_count >= LOOP && !end.is_lost() => {
                Some(self.crash_loop(end, self.restart_count + 1, None))
            }
            _ => None,
        }
    }

    fn waits(&self, waiting: &Waiting) -> Option<Trouble> {
        let end = self.last_state.terminated.as_ref();
        match &*waiting.reason {
            "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" => {
                Some(Trouble::ImagePull { image: self.image.clone(), message: self.pull_message(waiting).into() })
            }
            "CreateContainerConfigError" if waiting.message.contains("runAsNonRoot") => {
                Some(Trouble::RunsAsRoot { image: self.image.clone() })
            }
            "CreateContainerConfigError" => Some(match missing(&waiting.message) {
                Some(message) => Trouble::MissingInput { message: message.into() },
                None => self.cannot_start(waiting),
            }),
            "CrashLoopBackOff" => {
                // The container waits for its next start, so it has ended once more than it has restarted.
                Some(self.crash_loop(end.unwrap_or(&Terminated::default()), self.restart_count + 1, None))
            }
            "CreateContainerError" | "RunContainerError" => Some(self.cannot_start(waiting)),
            _ => None,
        }
    }

    fn crash_loop(&self, end: &Terminated, exits: i32, running_since: Option<Timestamp>) -> Trouble {
        // A program that never started has no exit code of its own; the message says why.
        if end.never_started() {
            let message = head(&end.message, MESSAGE_BYTES).into();
            return Trouble::CannotStart { container: self.name.clone(), message };
        }
        Trouble::CrashLoop {
            container: self.name.clone(),
            exit_code: end.exit_code,
            exits,
            running_since,
            tail: end.termination_message(),
        }
    }

    fn cannot_start(&self, waiting: &Waiting) -> Trouble {
        Trouble::CannotStart { container: self.name.clone(), message: head(&waiting.message, MESSAGE_BYTES).into() }
    }

    /// Returns the kubelet's message without the prefix `Back-off pulling image "x": ErrImagePull: `.
    ///
    /// The kubelet adds and removes the prefix at every attempt. A message that stays the same causes no status writes.
    fn pull_message<'a>(&self, waiting: &'a Waiting) -> &'a str {
        let back_off = format!("Back-off pulling image \"{}\": ", self.image);
        let message = waiting.message.strip_prefix(&back_off).unwrap_or(&waiting.message);
        head(message.strip_prefix("ErrImagePull: ").unwrap_or(message), MESSAGE_BYTES)
    }
}

impl Terminated {
    fn never_started(&self) -> bool {
        &*self.reason == "StartError"
    }

    /// Whether the container ended together with its node or its runtime, so its result is unknown. containerd and the kubelet use
    /// these reasons.
    fn is_lost(&self) -> bool {
        matches!(&*self.reason, "Unknown" | "ContainerStatusUnknown")
    }

    fn termination_message(&self) -> Box<str> {
        match self.message.trim() {
            "" => self.reason.clone(),
            message => tail(message, TAIL_BYTES).into(),
        }
    }
}

/// Rewrites the kubelet's message about a missing Secret, `ConfigMap` or key. The kubelet writes `secret "x" not found` and
/// `couldn't find key k in ConfigMap namespace/x`. Returns `None` for any other message.
fn missing(message: &str) -> Option<String> {
    for (kind, kubelet) in [("Secret", "secret \""), ("ConfigMap", "configmap \"")] {
        if let Some(name) = message.strip_prefix(kubelet).and_then(|it| it.strip_suffix("\" not found")) {
            return Some(format!("{kind} \"{name}\" not found"));
        }
        let key = message.strip_prefix("couldn't find key ").and_then(|it| it.split_once(&format!(" in {kind} ")));
        if let Some((key, object)) = key {
            let name = object.split_once('/').map_or(object, |(_, name)| name);
            return Some(format!("{kind} \"{name}\" has no key \"{key}\""));
        }
    }
    None
}
