use serde_json::{Value, json};
use workloads::SecurityProfile;

use super::*;
use crate::{desired, samples};

const COMPLETE: &str = "NewReplicaSetAvailable";
const STALLED: &str = "ProgressDeadlineExceeded";

/// A Deployment at generation 2 with `pods` pods, all of the current template, and `reason` in `Progressing`.
fn deployment(observed: i64, pods: i32, reason: &str) -> Live<DeploymentView> {
    let status = json!({
        "observedGeneration": observed, "replicas": pods, "updatedReplicas": pods, "availableReplicas": pods,
        "conditions": [{"type": "Progressing", "status": "?", "reason": reason, "message": "stuck"}],
    });
    Live {
        namespace: "default".into(),
        name: "x".into(),
        uid: "u".into(),
        generation: 2,
        created: None,
        deleting: None,
        view: serde_json::from_value(json!({"status": status})).expect("a view of the object"),
    }
}

fn app(image: &str, rollback: &str, status: &Value) -> HelloApp {
    samples::with_status(&json!({"image": image, "size": 3, "rollback": rollback}), status)
}

fn template(image: &str) -> PodTemplateSpec {
    desired::template(&samples::with_spec(&json!({"image": image})), SecurityProfile::default())
}

fn text(image: &str) -> String {
    serde_json::to_string(&template(image)).expect("JSON")
}

fn rolled_back_at(generation: i64, remembered: &str) -> Value {
    json!({"lastAvailableTemplate": text(remembered), "rolledBack": {"generation": generation, "because": "bad"}})
}

#[test]
fn fully_available_template_is_remembered() {
    let remembered = |live: &Live<DeploymentView>| {
        let stored = json!({"lastAvailableTemplate": text("old")});
        remember(&app("new", "OnStall", &stored), &template("new"), Some(live), None).template
    };
    assert_eq!(remembered(&deployment(2, 3, COMPLETE)), Some(text("new")));
    assert_eq!(remembered(&deployment(2, 2, COMPLETE)), Some(text("old")), "a pod is missing");
    assert_eq!(remembered(&deployment(1, 3, COMPLETE)), Some(text("old")), "the counts belong to the old template");
}

#[test]
fn size_zero_remembers_no_template() {
    let none = samples::with_spec(&json!({"image": "new", "size": 0, "rollback": "OnStall"}));
    assert_eq!(remember(&none, &template("new"), Some(&deployment(2, 0, COMPLETE)), None), Memory::default());
}

#[test]
fn oversized_template_is_not_remembered() {
    let mut large = template("new");
    let annotations = [("a".to_owned(), "x".repeat(LARGEST_TEMPLATE))];
    large.metadata.get_or_insert_default().annotations = Some(annotations.into());
    let hello = app("new", "OnStall", &json!({}));
    assert_eq!(remember(&hello, &large, Some(&deployment(2, 3, COMPLETE)), None), Memory::default());
}

#[test]
fn stalled_generation_rolls_back_to_a_remembered_template() {
    let stalled = deployment(2, 1, STALLED);
    let rolled_back = |stored: &Value, live: &Live<DeploymentView>| {
        remember(&app("new", "OnStall", stored), &template("new"), Some(live), Some("no such image")).rolled_back
    };
    let old = json!({"lastAvailableTemplate": text("old")});
    let expected = RolledBack { generation: 1, because: "no such image".to_owned() };
    assert_eq!(rolled_back(&old, &stalled), Some(expected));
    assert_eq!(rolled_back(&old, &deployment(1, 1, STALLED)), None, "the previous template has stalled");
    assert_eq!(rolled_back(&json!({}), &stalled), None, "no template was ever available");
    assert_eq!(rolled_back(&json!({"lastAvailableTemplate": text("new")}), &stalled), None, "the same template");
    assert_eq!(rolled_back(&old, &deployment(2, 1, "ReplicaSetUpdated")), None, "it still makes progress");
}

#[test]
fn rollback_lasts_until_the_spec_changes() {
    let given_up = app("new", "OnStall", &rolled_back_at(1, "old"));
    assert_eq!(instead(&given_up), Some(template("old")));
    let after = remember(&given_up, &template("old"), Some(&deployment(2, 3, COMPLETE)), None);
    assert_eq!(after, Memory::stored(given_up.status.as_ref()), "the status still stores the old template");

    let changed = app("new", "OnStall", &rolled_back_at(0, "old"));
    assert_eq!(instead(&changed), None);
    let after = remember(&changed, &template("new"), Some(&deployment(1, 3, COMPLETE)), None);
    assert_eq!((after.template, after.rolled_back), (Some(text("old")), None));
}

#[test]
fn rollback_policy_never_remembers_nothing() {
    let never = app("new", "Never", &rolled_back_at(1, "old"));
    assert_eq!(instead(&never), None);
    assert_eq!(remember(&never, &template("new"), Some(&deployment(2, 1, STALLED)), None), Memory::default());
}

#[test]
fn unparsable_template_is_ignored() {
    let status = json!({"lastAvailableTemplate": "{", "rolledBack": {"generation": 1}});
    assert_eq!(instead(&app("new", "OnStall", &status)), None);
}
