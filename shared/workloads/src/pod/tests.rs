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
fn ready_pod_has_an_ip_and_no_trouble() {
    let pod =
        view(&json!({"phase": "Running", "podIP": "fd00::7", "conditions": [{"type": "Ready", "status": "True"}]}));
    assert!(pod.is_ready());
    assert_eq!((pod.ip(), pod.trouble()), (Some("fd00::7".parse().expect("an address")), None));
}

#[test]
fn pod_without_status_is_pending() {
    let fresh: PodView = serde_json::from_value(json!({"metadata": {"name": "x"}})).expect("a view of the object");
    assert_eq!(fresh, PodView { phase: Phase::Pending, ready: false, ip: None, port: None, trouble: None });
    assert_eq!(view(&json!({"phase": "Hibernating"})).phase, Phase::Unknown);
}

#[test]
fn starting_container_is_no_trouble() {
    assert_eq!(trouble("ContainerCreating", ""), None);
    assert_eq!(trouble("PodInitializing", ""), None);
}

#[test]
fn image_pull_trouble_is_stable_across_attempts() {
    let expected = Trouble::ImagePull { image: "app:1".into(), message: "not found".into() };
    for (reason, message) in [
        ("ErrImagePull", "not found"),
        ("ImagePullBackOff", r#"Back-off pulling image "app:1": ErrImagePull: not found"#),
    ] {
        assert_eq!(trouble(reason, message), Some(expected.clone()));
    }
}

#[test]
fn root_image_is_reported_as_runs_as_root() {
    let message = r#"container has runAsNonRoot and image will run as root (pod: "x", container: app)"#;
    assert_eq!(trouble("CreateContainerConfigError", message), Some(Trouble::RunsAsRoot { image: "app:1".into() }));
    let unknown = "container has runAsNonRoot and image has non-numeric user (nginx), cannot verify user is non-root";
    assert_eq!(trouble("CreateContainerConfigError", unknown), Some(Trouble::RunsAsRoot { image: "app:1".into() }));
}

#[test]
fn crash_loop_reports_exit_code_and_count() {
    let expected = Trouble::CrashLoop {
        container: "app".into(),
        exit_code: 137,
        exits: 5,
        running_since: None,
        tail: "OOMKilled".into(),
    };
    assert_eq!(trouble("CrashLoopBackOff", "back-off 5m0s"), Some(expected));
}

/// Returns the exits that the view reports for a container in this state, and whether the container runs.
fn crashes(restarts: i32, state: &Value) -> Option<(i32, bool)> {
    let last = json!({"terminated": {"exitCode": 1, "reason": "Error"}});
    let container = json!({"name": "app", "restartCount": restarts, "state": state, "lastState": last});
    match view(&json!({"phase": "Running", "containerStatuses": [container]})).trouble() {
        Some(Trouble::CrashLoop { exits, running_since, .. }) => Some((*exits, running_since.is_some())),
        _ => None,
    }
}

#[test]
fn crash_loop_persists_between_exits_after_two_restarts() {
    let (running, ended) = (
        json!({"running": {"startedAt": "2026-11-21T10:00:00Z"}}),
        json!({"terminated": {"exitCode": 1, "reason": "Error"}}),
    );
    let waiting = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}});
    assert_eq!((crashes(0, &running), crashes(0, &ended)), (None, None));
    assert_eq!((crashes(1, &running), crashes(1, &ended)), (None, None));
    assert_eq!(crashes(1, &waiting), Some((2, false)));
    assert_eq!(crashes(2, &running), Some((2, true)), "as many as before");
    assert_eq!(crashes(2, &ended), Some((3, false)));
    assert_eq!(crashes(2, &waiting), Some((3, false)));
}

#[test]
fn container_that_ended_with_its_node_has_not_crashed() {
    let has_trouble = |reason: &str, state: &Value| {
        let last = json!({"terminated": {"exitCode": 255, "reason": reason}});
        let container = json!({"name": "app", "restartCount": 2, "state": state, "lastState": last});
        view(&json!({"phase": "Running", "containerStatuses": [container]})).trouble().is_some()
    };
    let running = json!({"running": {"startedAt": "2026-11-21T10:00:00Z"}});
    assert_eq!(
        ["Error", "Unknown", "ContainerStatusUnknown"].map(|reason| has_trouble(reason, &running)),
        [true, false, false]
    );
    let lost = json!({"terminated": {"exitCode": 255, "reason": "Unknown"}});
    assert!(!has_trouble("Error", &lost), "it has not started again yet");
}

#[test]
fn missing_secret_or_config_map_is_reported() {
    for (kubelet, ours) in [
        (r#"secret "db" not found"#, r#"Secret "db" not found"#),
        (r#"configmap "db" not found"#, r#"ConfigMap "db" not found"#),
        ("couldn't find key pass word in Secret test/db", r#"Secret "db" has no key "pass word""#),
        ("couldn't find key url in ConfigMap test/db", r#"ConfigMap "db" has no key "url""#),
    ] {
        let expected = Trouble::MissingInput { message: ours.into() };
        assert_eq!(trouble("CreateContainerConfigError", kubelet), Some(expected), "{kubelet}");
    }
}

#[test]
fn container_start_failure_is_reported() {
    let expected = |message: &str| Some(Trouble::CannotStart { container: "app".into(), message: message.into() });
    assert_eq!(trouble("CreateContainerConfigError", "something new"), expected("something new"));
    assert_eq!(trouble("CreateContainerError", "no command specified"), expected("no command specified"));
    let container = json!({
        "name": "app", "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
        "lastState": {"terminated": {"exitCode": 128, "reason": "StartError", "message": "exec: \"/nope\": not found"}},
    });
    let pod = view(&json!({"containerStatuses": [container]}));
    assert_eq!(pod.trouble().cloned(), expected("exec: \"/nope\": not found"));
}

#[test]
fn pod_with_pending_volumes_is_preparing() {
    let conditions = |ready: &str| {
        json!([
            {"type": "PodReadyToStartContainers", "status": ready, "lastTransitionTime": "2026-11-21T10:00:00Z"},
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-21T09:00:00Z"},
        ])
    };
    let creating = json!([{"name": "app", "state": {"waiting": {"reason": "ContainerCreating"}}}]);
    let trouble =
        |ready: &str| view(&json!({"conditions": conditions(ready), "containerStatuses": creating})).trouble().cloned();
    let since = Some("2026-11-21T10:00:00Z".parse().expect("a time"));
    assert_eq!(trouble("False"), Some(Trouble::Preparing { since }));
    assert_eq!(trouble("True"), None, "an image may take as long as it likes");
}

#[test]
fn init_container_trouble_is_reported_first() {
    let pod = view(&json!({
        "initContainerStatuses": waiting("ErrImagePull", "gone"),
        "containerStatuses": waiting("PodInitializing", ""),
    }));
    assert!(matches!(pod.trouble(), Some(Trouble::ImagePull { .. })));
}

#[test]
fn unschedulable_pod_is_reported() {
    let conditions = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/1 nodes are available", "lastTransitionTime": "2026-11-21T10:00:00Z"}]);
    let since = Some("2026-11-21T10:00:00Z".parse().expect("a time"));
    let expected = Trouble::Unschedulable { since, message: "0/1 nodes are available".into() };
    assert_eq!(view(&json!({"conditions": conditions})).trouble(), Some(&expected));
}
