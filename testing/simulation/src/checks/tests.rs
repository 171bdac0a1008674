//! Each check has to find the mistake that it is for: the worlds of the operators have none.

use model_apiserver::Signalled;
use serde_json::json;

use super::*;
use crate::{namespaces::Watched, network::Perform, toy};

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
    checks.stated.insert(uid, u64::MAX);
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
