use serde_json::{Value, json};

use super::*;

const NOW: &str = "2026-11-21T10:10:00Z";

/// Reasons of the Deployment's own condition `Progressing`.
const ONGOING: &str = "ReplicaSetUpdated";
const COMPLETE: &str = "NewReplicaSetAvailable";

/// A Deployment at generation 2 with `[replicas, updated, ready]`, and `reason` in its condition `Progressing`.
fn deployment(observed: i64, [replicas, updated, ready]: [i32; 3], reason: &str) -> Live<DeploymentView> {
    let containers = json!([{"name": "memcached", "image": "docker.io/library/memcached:1.6"}]);
    let conditions = json!([{"type": "Progressing", "status": "?", "reason": reason, "message": "no progress"}]);
    live(
        "memcached-sample",
        &json!({
            "spec": {"template": {"spec": {"containers": containers}}},
            "status": {
                "observedGeneration": observed, "replicas": replicas, "updatedReplicas": updated, "readyReplicas": ready,
                "conditions": conditions,
            },
        }),
    )
}

fn pod(name: &str, status: &Value) -> Arc<Live<PodView>> {
    Arc::new(live(name, &json!({"status": status})))
}

fn ready_pod(name: &str, ip: &str) -> Arc<Live<PodView>> {
    pod(name, &json!({"phase": "Running", "podIP": ip, "conditions": [{"type": "Ready", "status": "True"}]}))
}

fn unpullable_pod(name: &str) -> Arc<Live<PodView>> {
    let waiting = json!({"waiting": {"reason": "ImagePullBackOff", "message": "not found"}});
    let container = json!({"name": "memcached", "image": "memcached:nope", "state": waiting});
    pod(name, &json!({"phase": "Pending", "containerStatuses": [container]}))
}

fn live<V: serde::de::DeserializeOwned>(name: &str, object: &Value) -> Live<V> {
    Live {
        namespace: "default".into(),
        name: name.into(),
        uid: name.into(),
        generation: 2,
        created: None,
        deleting: None,
        view: serde_json::from_value(object.clone()).expect("a view of the object"),
    }
}

fn at(time: &str) -> Timestamp {
    time.parse().expect("a time")
}

/// A fleet whose stored conditions are `(type, status, reason, since)`.
fn fleet(size: i32, stored: &[(&str, &str, &str, &str)]) -> Wanted {
    let conditions = stored.iter().map(|(type_, status, reason, since)| {
        let condition =
            json!({"type": type_, "status": status, "reason": reason, "message": "", "lastTransitionTime": since});
        serde_json::from_value(condition).expect("a condition")
    });
    Wanted { size, proof: Proof::Probe, stored: conditions.collect(), stalls_at: None }
}

struct Wanted {
    size: i32,
    proof: Proof,
    stored: Vec<Condition>,
    stalls_at: Option<Timestamp>,
}

impl Wanted {
    fn health(&self, deployment: Option<&Live<DeploymentView>>, pods: &[Arc<Live<PodView>>]) -> Health {
        let wording = FleetWording {
            pod: "node",
            pods: "nodes",
            available: "MinimumNodesAvailable",
            none_ready: "NoReadyNodes",
            not_ready: ProblemKind::not_ready("NodesNotReady"),
        };
        let (size, proof, stored, now) = (self.size, self.proof, &*self.stored, at(NOW));
        let (progress_deadline_seconds, stalls_at, security) = (600, self.stalls_at, None);
        Fleet { wording, size, proof, progress_deadline_seconds, stalls_at, deployment, pods, stored, security, now }
            .health()
    }
}

/// Formats each fact as one line, such as `True RollingOut`.
fn facts(health: &Health) -> [String; 4] {
    let line = |verdict: &Verdict| format!("{} {}", if verdict.status { "True" } else { "False" }, verdict.reason);
    let problems: Vec<_> = health.problems.iter().map(|it| it.kind.reason).collect();
    [
        line(health.available.as_ref().expect("Available")),
        line(health.progressing.as_ref().expect("Progressing")),
        problems.join(", "),
        line(&health.ready),
    ]
}

/// Compares the health with `[Available, Progressing, problems, Ready]`. The runtime later derives `Degraded` from the problems.
/// A problem, or else a change under way, overrides `Ready` there.
#[track_caller]
fn check(wanted: &Wanted, deployment: Option<&Live<DeploymentView>>, pods: &[Arc<Live<PodView>>], expected: [&str; 4]) {
    assert_eq!(facts(&wanted.health(deployment, pods)), expected);
}

const LONG_AGO: &str = "2026-11-21T10:00:00Z";
const STABLE: (&str, &str, &str, &str) = ("Progressing", "False", "Stable", LONG_AGO);

fn settled(size: i32) -> Wanted {
    fleet(size, &[STABLE, ("Ready", "True", "Ready", LONG_AGO)])
}

fn three_pods() -> Vec<Arc<Live<PodView>>> {
    vec![ready_pod("a", "10.0.0.1"), ready_pod("b", "10.0.0.2"), ready_pod("c", "10.0.0.3")]
}

#[test]
fn first_rollout_reports_rolling_out_until_ready() {
    let (new, none) = (fleet(3, &[]), [].as_slice());
    let starting = ["False NoReadyNodes", "True RollingOut", "", "False NodesNotReady"];
    check(&new, None, none, starting);
    check(&new, Some(&deployment(0, [0, 0, 0], "")), none, starting);
    check(&new, Some(&deployment(2, [3, 3, 0], ONGOING)), none, starting);

    let one_ready = ["True MinimumNodesAvailable", "True RollingOut", "", "False NodesNotReady"];
    check(&new, Some(&deployment(2, [3, 3, 1], ONGOING)), &three_pods()[..1], one_ready);

    let all_ready = ["True MinimumNodesAvailable", "False Stable", "", "True Ready"];
    check(&new, Some(&deployment(2, [3, 3, 3], ONGOING)), &three_pods(), all_ready);
}

#[test]
fn lost_pod_is_a_problem_after_one_minute() {
    let two_of_three = deployment(2, [3, 3, 2], COMPLETE);
    let unready_since = |time| fleet(3, &[STABLE, ("Ready", "False", "NodesNotReady", time)]);

    let being_replaced = ["True MinimumNodesAvailable", "False Stable", "", "False NodesNotReady"];
    check(&settled(3), Some(&two_of_three), &three_pods()[..2], being_replaced);
    check(&unready_since("2026-11-21T10:09:01Z"), Some(&two_of_three), &three_pods()[..2], being_replaced);

    let missed = ["True MinimumNodesAvailable", "False Stable", "NodesNotReady", "False NodesNotReady"];
    check(&unready_since("2026-11-21T10:09:00Z"), Some(&two_of_three), &three_pods()[..2], missed);
}

/// A program that crashes soon after each start would otherwise be ready between two crashes.
#[test]
fn pods_without_a_probe_are_ready_after_their_time() {
    let unproven = Wanted { proof: Proof::Seconds(30), ..fleet(3, &[]) };
    let running = |available: i32| {
        let conditions = json!([{"type": "Progressing", "status": "True", "reason": ONGOING}]);
        live(
            "web",
            &json!({"status": {
                "observedGeneration": 2, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3,
                "availableReplicas": available, "conditions": conditions,
            }}),
        )
    };
    let started = ["False NoReadyNodes", "True RollingOut", "", "False NodesNotReady"];
    check(&unproven, Some(&running(0)), &three_pods(), started);
    assert_eq!(unproven.health(Some(&running(0)), &[]).ready.message, "0/3 nodes have run for 30s");
    let proven = ["True MinimumNodesAvailable", "False Stable", "", "True Ready"];
    check(&unproven, Some(&running(3)), &three_pods(), proven);
}

/// Otherwise each lost pod would be a problem, if the time is long.
#[test]
fn lost_pod_without_a_probe_gets_its_time_too() {
    let problems = |unready_since: &str| {
        let stored = fleet(3, &[STABLE, ("Ready", "False", "NodesNotReady", unready_since)]);
        let wanted = Wanted { proof: Proof::Seconds(30), ..stored };
        wanted.health(Some(&deployment(2, [3, 3, 2], COMPLETE)), &[]).problems.len()
    };
    assert_eq!((problems("2026-11-21T10:08:31Z"), problems("2026-11-21T10:08:30Z")), (0, 1));
}

/// After clocks were put back, the stored times lie in the future, so the length of the outage is unknown.
#[test]
fn not_ready_problem_survives_a_clock_set_back() {
    let later = "2026-11-21T11:00:00Z";
    let stored = fleet(3, &[("Progressing", "False", "Stable", later), ("Ready", "False", "NodesNotReady", later)]);
    let health = stored.health(Some(&deployment(2, [3, 3, 2], COMPLETE)), &[]);
    assert_eq!((&*facts(&health)[2], health.recheck), ("NodesNotReady", None));
}

#[test]
fn scale_up_past_its_deadline_is_a_problem() {
    let scaling_since =
        |time| fleet(5, &[("Progressing", "True", "Scaling", time), ("Ready", "False", "Scaling", time)]);
    let scaling = ["True MinimumNodesAvailable", "True Scaling", "", "False NodesNotReady"];
    check(&settled(5), Some(&deployment(1, [3, 3, 3], COMPLETE)), &three_pods(), scaling);

    let three_of_five = deployment(2, [5, 5, 3], COMPLETE);
    check(&scaling_since("2026-11-21T10:00:01Z"), Some(&three_of_five), &three_pods(), scaling);

    let too_long = ["True MinimumNodesAvailable", "True Scaling", "NodesNotReady", "False NodesNotReady"];
    check(&scaling_since("2026-11-21T10:00:00Z"), Some(&three_of_five), &three_pods(), too_long);
}

/// Otherwise each additional pod would be a problem, if the time is nearly as long as the deadline.
#[test]
fn additional_pods_without_a_probe_get_their_time_too() {
    let problems = |time: &str| {
        let stored = fleet(5, &[("Progressing", "True", "Scaling", time), ("Ready", "False", "Scaling", time)]);
        let wanted = Wanted { proof: Proof::Seconds(30), ..stored };
        wanted.health(Some(&deployment(2, [5, 5, 3], COMPLETE)), &[]).problems.len()
    };
    assert_eq!((problems("2026-11-21T09:59:31Z"), problems("2026-11-21T09:59:30Z")), (0, 1));
}

#[test]
fn unpullable_image_is_a_problem_while_old_pods_serve() {
    let mut pods = three_pods();
    pods.push(unpullable_pod("d"));
    let failing = ["True MinimumNodesAvailable", "True RollingOut", "ImagePullFailed", "True Ready"];
    check(&settled(3), Some(&deployment(2, [4, 1, 3], ONGOING)), &pods, failing);

    let stalled = ["True MinimumNodesAvailable", "True RollingOut", "ImagePullFailed, RolloutStalled", "True Ready"];
    check(&settled(3), Some(&deployment(2, [4, 1, 3], "ProgressDeadlineExceeded")), &pods, stalled);
}

/// A rollout to three pods, of which the Deployment controller observes progress again and again.
fn rolling_out() -> Live<DeploymentView> {
    let condition = json!({
        "type": "Progressing", "status": "True", "reason": ONGOING, "message": "ReplicaSet \"x-new\" is progressing.",
    });
    let status = json!({
        "observedGeneration": 2, "replicas": 4, "updatedReplicas": 1, "readyReplicas": 3, "conditions": [condition],
    });
    live("x", &json!({"status": status}))
}

fn crashing_pod(name: &str) -> Arc<Live<PodView>> {
    let container = json!({
        "name": "memcached", "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}},
    });
    pod(name, &json!({"phase": "Running", "containerStatuses": [container]}))
}

const CRASHES: &str = "Pod x-new-1: container memcached exited 4 times, last with code 1: Error";
const STALLED: &str = "Rollout made no progress for 600s: pods crash again and again, and no more become available";

/// The Deployment controller takes each start of a crashing pod for progress.
#[test]
fn rollout_whose_pods_crash_has_stalled_although_the_deployment_reports_progress() {
    let told = |stalls_at: &str| {
        let wanted = Wanted { stalls_at: Some(at(stalls_at)), ..settled(3) };
        let health = wanted.health(Some(&rolling_out()), &[crashing_pod("x-new-1")]);
        let problems: Vec<_> = health.problems.into_iter().map(|it| it.message).collect();
        (problems, health.recheck)
    };
    let later = "2026-11-21T10:10:01Z";
    assert_eq!(told(later), (vec![CRASHES.to_owned()], Some(at(later))), "it has one second more");
    for stalls_at in [NOW, LONG_AGO] {
        let expected = vec![CRASHES.to_owned(), STALLED.to_owned()];
        assert_eq!(told(stalls_at), (expected, None), "{stalls_at}");
    }
}

/// Pods of a good release that are lost with a node are regained one after another. Each is progress to the Deployment controller.
#[test]
fn rollout_that_only_lacks_pods_does_not_stall_by_itself() {
    let starting = || pod("x-new-1", &json!({"phase": "Pending"}));
    let lost = || pod("x-new-2", &json!({"phase": "Unknown"}));
    let ready = || ready_pod("x-new-3", "10.0.0.3");
    for (deployment, pods, what) in [
        (rolling_out(), vec![], "no pods"),
        (rolling_out(), vec![starting(), lost(), ready()], "a node is lost"),
        (rolling_out(), vec![starting(), crashing_pod("x-old-1")], "a pod of the former release crashes"),
        (deployment(2, [4, 1, 3], ONGOING), vec![crashing_pod("x-new-1")], "the Deployment names no ReplicaSet"),
    ] {
        for stalls_at in [NOW, LONG_AGO] {
            let health = Wanted { stalls_at: Some(at(stalls_at)), ..settled(3) }.health(Some(&deployment), &pods);
            let has_stalled = health.problems.iter().any(|it| it.kind == ProblemKind::ROLLOUT_STALLED);
            assert_eq!((has_stalled, health.recheck), (false, None), "{what}");
        }
    }
}

#[test]
fn size_zero_reports_scaled_to_zero() {
    let ending = ["True ScaledToZero", "True Scaling", "", "True ScaledToZero"];
    check(&settled(0), Some(&deployment(2, [1, 1, 1], COMPLETE)), &three_pods()[..1], ending);

    let ended = ["True ScaledToZero", "False Stable", "", "True ScaledToZero"];
    check(&settled(0), Some(&deployment(2, [0, 0, 0], COMPLETE)), &[], ended);
}

#[test]
fn messages_count_ready_and_updated_pods() {
    let rolling = fleet(3, &[]).health(Some(&deployment(2, [4, 1, 3], "ProgressDeadlineExceeded")), &[]);
    let message = |verdict: Option<Verdict>| verdict.expect("a verdict").message;
    assert_eq!(message(rolling.available), "3/3 nodes are ready");
    assert_eq!(message(rolling.progressing), "1/3 nodes updated");
    assert_eq!(rolling.problems[0].message, "Rollout made no progress for 600s: no progress");
    assert_eq!(rolling.ready.message, "all 3 nodes are ready");

    let unseen = fleet(3, &[]).health(Some(&deployment(1, [3, 3, 3], COMPLETE)), &[]);
    assert_eq!(message(unseen.progressing), "0/3 nodes updated");
}

#[test]
fn recheck_is_due_when_time_alone_changes_a_verdict() {
    let recheck =
        |stored: &[_], pods: &[_]| fleet(3, stored).health(Some(&deployment(2, [3, 3, 2], COMPLETE)), pods).recheck;
    let stable = ("Progressing", "False", "Stable", "2026-11-21T10:09:50Z");
    let unready = |since| ("Ready", "False", "NodesNotReady", since);
    assert_eq!(recheck(&[], &[]), Some(at("2026-11-21T10:11:00Z")), "unready since now");
    assert_eq!(recheck(&[stable, unready("2026-11-21T10:09:30Z")], &[]), Some(at("2026-11-21T10:10:50Z")));
    assert_eq!(recheck(&[stable, unready("2026-11-21T10:09:55Z")], &[]), Some(at("2026-11-21T10:10:55Z")));

    let condition = json!({"type": "PodScheduled", "status": "False", "lastTransitionTime": "2026-11-21T10:09:45Z"});
    let unscheduled = pod("a", &json!({"phase": "Pending", "conditions": [condition]}));
    assert_eq!(recheck(&[], &[unscheduled]), Some(at("2026-11-21T10:10:15Z")), "the earlier of the two");

    let settled = fleet(3, &[]).health(Some(&deployment(2, [3, 3, 3], COMPLETE)), &[]);
    assert_eq!(settled.recheck, None);
}

/// The clock was put back after the status reported the problem, and has now nearly caught up.
#[test]
fn reported_lack_of_pods_lasts_although_the_clock_was_put_back() {
    let problems = |degraded_since: &str| {
        let unready = ("Ready", "False", "NodesNotReady", "2026-11-21T10:09:30Z");
        let degraded = ("Degraded", "True", "NodesNotReady", degraded_since);
        let fleet = fleet(3, &[STABLE, unready, degraded]);
        fleet.health(Some(&deployment(2, [3, 3, 2], COMPLETE)), &[]).problems.len()
    };
    assert_eq!(problems("2026-11-21T10:09:30Z"), 1);
    assert_eq!(problems("2026-11-21T10:09:29Z"), 0, "of an earlier lack of pods");
}

#[test]
fn refused_pods_are_reported_as_a_problem() {
    let reason = |message: &str| {
        let condition = json!({"type": "ReplicaFailure", "status": "True", "message": message});
        let status = json!({"observedGeneration": 2, "conditions": [condition]});
        let told = fleet(3, &[]).health(Some(&live("x", &json!({"status": status}))), &[]);
        let [problem] = told.problems.try_into().expect("one problem");
        (problem.kind.reason, problem.message)
    };
    let quota = "pods \"x-1\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2";
    let expected = "pods cannot be created: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2; raise \
                    the quota or request less";
    assert_eq!(reason(quota), ("QuotaExceeded", expected.to_owned()));
    let rule = "pods \"x-1\" is forbidden: violates PodSecurity \"restricted:latest\"";
    let expected = "pods cannot be created: violates PodSecurity \"restricted:latest\"";
    assert_eq!(reason(rule), ("ChildRejected", expected.to_owned()));
}
