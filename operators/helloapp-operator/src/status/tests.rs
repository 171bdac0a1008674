use serde_json::{Value, json};
use workloads::SecurityProfile;

use super::*;
use crate::samples;

const NOW: &str = "2026-11-21T10:10:00Z";
const COMPLETE: &str = "NewReplicaSetAvailable";
const ONGOING: &str = "ReplicaSetUpdated";

fn live<V: serde::de::DeserializeOwned>(object: &Value) -> Live<V> {
    Live {
        namespace: "test".into(),
        name: "x".into(),
        uid: "u".into(),
        generation: 2,
        created: None,
        deleting: None,
        view: serde_json::from_value(object.clone()).expect("a view of the object"),
    }
}

/// A Deployment at generation 2 with `[replicas, updated, ready, available]`.
fn deployment(counts: [i32; 4], reason: &str) -> Live<DeploymentView> {
    deployment_saying(counts, reason, "stuck")
}

/// The same, with this message beside the reason.
fn deployment_saying(
    [replicas, updated, ready, available]: [i32; 4],
    reason: &str,
    message: &str,
) -> Live<DeploymentView> {
    live(&json!({
        "spec": {"template": {"spec": {"containers": [{"name": "app", "image": "app:2"}]}}},
        "status": {
            "observedGeneration": 2, "replicas": replicas, "updatedReplicas": updated, "readyReplicas": ready,
            "availableReplicas": available,
            "conditions": [{"type": "Progressing", "status": "?", "reason": reason, "message": message}],
        },
    }))
}

fn app(spec: &Value, status: &Value) -> HelloApp {
    let mut hello = samples::with_status(spec, status);
    hello.metadata.namespace = Some("test".to_owned());
    hello
}

fn report(
    hello: &HelloApp,
    deployment: &Live<DeploymentView>,
    service: Option<&Live<ServiceView>>,
) -> Report<HelloAppStatus> {
    report_with_pods(hello, deployment, service, &[])
}

fn report_with_pods(
    hello: &HelloApp,
    deployment: &Live<DeploymentView>,
    service: Option<&Live<ServiceView>>,
    pods: &[Arc<Live<PodView>>],
) -> Report<HelloAppStatus> {
    report_of_writes(hello, deployment, service, pods, [true, true])
}

/// The same, if these of the Deployment and the Service have what is wanted. The API server may have refused to change them.
fn report_of_writes(
    hello: &HelloApp,
    deployment: &Live<DeploymentView>,
    service: Option<&Live<ServiceView>>,
    pods: &[Arc<Live<PodView>>],
    [is_applied, is_service_applied]: [bool; 2],
) -> Report<HelloAppStatus> {
    let security = SecurityPolicy::default();
    let wanted = desired::template(hello, security.profile(None).expect("a profile"));
    let given_up = rollback::given_up(hello, &wanted, security);
    let observed = Observed {
        wanted: &wanted,
        given_up: given_up.as_ref(),
        deployment: Some(deployment),
        is_applied,
        service,
        is_service_applied,
        pods,
    };
    of(hello, observed, security, NOW.parse().expect("a time"))
}

/// The pod template of an app with this spec, as the status stores it.
fn stored_template(spec: &Value) -> String {
    let template = desired::template(&samples::with_spec(spec), SecurityProfile::default());
    serde_json::to_string(&template).expect("JSON")
}

/// The API server has refused the template of the spec: the pods still run an earlier one, and prove nothing about this one.
#[test]
fn template_that_was_not_applied_is_neither_remembered_nor_given_up() {
    let spec = |image: &str| json!({"image": image, "size": 3, "rollback": "OnStall"});
    let hello = app(&spec("app:3"), &json!({"lastAvailableTemplate": stored_template(&spec("app:2"))}));
    for (counts, reason) in [([3; 4], COMPLETE), ([4, 1, 3, 3], "ProgressDeadlineExceeded")] {
        let live = deployment(counts, reason);
        let told = |is_applied: bool| report_of_writes(&hello, &live, None, &[], [is_applied, true]).status;
        let memory = |status: &HelloAppStatus| rollback::Memory::stored(Some(status));
        let status = told(false);
        assert_eq!(status.replicas, counts[0], "the status shows the pods that are there");
        assert_eq!(memory(&status), memory(hello.status.as_ref().expect("a status")), "{reason}");
        assert_ne!(memory(&told(true)), memory(&status), "{reason}: a Deployment that has the template decides");
    }
}

/// A later `OnStall` must not restore what was good before.
#[test]
fn disabled_rollback_forgets_also_if_the_deployment_was_not_written() {
    let rolled_back = json!({"generation": 1, "templateHash": "abc", "because": "it crashed"});
    let stored = json!({"lastAvailableTemplate": "{}", "rolledBack": rolled_back});
    let hello = app(&json!({"image": "app:3", "size": 3, "rollback": "Never"}), &stored);
    let live = deployment([3; 4], COMPLETE);
    for is_applied in [true, false] {
        let status = report_of_writes(&hello, &live, None, &[], [is_applied, true]).status;
        assert_eq!(rollback::Memory::stored(Some(&status)), rollback::Memory::default(), "{is_applied}");
    }
}

#[test]
fn status_reports_counts_selector_image_and_url() {
    let hello = app(&json!({"image": "app:2", "size": 3, "port": 8080}), &json!({}));
    let told = report(&hello, &deployment([3, 3, 3, 3], COMPLETE), Some(&live(&json!({}))));
    assert_eq!(
        serde_json::to_value(told.status).expect("JSON"),
        json!({
            "replicas": 3, "readyReplicas": 3, "availableReplicas": 3, "updatedReplicas": 3,
            "labelSelector": "app.kubernetes.io/instance=helloapp-sample,app.kubernetes.io/name=helloapp",
            "image": "app:2",
            "url": "http://helloapp-sample.test.svc:80",
            "conditions": [],
        })
    );
}

/// Its children and its memory are as before.
#[test]
fn paused_app_shows_the_present_counts_and_remembers_the_rest() {
    let stored = json!({
        "replicas": 3, "readyReplicas": 3, "availableReplicas": 3, "updatedReplicas": 3, "image": "app:1",
        "url": "http://helloapp-sample.test.svc:80", "lastAvailableTemplate": "{}",
        "rolledBack": {"generation": 7, "templateHash": "abc", "because": "it crashed"},
    });
    let hello = app(&json!({"image": "app:2", "size": 3, "port": 9090, "rollback": "OnStall"}), &stored);
    let now = NOW.parse().expect("a time");
    let told = observe(&hello, Some(&deployment([2, 1, 0, 0], ONGOING)), &[], SecurityPolicy::default(), now);
    let before = hello.status.clone().expect("a status");
    let expected = HelloAppStatus {
        replicas: 2,
        ready_replicas: 0,
        available_replicas: 0,
        updated_replicas: 1,
        label_selector: told.status.label_selector.clone(),
        rollout: Some(RolloutProgress {
            generation: 2,
            size: 3,
            updated: 1,
            outdated: 1,
            since: now,
            ..Default::default()
        }),
        ..before
    };
    assert_eq!(told.status, expected);
    assert_eq!(told.health.available.map(|it| it.reason), Some("NoReadyReplicas"));
}

/// The API server has refused the new port: the Service still has the former one.
#[test]
fn url_has_the_port_of_the_service() {
    let (former, wanted) = ("http://helloapp-sample.test.svc:80", "http://helloapp-sample.test.svc:9090");
    let hello = app(&json!({"image": "app:2", "port": 8080, "service": {"port": 9090}}), &json!({"url": former}));
    let (live, service) = (deployment([1; 4], COMPLETE), live(&json!({})));
    for (is_applied, expected) in [(true, wanted), (false, former)] {
        let status = report_of_writes(&hello, &live, Some(&service), &[], [true, is_applied]).status;
        assert_eq!(status.url.as_deref(), Some(expected), "{is_applied}");
    }
}

#[test]
fn url_is_unset_without_an_owned_service() {
    let hello = app(&json!({"image": "app:2", "port": 8080}), &json!({}));
    assert_eq!(report(&hello, &deployment([1, 1, 1, 1], COMPLETE), None).status.url, None);
}

#[test]
fn status_image_is_the_fully_rolled_out_one() {
    let image = |stored: &Value, counts: [i32; 4], reason: &str| {
        let hello = app(&json!({"image": "app:2", "size": 3}), stored);
        report(&hello, &deployment(counts, reason), None).status.image
    };
    let before = json!({"image": "app:1"});
    assert_eq!(image(&json!({}), [3, 3, 1, 1], ONGOING), None);
    assert_eq!(image(&before, [4, 1, 3, 3], ONGOING).as_deref(), Some("app:1"));
    assert_eq!(image(&before, [3, 3, 3, 3], ONGOING).as_deref(), Some("app:2"));
}

#[test]
fn ready_app_of_one_replica_reads_well() {
    let hello = app(&json!({"image": "app:2", "size": 1}), &json!({}));
    let ready = report(&hello, &deployment([1, 1, 1, 1], ONGOING), None).health.ready;
    assert_eq!(ready.message, "the only replica is ready");
}

#[test]
fn conditions_have_reasons_and_messages_about_replicas() {
    let told = |ready: i32| {
        let hello = app(&json!({"image": "app:2", "size": 3, "port": 8080}), &json!({}));
        let health = report(&hello, &deployment([3, 3, ready, ready], ONGOING), None).health;
        let verdicts = [health.available.expect("Available"), health.progressing.expect("Progressing"), health.ready];
        verdicts.map(|it| format!("{}: {}", it.reason, it.message))
    };
    assert_eq!(
        told(3),
        [
            "MinimumReplicasAvailable: 3/3 replicas are ready",
            "Stable: no change is being carried out",
            "Ready: all 3 replicas are ready",
        ]
    );
    assert_eq!(
        told(0),
        [
            "NoReadyReplicas: 0/3 replicas are ready",
            "RollingOut: 3/3 replicas updated",
            "ReplicasNotReady: 0/3 replicas are ready",
        ]
    );
}

/// Its pods are ready as soon as the program starts.
#[test]
fn app_without_a_probe_is_ready_when_its_pods_are_available() {
    for spec in [
        json!({"image": "app:2", "size": 3}),
        json!({"image": "app:2", "size": 3, "port": 80, "probe": {"disabled": true}}),
    ] {
        let told = |available: i32| {
            let hello = app(&spec, &json!({"image": "app:1"}));
            let Report { status, health } = report(&hello, &deployment([3, 3, 3, available], ONGOING), None);
            let verdicts =
                [health.available.expect("Available"), health.progressing.expect("Progressing"), health.ready];
            (status.image.unwrap_or_default(), verdicts.map(|it| format!("{}: {}", it.reason, it.message)))
        };
        let (image, verdicts) = told(0);
        assert_eq!(image, "app:1", "{spec}");
        assert_eq!(
            verdicts,
            [
                "NoReadyReplicas: 0/3 replicas have run for 10s",
                "RollingOut: 3/3 replicas updated",
                "ReplicasNotReady: 0/3 replicas have run for 10s",
            ]
        );
        let (image, [_, progressing, ready]) = told(3);
        assert_eq!(image, "app:2", "{spec}");
        assert_eq!([progressing, ready], ["Stable: no change is being carried out", "Ready: all 3 replicas are ready"]);
    }
}

/// The Deployment controller takes each start of a crashing pod for progress.
#[test]
fn rollout_whose_pods_crash_is_reported_and_rolled_back() {
    let spec = json!({"image": "app:2", "size": 3, "rollback": "OnStall", "rollout": {"progressDeadlineSeconds": 60}});
    let good = desired::template(&samples::with_spec(&json!({"image": "app:1"})), SecurityProfile::default());
    let good = serde_json::to_string(&good).expect("JSON");
    let container = json!({
        "name": "app", "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}},
    });
    let crashing = || -> Arc<Live<PodView>> {
        let pod = live(&json!({"status": {"phase": "Running", "containerStatuses": [container]}}));
        Arc::new(Live { name: "x-1".into(), ..pod })
    };
    let told = |since: &str, available: i32, pods: &[Arc<Live<PodView>>]| {
        let rollout = json!({"generation": 2, "updated": 1, "outdated": 3, "available": 3, "since": since});
        let hello = app(&spec, &json!({"lastAvailableTemplate": good, "rollout": rollout}));
        let live = deployment_saying([4, 1, 4, available], ONGOING, "ReplicaSet \"x\" is progressing.");
        let Report { status, health } = report_with_pods(&hello, &live, None, pods);
        let problems: Vec<_> = health.problems.iter().map(|it| it.kind.reason).collect();
        (problems, status.rolled_back.is_some(), status.rollout.map(|it| it.since.to_string()))
    };
    // 60 s, 30 s until a pod without a probe is available, and 10 s more.
    let long_ago = "2026-11-21T10:08:20Z";
    let stalled = vec!["CrashLooping", "RolloutStalled"];
    assert_eq!(told(long_ago, 3, &[crashing()]), (stalled, true, Some(long_ago.to_owned())));
    assert_eq!(told("2026-11-21T10:08:21Z", 3, &[crashing()]).0, ["CrashLooping"], "its time is not over");
    assert_eq!(told(long_ago, 4, &[]), (vec![], false, Some(NOW.to_owned())), "one more pod is available");
    assert_eq!(
        told("2026-11-21T00:00:00Z", 3, &[]),
        (vec![], false, Some("2026-11-21T00:00:00Z".to_owned())),
        "lost pods"
    );
}

#[test]
fn stall_is_reported_before_the_rollback() {
    let spec = json!({"image": "app:2", "size": 3, "rollback": "OnStall", "rollout": {"progressDeadlineSeconds": 60}});
    let stalled = deployment([4, 1, 3, 3], "ProgressDeadlineExceeded");
    let reasons =
        |report: &Report<HelloAppStatus>| report.health.problems.iter().map(|it| it.kind.reason).collect::<Vec<_>>();

    let good = desired::template(&samples::with_spec(&json!({"image": "app:1"})), SecurityProfile::default());
    let good = serde_json::to_string(&good).expect("JSON");
    let first = report(&app(&spec, &json!({"lastAvailableTemplate": good})), &stalled, None);
    assert_eq!(reasons(&first), ["RolloutStalled"]);
    let rolled_back = first.status.rolled_back.expect("given up");
    assert_eq!(rolled_back.because, "Rollout made no progress for 60s: stuck");

    let stored = json!({"lastAvailableTemplate": good, "rolledBack": rolled_back});
    let then = report(&app(&spec, &stored), &deployment([3, 3, 3, 3], COMPLETE), None);
    assert_eq!(reasons(&then), ["RolledBack"]);
    assert_eq!(
        then.health.problems[0].message,
        "the pods run the last available template, because the release of generation 1 made no progress; change spec.image \
         or another field of the pods to try again; the problem was: Rollout made no progress for 60s: stuck"
    );
}

/// The API server has refused the last available template: the pods still run the bad release.
#[test]
fn rollback_that_was_not_written_is_not_called_done() {
    let spec = |image: &str| json!({"image": image, "size": 3, "rollback": "OnStall"});
    let stalled = deployment([4, 1, 3, 3], "ProgressDeadlineExceeded");
    let good = stored_template(&spec("app:1"));
    let first = report(&app(&spec("app:2"), &json!({"lastAvailableTemplate": good})), &stalled, None);
    let rolled_back = first.status.rolled_back.expect("given up");

    let hello = app(&spec("app:2"), &json!({"lastAvailableTemplate": good, "rolledBack": rolled_back}));
    let then = report_of_writes(&hello, &stalled, None, &[], [false, true]);
    let told: Vec<_> = then.health.problems.iter().filter(|it| it.kind == ROLLED_BACK).map(|it| &*it.message).collect();
    assert_eq!(
        told,
        [
            "the pods should run the last available template, because the release of generation 1 made no progress, but the \
             Deployment was not written; change spec.image or another field of the pods to try again; the problem was: \
             Rollout made no progress for 600s: stuck"
        ]
    );
    assert_eq!(then.status.rolled_back, hello.status.and_then(|it| it.rolled_back), "the decision stays");
}
