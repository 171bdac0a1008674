//! The pods of one app as a set: their names, their endpoints, and their problems.

use std::{net::IpAddr, sync::Arc};

use jiff::{SignedDuration, Timestamp};

use crate::{ClockReading, Live, PodView, Problem, ProblemKind, SecurityPolicy, Trouble};

/// How long a pod may wait for a node and for its volumes before the wait is a problem. Normally it waits for less.
pub const PATIENCE: SignedDuration = SignedDuration::from_secs(30);
/// A container in a crash loop that has run for this time counts as recovered.
const AT_REST: SignedDuration = SignedDuration::from_secs(30);

/// The problems of a set of pods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Diagnosis {
    /// One problem for each reason: that of the first pod, by name.
    pub problems: Vec<Problem>,
    /// When to look again, because time alone makes a trouble a problem then, or ends one.
    pub recheck: Option<Timestamp>,
}

/// The names of the pods that serve or may still become ready, sorted.
pub fn names(pods: &[Arc<Live<PodView>>]) -> Vec<String> {
    let mut names: Vec<_> = alive(pods).map(|pod| pod.name.to_string()).collect();
    names.sort_unstable();
    names
}

/// `host:port` of the pods that serve, sorted; IPv6 addresses in brackets. Each pod has its own port: while a change of the port is
/// rolled out, the former pods still listen on the former one. `port` is that of a pod that declares none.
pub fn endpoints(pods: &[Arc<Live<PodView>>], port: i32) -> Vec<String> {
    let ready = alive(pods).filter(|pod| pod.is_ready());
    let of = |pod: &Live<PodView>| Some(endpoint(pod.ip()?, pod.port().map_or(port, i32::from)));
    let mut endpoints: Vec<_> = ready.filter_map(of).collect();
    endpoints.sort_unstable();
    endpoints
}

/// Returns the problems that a user has to fix. A pod may wait for a node and for its volumes as long as `patience`: see
/// [`PATIENCE`]. `security` says which profiles the user may set; `None` if the user can set none.
pub fn diagnose(
    pods: &[Arc<Live<PodView>>],
    patience: SignedDuration,
    present: ClockReading,
    security: Option<SecurityPolicy>,
) -> Diagnosis {
    let mut by_name: Vec<_> = alive(pods).collect();
    by_name.sort_unstable_by_key(|pod| &pod.name);

    let mut diagnosis = Diagnosis::default();
    for pod in by_name {
        let Some(trouble) = pod.trouble() else { continue };
        let (does, changes_at) = match counts(pod, trouble) {
            Counts::Always => (true, None),
            Counts::After(since) => {
                let end = present.end_of(since, patience);
                (end.is_none(), end)
            }
            Counts::Before(since) => {
                let end = present.end_of(since, AT_REST);
                (end.is_some(), end)
            }
        };
        diagnosis.recheck = diagnosis.recheck.into_iter().chain(changes_at).min();
        let problem = problem(&pod.name, trouble, security);
        if does && diagnosis.problems.iter().all(|it| it.kind != problem.kind) {
            diagnosis.problems.push(problem);
        }
    }
    diagnosis
}

/// Whether a container of a pod of this `ReplicaSet` is in a crash loop: it has just ended again, waits for its next start, or has
/// not run for [`AT_REST`] since.
///
/// Kubernetes shortens the names of pods whose `ReplicaSet` has a name of more than 57 bytes. Those pods do not count.
pub(crate) fn any_crashes(pods: &[Arc<Live<PodView>>], replica_set: &str, present: ClockReading) -> bool {
    let is_of_it = |pod: &Live<PodView>| pod.name.strip_prefix(replica_set).is_some_and(|it| it.starts_with('-'));
    let crashes = |pod: &Live<PodView>| match pod.trouble() {
        Some(Trouble::CrashLoop { running_since, .. }) => {
            running_since.is_none_or(|since| present.end_of(since, AT_REST).is_some())
        }
        _ => false,
    };
    alive(pods).any(|pod| is_of_it(pod) && crashes(pod))
}

fn alive(pods: &[Arc<Live<PodView>>]) -> impl Iterator<Item = &Live<PodView>> {
    pods.iter().map(|pod| &**pod).filter(|pod| pod.is_alive())
}

fn endpoint(ip: IpAddr, port: i32) -> String {
    match ip {
        IpAddr::V4(ip) => format!("{ip}:{port}"),
        IpAddr::V6(ip) => format!("[{ip}]:{port}"),
    }
}

/// When a trouble counts as a problem.
enum Counts {
    Always,
    /// Once it has lasted for the patience since this time: it may pass by itself.
    After(Timestamp),
    /// Until [`AT_REST`] after this time: then it has passed by itself.
    Before(Timestamp),
}

fn counts(pod: &Live<PodView>, trouble: &Trouble) -> Counts {
    match trouble {
        Trouble::Unschedulable { since, .. } | Trouble::Preparing { since } => {
            since.or(pod.created).map_or(Counts::Always, Counts::After)
        }
        Trouble::CrashLoop { running_since: Some(since), .. } => Counts::Before(*since),
        _ => Counts::Always,
    }
}

fn problem(pod: &str, trouble: &Trouble, security: Option<SecurityPolicy>) -> Problem {
    let (kind, message) = match trouble {
        Trouble::RunsAsRoot { image } => {
            let cure = security
                .map_or_else(|| "use an image with a numeric non-root user".to_owned(), SecurityPolicy::cure_for_root);
            (ProblemKind::IMAGE_RUNS_AS_ROOT, format!("image \"{image}\" runs as root; {cure}"))
        }
        Trouble::ImagePull { image, message } => {
            (ProblemKind::IMAGE_PULL_FAILED, format!("Pod {pod}: cannot pull image \"{image}\": {message}"))
        }
        Trouble::MissingInput { message } => (ProblemKind::SECRET_NOT_FOUND, message.to_string()),
        Trouble::CannotStart { container, message } => {
            (ProblemKind::PODS_NOT_STARTING, format!("Pod {pod}: container {container} cannot be started: {message}"))
        }
        Trouble::Preparing { .. } => (
            ProblemKind::PODS_NOT_STARTING,
            format!(
                "Pod {pod}: its volumes or its network are not ready; every Secret and ConfigMap that it mounts must \
                 exist, and kubectl describe pod {pod} names the one that is missing"
            ),
        ),
        Trouble::CrashLoop { container, exit_code, exits, tail, .. } => {
            let said = if tail.is_empty() { String::new() } else { format!(": {tail}") };
            (
                ProblemKind::CRASH_LOOPING,
                format!("Pod {pod}: container {container} exited {exits} times, last with code {exit_code}{said}"),
            )
        }
        Trouble::Unschedulable { message, .. } => (ProblemKind::UNSCHEDULABLE, format!("Pod {pod}: {message}")),
    };
    Problem::new(kind, message)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, status: &Value) -> Arc<Live<PodView>> {
        Arc::new(Live {
            namespace: "default".into(),
            name: name.into(),
            uid: name.into(),
            generation: 0,
            created: None,
            deleting: None,
            view: serde_json::from_value(json!({"status": status})).expect("a view of the object"),
        })
    }

    fn ready(name: &str, ip: &str) -> Arc<Live<PodView>> {
        pod(name, &json!({"phase": "Running", "podIP": ip, "conditions": [{"type": "Ready", "status": "True"}]}))
    }

    fn waiting(name: &str, reason: &str, message: &str) -> Arc<Live<PodView>> {
        let container = json!({"name": "app", "image": "app:1", "restartCount": 2,
            "state": {"waiting": {"reason": reason, "message": message}},
            "lastState": {"terminated": {"exitCode": 71, "message": "bind(): Address already in use\n"}}});
        pod(name, &json!({"phase": "Running", "containerStatuses": [container]}))
    }

    fn unschedulable(name: &str, since: &str) -> Arc<Live<PodView>> {
        let condition =
            json!({"type": "PodScheduled", "status": "False", "message": "0/1 nodes", "lastTransitionTime": since});
        pod(name, &json!({"phase": "Pending", "conditions": [condition]}))
    }

    fn at(time: &str) -> Timestamp {
        time.parse().expect("a time")
    }

    fn diagnosed_at(pods: &[Arc<Live<PodView>>], time: &str) -> Diagnosis {
        diagnose(pods, PATIENCE, ClockReading::new(at(time), &[]), None)
    }

    #[test]
    fn ended_and_terminating_pods_do_not_count() {
        let deleted = Arc::new(Live { deleting: Some(Timestamp::UNIX_EPOCH), ..(*ready("d", "10.0.0.4")).clone() });
        let pods = [
            pod("c", &json!({"phase": "Failed"})),
            pod("e", &json!({"phase": "Succeeded"})),
            pod("f", &json!({"phase": "Unknown"})),
            deleted,
            pod("b", &json!({"phase": "Pending"})),
            ready("a", "10.0.0.1"),
        ];
        assert_eq!(names(&pods), ["a", "b"]);
        assert_eq!(endpoints(&pods, 11211), ["10.0.0.1:11211"]);
        assert!(names(&[]).is_empty());
    }

    #[test]
    fn each_endpoint_has_the_port_of_its_pod() {
        let of = |name: &str, ip: &str, port: u16| {
            let mut pod = (*ready(name, ip)).clone();
            let status = json!({"phase": "Running", "podIP": ip, "conditions": [{"type": "Ready", "status": "True"}]});
            let spec = json!({"containers": [{"ports": [{"containerPort": port, "name": "a"}]}, {"ports": []}]});
            pod.view = serde_json::from_value(json!({"spec": spec, "status": status})).expect("a view of the object");
            Arc::new(pod)
        };
        let pods = [of("a", "10.0.0.1", 11211), of("b", "10.0.0.2", 22122), ready("c", "10.0.0.3")];
        assert_eq!(endpoints(&pods, 22122), ["10.0.0.1:11211", "10.0.0.2:22122", "10.0.0.3:22122"]);
    }

    #[test]
    fn ipv6_endpoints_are_bracketed() {
        let pods = [ready("a", "fd00::7"), ready("b", "10.0.0.1")];
        assert_eq!(endpoints(&pods, 11211), ["10.0.0.1:11211", "[fd00::7]:11211"]);
    }

    #[test]
    fn each_problem_names_the_first_affected_pod() {
        let pods = [
            waiting("z", "ErrImagePull", "not found"),
            waiting("b", "ImagePullBackOff", "denied"),
            waiting("c", "CrashLoopBackOff", "back-off"),
            waiting("d", "CreateContainerConfigError", "container has runAsNonRoot and image will run as root"),
            ready("a", "10.0.0.1"),
        ];
        let diagnosis =
            diagnose(&pods, PATIENCE, ClockReading::new(Timestamp::UNIX_EPOCH, &[]), Some(SecurityPolicy::default()));
        let told: Vec<_> = diagnosis.problems.iter().map(|it| (it.kind.reason, &*it.message)).collect();
        assert_eq!(
            told,
            [
                ("ImagePullFailed", "Pod b: cannot pull image \"app:1\": denied"),
                (
                    "CrashLooping",
                    "Pod c: container app exited 3 times, last with code 71: bind(): Address already in use"
                ),
                (
                    "ImageRunsAsRoot",
                    "image \"app:1\" runs as root; use an image with a numeric non-root user, set spec.runAsUser, or set \
                 spec.securityProfile: Baseline"
                ),
            ]
        );
    }

    #[test]
    fn crash_loop_clears_after_thirty_seconds_of_running() {
        let container = json!({"name": "app", "restartCount": 5,
            "state": {"running": {"startedAt": "2026-11-21T10:00:00Z"}},
            "lastState": {"terminated": {"exitCode": 1}}});
        let pods = [pod("a", &json!({"phase": "Running", "containerStatuses": [container]}))];
        let soon = diagnosed_at(&pods, "2026-11-21T10:00:29Z");
        assert_eq!(soon.problems[0].message, "Pod a: container app exited 5 times, last with code 1");
        assert_eq!(soon.recheck, Some(at("2026-11-21T10:00:30Z")));
        assert_eq!(diagnosed_at(&pods, "2026-11-21T10:00:30Z"), Diagnosis::default());
    }

    #[test]
    fn crash_counts_for_the_replica_set_of_its_pod_until_it_has_run_for_thirty_seconds() {
        let crashes = |name: &str, status: &Value| {
            any_crashes(&[pod(name, status)], "x-new", ClockReading::new(at("2026-11-21T10:00:30Z"), &[]))
        };
        let status = |state: &Value| {
            let last = json!({"terminated": {"exitCode": 1}});
            json!({"phase": "Running", "containerStatuses": [
                {"name": "app", "restartCount": 2, "state": state, "lastState": last},
            ]})
        };
        let waiting = status(&json!({"waiting": {"reason": "CrashLoopBackOff"}}));
        let running = |since: &str| status(&json!({"running": {"startedAt": since}}));
        let mut evicted = waiting.clone();
        evicted["phase"] = json!("Failed");
        for (name, status, expected) in [
            ("x-new-1", &waiting, true),
            ("x-old-1", &waiting, false),
            ("x-newer-1", &waiting, false),
            ("x-new-1", &status(&json!({"terminated": {"exitCode": 1}})), true),
            ("x-new-1", &running("2026-11-21T10:00:01Z"), true),
            ("x-new-1", &running("2026-11-21T10:00:00Z"), false),
            ("x-new-1", &evicted, false),
            ("x-new-1", &json!({"phase": "Pending"}), false),
        ] {
            assert_eq!(crashes(name, status), expected, "{name}: {status}");
        }
    }

    #[test]
    fn volume_setup_is_a_problem_after_thirty_seconds() {
        let conditions = json!([
            {"type": "PodReadyToStartContainers", "status": "False"},
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-21T10:00:00Z"},
        ]);
        let pods = [pod("a", &json!({"phase": "Pending", "conditions": conditions}))];
        let early = diagnosed_at(&pods, "2026-11-21T10:00:29Z");
        assert_eq!(early, Diagnosis { problems: vec![], recheck: Some(at("2026-11-21T10:00:30Z")) });
        assert_eq!(diagnosed_at(&pods, "2026-11-21T10:00:30Z").problems[0].kind.reason, "PodsNotStarting");
    }

    #[test]
    fn wait_that_began_in_the_future_counts_as_expired() {
        let pods = [unschedulable("a", "2026-11-21T11:00:00Z")];
        let diagnosis = diagnosed_at(&pods, "2026-11-21T10:00:00Z");
        assert_eq!((diagnosis.problems[0].kind.reason, diagnosis.recheck), ("Unschedulable", None));
    }

    #[test]
    fn unscheduled_pod_is_a_problem_after_thirty_seconds() {
        let pods = [unschedulable("b", "2026-11-21T10:00:00Z"), unschedulable("a", "2026-11-21T10:00:10Z")];

        let early = diagnosed_at(&pods, "2026-11-21T10:00:29Z");
        assert_eq!(early, Diagnosis { problems: vec![], recheck: Some(at("2026-11-21T10:00:30Z")) });

        let later = diagnosed_at(&pods, "2026-11-21T10:00:30Z");
        assert_eq!(later.problems, [Problem::new(ProblemKind::UNSCHEDULABLE, "Pod b: 0/1 nodes")]);
        assert_eq!(later.recheck, Some(at("2026-11-21T10:00:40Z")));
    }
}
