use serde_json::{Value, json};
use workloads::{Progress, SecurityProfile};

use super::*;
use crate::samples;

const COMPLETE: &str = "NewReplicaSetAvailable";
const STALLED: &str = "ProgressDeadlineExceeded";

/// A Deployment at generation 2 with `pods` pods, all of the current template, and `reason` in `Progressing`.
fn deployment(observed: i64, pods: i32, reason: &str) -> Live<DeploymentView> {
    live(&json!({
        "observedGeneration": observed, "replicas": pods, "updatedReplicas": pods, "availableReplicas": pods,
        "conditions": [{"type": "Progressing", "status": "?", "reason": reason, "message": "stuck"}],
    }))
}

/// A Deployment at generation 2 with this status.
fn live(status: &Value) -> Live<DeploymentView> {
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

fn hash_of(image: &str) -> String {
    hash(&template(image))
}

/// A status after a rollback from the release with the image `bad` to `remembered`.
fn rolled_back_from(bad: &str, remembered: &str) -> Value {
    let rolled_back = json!({"generation": 7, "templateHash": hash_of(bad), "because": "bad"});
    json!({"lastAvailableTemplate": text(remembered), "rolledBack": rolled_back})
}

/// What the status stores next, if the spec of `hello` has the image `image`, and no policy forbids anything.
fn next(hello: &HelloApp, image: &str, live: &Live<DeploymentView>, wrong: Option<&str>) -> Memory {
    let is_stalled = matches!(live.progress(), Progress::Stalled(_));
    next_if(is_stalled, hello, image, live, wrong)
}

/// The same, if the status reports that the rollout has stalled or not, whatever the Deployment says.
fn next_if(
    is_stalled: bool,
    hello: &HelloApp,
    image: &str,
    live: &Live<DeploymentView>,
    wrong: Option<&str>,
) -> Memory {
    let (wanted, security) = (template(image), SecurityPolicy::default());
    remember(hello, &wanted, given_up(hello, &wanted, security).as_ref(), Some(live), is_stalled, wrong, security)
}

fn instead(hello: &HelloApp, image: &str, security: SecurityPolicy) -> Option<PodTemplateSpec> {
    given_up(hello, &template(image), security).map(|it| it.instead)
}

#[test]
fn fully_available_template_is_remembered() {
    let remembered = |live: &Live<DeploymentView>, wrong: Option<&str>| {
        let stored = json!({"lastAvailableTemplate": text("old")});
        next(&app("new", "OnStall", &stored), "new", live, wrong).template
    };
    assert_eq!(remembered(&deployment(2, 3, COMPLETE), None), Some(text("new")));
    assert_eq!(remembered(&deployment(2, 2, COMPLETE), None), Some(text("old")), "a pod is missing");
    assert_eq!(
        remembered(&deployment(1, 3, COMPLETE), None),
        Some(text("old")),
        "the counts belong to the old template"
    );
    let crashing = remembered(&deployment(2, 3, COMPLETE), Some("exited 3 times, last with code 1"));
    assert_eq!(crashing, Some(text("old")), "pods that crash are available for moments");
}

#[test]
fn size_zero_remembers_no_template() {
    let none = samples::with_spec(&json!({"image": "new", "size": 0, "rollback": "OnStall"}));
    assert_eq!(next(&none, "new", &deployment(2, 0, COMPLETE), None), Memory::default());
}

#[test]
fn oversized_template_is_not_remembered() {
    let mut large = template("new");
    let annotations = [("a".to_owned(), "x".repeat(LARGEST_TEMPLATE))];
    large.metadata.get_or_insert_default().annotations = Some(annotations.into());
    let hello = app("new", "OnStall", &json!({}));
    let live = deployment(2, 3, COMPLETE);
    let memory = remember(&hello, &large, None, Some(&live), false, None, SecurityPolicy::default());
    assert_eq!(memory, Memory::default());
}

#[test]
fn stalled_release_rolls_back_to_a_remembered_template() {
    let stalled = deployment(2, 1, STALLED);
    let rolled_back = |stored: &Value, live: &Live<DeploymentView>| {
        next(&app("new", "OnStall", stored), "new", live, Some("no such image")).rolled_back
    };
    let old = json!({"lastAvailableTemplate": text("old")});
    let expected = RolledBack { generation: 1, template_hash: hash_of("new"), because: "no such image".to_owned() };
    assert_eq!(rolled_back(&old, &stalled), Some(expected));
    assert_eq!(rolled_back(&old, &deployment(1, 1, STALLED)), None, "the previous template has stalled");
    assert_eq!(rolled_back(&json!({}), &stalled), None, "no template was ever available");
    assert_eq!(rolled_back(&json!({"lastAvailableTemplate": text("new")}), &stalled), None, "the same template");
    let ongoing = deployment(2, 1, "ReplicaSetUpdated");
    assert_eq!(rolled_back(&old, &ongoing), None, "it still makes progress");
    let given_up = next_if(true, &app("new", "OnStall", &old), "new", &ongoing, None).rolled_back;
    assert!(given_up.is_some(), "only the Deployment still takes it for progress");
}

/// The Deployment controller has observed the template of an older release, but still reports the stall of the former one.
#[test]
fn older_release_is_not_given_up_untried_for_the_stall_of_the_former_one() {
    let stalled = |updated: i32, refusal: Option<&str>| {
        let refused = refusal.map(|message| json!({"type": "ReplicaFailure", "status": "True", "message": message}));
        let progressing = json!({"type": "Progressing", "status": "False", "reason": STALLED, "message": "stuck"});
        let conditions: Vec<Value> = refused.into_iter().chain([progressing]).collect();
        live(&json!({
            "observedGeneration": 2, "replicas": 4, "updatedReplicas": updated, "availableReplicas": 3,
            "conditions": conditions,
        }))
    };
    let given_up = |stored: &Value, live: &Live<DeploymentView>| {
        next(&app("older", "OnStall", stored), "older", live, Some("stuck")).rolled_back.map(|it| it.template_hash)
    };
    // The operator has given up the former release, or it was down while that release stalled.
    for stored in [rolled_back_from("bad", "good"), json!({"lastAvailableTemplate": text("good")})] {
        assert_eq!(given_up(&stored, &stalled(0, None)), None, "no pod of this release exists yet");
        assert_eq!(given_up(&stored, &stalled(1, None)), Some(hash_of("older")), "its pod does not become available");
        assert_eq!(
            given_up(&stored, &stalled(0, Some("exceeded quota: q"))),
            Some(hash_of("older")),
            "no pod may exist"
        );
    }
}

#[test]
fn rollback_lasts_until_the_template_changes_and_not_until_the_size_does() {
    let security = SecurityPolicy::default();
    let mut hello = app("new", "OnStall", &rolled_back_from("new", "old"));
    for (generation, size) in [(7, 3), (8, 5)] {
        hello.metadata.generation = Some(generation);
        hello.spec.size = size;
        assert_eq!(instead(&hello, "new", security), Some(template("old")), "size {size}");
        let after = next(&hello, "new", &deployment(2, size, COMPLETE), None);
        assert_eq!(after, Memory::stored(hello.status.as_ref()), "the status still stores the old template");
    }

    assert_eq!(instead(&hello, "newer", security), None);
    let after = next(&hello, "newer", &deployment(1, 5, COMPLETE), None);
    assert_eq!((after.template, after.rolled_back), (Some(text("old")), None));
}

#[test]
fn rollback_policy_never_remembers_nothing() {
    let never = app("new", "Never", &rolled_back_from("new", "old"));
    assert_eq!(instead(&never, "new", SecurityPolicy::default()), None);
    assert_eq!(next(&never, "new", &deployment(2, 1, STALLED), None), Memory::default());
}

#[test]
fn template_under_a_forbidden_profile_is_not_restored() {
    let weak = desired::template(&samples::with_spec(&json!({"image": "old"})), SecurityProfile::Baseline);
    let mut status = rolled_back_from("new", "old");
    status["lastAvailableTemplate"] = json!(serde_json::to_string(&weak).expect("JSON"));
    let hello = app("new", "OnStall", &status);
    let strict = SecurityPolicy::new(SecurityProfile::Restricted, SecurityProfile::RootAllowed);
    assert_eq!(instead(&hello, "new", SecurityPolicy::default()), Some(weak));
    assert_eq!(instead(&hello, "new", strict), None);
    let stalled = deployment(2, 1, STALLED);
    let after = remember(&hello, &template("new"), None, Some(&stalled), true, None, strict);
    assert_eq!(after.rolled_back, None, "a stalled release stays if nothing may replace it");
}

#[test]
fn forged_or_unparsable_template_is_not_restored() {
    let mut forged = template("old");
    forged.spec.get_or_insert_default().host_network = Some(true);
    for text in ["{".to_owned(), "{}".to_owned(), serde_json::to_string(&forged).expect("JSON")] {
        let mut status = rolled_back_from("new", "old");
        status["lastAvailableTemplate"] = json!(text);
        assert_eq!(instead(&app("new", "OnStall", &status), "new", SecurityPolicy::default()), None, "{text}");
    }
}
