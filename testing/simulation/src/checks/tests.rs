//! Each check has to find the mistake that it is for: the worlds of the operators have none.

use model_apiserver::Signalled;
use serde_json::json;

use super::{
    writes::{BURST, NEXT_EVENT},
    *,
};
use crate::{namespaces::Watched, network::Perform, stalls::Stalls, toy};

fn checks(model: &Model, watched: Watched) -> Checks {
    for namespace in crate::users::NAMESPACES {
        model.add_namespace(namespace);
    }
    let namespaces = WatchedNamespaces::new(watched, model);
    namespaces.tick(Duration::ZERO);
    Checks::new(model, &toy::cast(true), Arc::new(namespaces), Trace::new(), false)
}

/// Stores the object `a` with this status. Returns its uid.
fn put(model: &Model, status: &Value) -> String {
    let mut metadata = json!({"name": "a", "namespace": "shop", "generation": 1});
    if let Some(known) = model.object("jobs.batch", "shop", "a") {
        metadata["uid"] = known["metadata"]["uid"].clone();
    }
    let stored = model.put(json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "status": status}));
    text(&stored["metadata"]["uid"])
}

/// Lets the rollout of this object stall.
fn stall(model: &Model, uid: &str) -> Stalls {
    let progressing = json!({"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"});
    model.put(json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "a", "namespace": "shop", "generation": 1, "ownerReferences": [{"uid": uid}]},
        "status": {"observedGeneration": 1, "conditions": [progressing]},
    }));
    let mut stalls = Stalls::default();
    stalls.follow(model, Duration::from_nanos(1));
    stalls
}

#[tokio::test(start_paused = true)]
async fn stalled_rollout_that_the_status_hides_is_found() {
    let model = Model::new();
    let mut checks = checks(&model, Watched::All);
    let uid = put(&model, &json!({"observedGeneration": 1}));
    let stalls = stall(&model, &uid);
    let found = checks.check_stalls(&stalls, true).expect_err("the operator has had enough time");
    assert!(found.starts_with("the rollout of a has stalled"), "{found}");
    assert_eq!(checks.check_stalls(&stalls, false), Ok(()), "the operator may not know it yet");
    checks.status_versions.insert(uid, u64::MAX);
    assert!(checks.check_stalls(&stalls, false).is_err(), "the status was written after the stall");

    put(&model, &json!({"observedGeneration": 1, "stalled": 1}));
    assert_eq!(checks.check_stalls(&stalls, true), Ok(()));
    tokio::time::advance(Duration::from_mins(2)).await;
    assert!(checks.check_stalls(&stalls, true).is_err(), "after a minute, the status has to say more");
    assert_eq!(checks.check_stalls(&stalls, false), Ok(()), "after errors, that may be late");
}

#[tokio::test(start_paused = true)]
async fn stalls_are_judged_only_by_a_status_of_the_present_spec() {
    let model = Model::new();
    let checks = checks(&model, Watched::All);
    let paused = json!([{"type": "Ready", "reason": "Paused"}]);
    let uid = put(&model, &json!({"observedGeneration": 1, "conditions": paused}));
    let stalls = stall(&model, &uid);
    assert_eq!(checks.check_stalls(&stalls, true), Ok(()), "it is paused");
    put(&model, &json!({"observedGeneration": 0}));
    assert_eq!(checks.check_stalls(&stalls, true), Ok(()), "the operator has not seen the spec");
}

#[tokio::test(start_paused = true)]
async fn write_in_a_namespace_that_is_not_watched_is_found() {
    let model = Model::new();
    let mut checks = checks(&model, Watched::Named);
    let write = |resource: &str, key: &str| {
        let (resource, key, writer) = (resource.into(), key.into(), "operator-0".into());
        Change { version: 1, resource, key, before: None, after: None, writer }
    };
    let (ours, other) = (write("deployments.apps", "shop/a"), write("deployments.apps", "depot/a"));
    assert!(checks.check_namespace(&ours).is_ok() && checks.check_namespace(&other).is_err());
    assert_eq!(checks.check_namespace(&write("events.events.k8s.io", "depot/a")), Ok(()));
    checks.lenient_until = Duration::MAX;
    assert_eq!(checks.check_namespace(&other), Ok(()), "the cluster was just restored");
}

#[tokio::test(start_paused = true)]
async fn stalls_are_not_judged_in_a_namespace_that_is_not_watched() {
    let model = Model::new();
    let checks = checks(&model, Watched::Selected);
    let uid = put(&model, &json!({"observedGeneration": 1}));
    let stalls = stall(&model, &uid);
    assert!(checks.check_stalls(&stalls, true).is_err(), "the namespace is watched");
    assert!(checks.namespaces.leave("shop", Duration::MAX));
    checks.namespaces.tick(Duration::ZERO);
    assert_eq!(checks.check_stalls(&stalls, true), Ok(()), "the operator may not write there");
}

#[tokio::test(start_paused = true)]
async fn child_that_one_operator_takes_from_another_is_found() {
    let checks = checks(&Model::new(), Watched::All);
    let of = |kind: &str| {
        let owner = json!({"controller": true, "kind": kind});
        Some(Arc::new(json!({"metadata": {"ownerReferences": [owner]}})))
    };
    let write = |before, after| {
        let (resource, key, writer) = ("deployments.apps".into(), "shop/a".into(), "operator-0".into());
        checks.check_owner(&Change { version: 1, resource, key, before, after, writer })
    };
    assert_eq!(write(of("Job"), of("Job")), Ok(()));
    assert_eq!(write(of("CronJob"), of("CronJob")), Ok(()), "the other operator runs in the same process");
    let found = write(of("Job"), of("CronJob")).expect_err("the owner has changed");
    assert!(found.starts_with("the operator has taken the child of another"), "{found}");
    assert!(write(of("Widget"), of("Widget")).is_err(), "no operator of the process owns it");
}

#[tokio::test(start_paused = true)]
async fn second_child_is_found_only_if_its_own_operator_makes_it_once() {
    let mut checks = checks(&Model::new(), Watched::All);
    let mut made_again = |kind: &str| {
        let owner = json!({"kind": kind, "uid": format!("of a {kind}")});
        let child = Some(Arc::new(json!({"metadata": {"ownerReferences": [owner]}})));
        let change = |before, after| {
            let (resource, key, writer) = ("deployments.apps".into(), "shop/a".into(), "operator-0".into());
            Change { version: 1, resource, key, before, after, writer }
        };
        checks.remember(&change(child.clone(), None));
        checks.check_once(&change(None, child))
    };
    assert_eq!(made_again("Job"), Ok(()), "only the other operator of the process makes each child once");
    assert!(made_again("CronJob").is_err());
}

/// A change by the operator.
fn write(resource: &str, before: Option<Value>, after: Option<Value>) -> Change {
    let (resource, key, writer) = (resource.into(), "shop/a".into(), "operator-0".into());
    Change { version: 1, resource, key, before: before.map(Arc::new), after: after.map(Arc::new), writer }
}

fn network() -> Network {
    let perform: Arc<Perform> = Arc::new(|_, _| Box::pin(async {}) as Signalled);
    Network::new(0, Trace::new(), &perform)
}

#[tokio::test(start_paused = true)]
async fn write_of_what_the_operator_neither_makes_nor_owns_is_found() {
    let (mut checks, network) = (checks(&Model::new(), Watched::All), network());
    let mut judged = |resource: &str, before: Option<Value>, after: Option<Value>| {
        checks.check(&write(resource, before, after), &network).map_err(|why| why.split(':').next().map(str::to_owned))
    };
    let (some, owner) =
        (|| Some(json!({})), json!({"metadata": {"ownerReferences": [{"controller": true, "kind": "Job"}]}}));
    let foreign = Err(Some("the operator has written what it neither makes nor owns".to_owned()));
    for (before, after) in [(None, some()), (some(), some()), (some(), None)] {
        assert_eq!(judged("configmaps", before, after), foreign);
    }
    assert_eq!(judged("secrets", None, Some(owner.clone())), Ok(()), "it makes Secrets");
    assert!(judged("secrets", some(), some()).is_err(), "this one has another owner");
    assert_eq!(judged("pods", some(), some()), Ok(()), "it may change them");
    assert_eq!(judged("pods", None, Some(owner)), foreign, "it may not make them");
    assert_eq!(judged("events.events.k8s.io", None, some()), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn operator_that_creates_or_deletes_an_object_of_users_is_found() {
    let (mut checks, network) = (checks(&Model::new(), Watched::All), network());
    let mut judged = |before: Option<Value>, after: Option<Value>| {
        checks.check(&write("jobs.batch", before, after), &network).map_err(|why| why.contains("of users"))
    };
    let some = || Some(json!({"metadata": {"name": "a"}}));
    let ending = Some(json!({"metadata": {"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    assert_eq!(judged(None, some()), Err(true));
    assert_eq!(judged(some(), None), Err(true));
    assert_eq!(judged(ending, None), Ok(()), "it has removed its finalizer");
}

#[tokio::test(start_paused = true)]
async fn operator_that_changes_metadata_of_users_is_found() {
    let (mut checks, network) = (checks(&Model::new(), Watched::All), network());
    let object = |metadata: Value| Some(json!({"metadata": metadata, "status": {}}));
    for (metadata, is_right) in [
        (json!({}), true),
        (json!({"finalizers": ["batch/cleanup"]}), true),
        (json!({"annotations": {"batch/memory": "1"}}), true),
        (json!({"annotations": {"note": "1"}}), false),
        (json!({"annotations": {"other.example.com/memory": "1"}}), false),
        (json!({"labels": {"team": "1"}}), false),
        (json!({"ownerReferences": [{"uid": "1"}]}), false),
    ] {
        let judged = checks.check(&write("jobs.batch", object(json!({})), object(metadata.clone())), &network);
        assert_eq!(judged.is_ok(), is_right, "{metadata}: {judged:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_restore_nothing_excuses_what_objects_of_a_later_time_leave_behind() {
    let mut checks = checks(&Model::new(), Watched::All);
    let create = |uid: &str| write("jobs.batch", None, Some(json!({"metadata": {"uid": uid}})));
    checks.remember(&create("before"));
    assert!(!checks.is_excused("before"));
    checks.restored();
    checks.remember(&create("after"));
    assert!(checks.is_excused("before") && checks.is_excused("of the lost time") && !checks.is_excused("after"));
    checks.restored();
    assert!(checks.is_excused("after"), "the second restore may have lost it");
}

/// Stores the object `a` with this metadata beside its name, and this spec and status.
fn with(metadata: &Value, spec: &Value, status: &Value) -> Value {
    let mut object =
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec, "status": status});
    object["metadata"]["name"] = "a".into();
    object["metadata"]["namespace"] = "shop".into();
    object
}

#[test]
fn object_that_does_not_meet_the_requirements_of_all_kinds_is_found() {
    let ready = |reason: &str| json!([{"type": "Ready", "status": "True", "reason": reason}]);
    let metadata = |more: Value| {
        let mut metadata = json!({"generation": 2});
        json_patch::merge(&mut metadata, &more);
        metadata
    };
    let annotation = |name: &str, value: &str| metadata(json!({"annotations": {format!("batch/{name}"): value}}));
    let judged = |metadata: &Value, spec: &Value, status: &Value| {
        judge(&toy::TOY, &Model::new(), "batch", &with(metadata, spec, status)).is_ok()
    };
    let (usual, fine, wrong) = (metadata(json!({})), json!({}), json!({"wrong": true}));
    let status = |observed: u8, reason: &str| json!({"observedGeneration": observed, "conditions": ready(reason)});
    assert!(judged(&usual, &fine, &status(2, "Ready")));
    assert!(!judged(&usual, &wrong, &status(2, "Ready")), "the judge of its kind finds it wrong");
    assert!(!judged(&usual, &fine, &status(1, "Ready")), "the operator has not handled the spec");
    let deleted = metadata(json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}));
    assert!(!judged(&deleted, &fine, &status(2, "Ready")), "it is still being deleted");

    let asked = annotation("reconcile-requested-at", "7");
    let mut handled = status(2, "Ready");
    handled["lastHandledReconcileAt"] = "7".into();
    assert!(judged(&asked, &fine, &handled));
    assert!(!judged(&asked, &fine, &status(2, "Ready")), "the operator has not handled the request");
    assert!(!judged(&usual, &fine, &handled), "there is no request");

    let paused = annotation("paused", "true");
    assert!(judged(&paused, &wrong, &status(2, "Paused")), "a paused object may be wrong");
    assert!(!judged(&paused, &fine, &status(2, "Ready")), "it does not say that it is paused");
    assert!(!judged(&usual, &fine, &status(2, "Paused")), "it is not paused");
}

#[test]
fn child_that_outlives_its_owner_is_found() {
    let (model, cast) = (Model::new(), toy::cast(true));
    let child = |kind: &str, api_version: &str, owner: &str| {
        let metadata = json!({"name": "a", "namespace": "shop", "ownerReferences": [{"uid": owner}]});
        model.put(json!({"apiVersion": api_version, "kind": kind, "metadata": metadata}));
    };
    let uid = put(&model, &json!({}));
    child("Deployment", "apps/v1", &uid);
    child("Secret", "v1", &uid);
    assert_eq!(no_orphans(&cast, &model), Ok(()));
    child("Secret", "v1", "another");
    let found = no_orphans(&cast, &model).expect_err("there is no such owner");
    assert!(found.contains("secrets \"a\" has outlived its owner"), "{found}");
    child("Secret", "v1", &uid);
    model.take("jobs.batch", "shop", "a");
    assert!(no_orphans(&cast, &model).is_err(), "the owner is gone");
}

#[tokio::test(start_paused = true)]
async fn claim_that_is_not_so_is_found_if_the_status_is_the_last_change() {
    let model = Model::new();
    let mut checks = checks(&model, Watched::All);
    let ready = |is: &str| json!([{"type": "Ready", "status": is, "reason": "Any"}]);
    let status = |is: &str| json!({"observedGeneration": 1, "conditions": ready(is)});
    let mut object = with(&json!({"generation": 1, "uid": "uid"}), &json!({"wrong": true}), &status("True"));
    let mut judge = |object: &Value, stated: u64, other: u64| {
        model.put(object.clone());
        checks.status_versions.insert("uid".to_owned(), stated);
        (checks.other_version, checks.last_version, checks.claims_checked_at) = (other, stated.max(other), 0);
        (checks.check_claims(), checks.claims(), checks.check_claims())
    };
    let found = Err("Ready of a is true, but it is wrong".to_owned());
    assert_eq!(judge(&object, 2, 1), (found, 1, Ok(())), "nothing has changed before the second look");
    assert_eq!(judge(&object, 1, 2), (Ok(()), 1, Ok(())), "the operator may not know the last change");
    object["status"] = status("False");
    assert_eq!(judge(&object, 2, 1), (Ok(()), 1, Ok(())), "it claims nothing");
    object["status"] = status("True");
    object["metadata"]["generation"] = 2.into();
    assert_eq!(judge(&object, 2, 1), (Ok(()), 1, Ok(())), "the claim is about an earlier spec");
    object["metadata"]["generation"] = 1.into();
    object["spec"] = json!({});
    assert_eq!(judge(&object, 2, 1), (Ok(()), 2, Ok(())), "the claim is right");
}

#[tokio::test(start_paused = true)]
async fn more_events_about_an_object_than_the_recorder_lets_through_are_found() {
    let (mut checks, network) = (checks(&Model::new(), Watched::All), network());
    let event = |uid: &str| write("events.events.k8s.io", None, Some(json!({"regarding": {"uid": uid}})));
    let accepted = |checks: &mut Checks, uid: &str| {
        let all = (0..1_000).take_while(|_| checks.check(&event(uid), &network).is_ok());
        u64::try_from(all.count()).expect("a count")
    };
    assert_eq!(accepted(&mut checks, "one"), BURST + 1);
    assert_eq!(accepted(&mut checks, "other"), BURST + 1, "each object has its own");
    checks.process_starts("operator-1");
    assert_eq!(accepted(&mut checks, "one"), 0, "another process has started");
    checks.process_starts("operator-0");
    assert_eq!(accepted(&mut checks, "one"), BURST + 1);
    tokio::time::advance(2 * NEXT_EVENT).await;
    assert_eq!(accepted(&mut checks, "one"), 1, "two more in ten minutes, and the one that was too many counts");
}
