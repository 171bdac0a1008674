//! Another controller sets a field of our child, or the status, to its own value, each time that we restore ours; or it deletes our
//! child, takes it away or replaces it, each time that we put it back.

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use futures::FutureExt;
use k8s_openapi::api::core::v1::Service;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use manager::{Action, Context, Error, harness::Harness};
use model_apiserver::{Entry, Model};
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::sleep};

use crate::kit::{
    TOYS, Toy, change, is_ready, keep, keep_service, keep_unless_zero, model, put, ready, run, run_as, until, value,
    writes,
};

/// How soon the other controller reacts.
const REACTION: Duration = Duration::from_millis(20);

/// The port to which the other controller sends requests.
const THEIRS: i64 = 99;

/// Two controllers, and the object with its Service. Both write one of them.
struct Contest {
    model: Model,
    ours: Harness,
    theirs: Option<JoinHandle<()>>,
}

impl Contest {
    fn begin<F: Future<Output = ()> + Send + 'static>(theirs: impl FnOnce(Model) -> F) -> Self {
        let model = model();
        let ours = run(&model, &[], keep);
        Self::with(model, ours, theirs)
    }

    fn with<F: Future<Output = ()> + Send + 'static>(
        model: Model,
        ours: Harness,
        theirs: impl FnOnce(Model) -> F,
    ) -> Self {
        put(&model, &["a"]);
        let theirs = Some(tokio::spawn(theirs(model.clone())));
        Self { model, ours, theirs }
    }

    /// The other controller stops.
    fn end(&mut self) {
        self.theirs.take().expect("it runs").abort();
    }

    /// Returns how many times we have written objects of this resource.
    fn count(&self, resource: &str) -> usize {
        writes(&self.model).into_iter().filter(|(_, written, _)| written == resource).count()
    }

    /// Returns how many times we write objects of this resource in this time.
    async fn writes_in(&self, time: Duration, resource: &str) -> usize {
        let before = self.count(resource);
        sleep(time).await;
        self.count(resource) - before
    }

    fn target_port(&self) -> Option<i64> {
        target_port(&self.model)
    }

    fn reason(&self) -> Option<String> {
        ready(&self.model, "a")["reason"].as_str().map(str::to_owned)
    }

    /// Checks how many times we write objects of this resource: at first at once, then slower and slower, in the end once a minute.
    async fn is_slowed_down(&self, resource: &str, first: RangeInclusive<usize>, steady: RangeInclusive<usize>) {
        let written = self.writes_in(Duration::from_mins(3), resource).await;
        assert!(first.contains(&written), "in three minutes: {written}");
        let before = self.count(resource);
        let seconds = growth(Duration::from_mins(7), || self.count(resource)).await;
        let written = self.count(resource) - before;
        assert!(steady.contains(&written), "in seven more minutes: {written}");
        assert_a_minute_apart(&seconds);
    }

    /// Checks that one event has this reason, and that it was emitted once. Returns its note.
    fn note_of_the_only(&self, reason: &str) -> String {
        let events: Vec<Value> =
            self.model.objects("events.events.k8s.io").into_iter().filter(|it| it["reason"] == reason).collect();
        assert_eq!(events.len(), 1, "{events:?}");
        assert!(events[0]["series"].is_null(), "it was emitted once: {}", events[0]);
        events[0]["note"].as_str().expect("a note").to_owned()
    }

    /// Checks that the status names the contest and that one event does. Returns the note of the event.
    fn is_reported(&self) -> String {
        assert_eq!(self.reason().as_deref(), Some("FieldsContested"));
        self.note_of_the_only("FieldsContested")
    }

    fn counts_delays(&self) {
        let delayed = value(&self.ours.scrape(), "toy_operator_drift_repairs_delayed_total{child=\"Service\"}");
        assert!(delayed.is_some_and(|delayed| delayed >= 6.0), "{delayed:?}");
    }

    /// Checks that the object is ready after this time without the other controller, and that we then write no such object.
    async fn calms_down_in(&self, time: Duration, resource: &str) {
        sleep(time).await;
        assert!(is_ready(&self.model, "a"), "{:?}", self.reason());
        assert_eq!(self.writes_in(Duration::from_mins(10), resource).await, 0);
    }
}

/// Looks at a count once a second for this time. Returns the seconds in which it has grown.
async fn growth(time: Duration, count: impl Fn() -> usize) -> Vec<u64> {
    let (mut known, mut seconds) = (count(), Vec::new());
    for second in 0..time.as_secs() {
        sleep(Duration::from_secs(1)).await;
        let now = count();
        if now > known {
            seconds.push(second);
        }
        known = now;
    }
    seconds
}

/// Checks that writes in these seconds are at least a minute apart. A deletion and the create right after it are one write.
fn assert_a_minute_apart(seconds: &[u64]) {
    let is_too_close = |pair: &[u64]| (2..60).contains(&(pair[1] - pair[0]));
    assert!(!seconds.windows(2).any(is_too_close), "{seconds:?}");
}

fn target_port(model: &Model) -> Option<i64> {
    model.object("services", "default", "a")?["spec"]["ports"][0]["targetPort"].as_i64()
}

async fn set_target_port(model: Model) {
    let api: Api<Service> = Api::namespaced(model.client_named("other"), "default");
    let parameters = PatchParams { field_manager: Some("other-controller".to_owned()), ..PatchParams::default() };
    let patch = Patch::Json::<()>(
        serde_json::from_value(json!([{"op": "replace", "path": "/spec/ports/0/targetPort", "value": THEIRS}]))
            .expect("a patch"),
    );
    loop {
        sleep(REACTION).await;
        if target_port(&model).is_some_and(|port| port != THEIRS) {
            api.patch("a", &parameters, &patch).map(Result::unwrap).await;
        }
    }
}

async fn set_status(model: Model) {
    let api: Api<Toy> = Api::namespaced(model.client_named("other"), "default");
    loop {
        sleep(REACTION).await;
        let mut ready = ready(&model, "a");
        if !ready.is_null() && ready["reason"] != "Theirs" {
            ready["reason"] = json!("Theirs");
            let patch = Patch::Merge(json!({"status": {"conditions": [ready]}}));
            api.patch_status("a", &PatchParams::default(), &patch).map(Result::unwrap).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn contested_field_is_restored_at_most_once_a_minute_and_reported_once() {
    let mut contest = Contest::begin(set_target_port);
    contest.is_slowed_down("services", 4..=11, 6..=7).await; // with the create
    let note = contest.is_reported();
    assert!(note.contains("other-controller") && note.contains("targetPort"), "{note}");
    contest.counts_delays();

    contest.end();
    sleep(Duration::from_mins(1)).await;
    assert_eq!(contest.target_port(), Some(1), "the last revert stays");
    contest.calms_down_in(Duration::from_mins(3), "services").await;
}

/// Keeps a Service with another target port, as another release of the operator may.
async fn keep_their_port(toy: Arc<Toy>, context: Context<Toy>) -> Result<Action, Error> {
    let port = json!([{"name": "a", "port": toy.spec.size, "protocol": "TCP", "targetPort": THEIRS}]);
    keep_service(&toy, &context, json!({"spec": {"ports": port}})).await
}

/// Two managers over one object, both of this runtime. Neither knows that it slows down the other.
#[tokio::test(start_paused = true)]
async fn two_managers_that_want_different_values_write_at_most_once_a_minute_each() {
    let (model, names) = (model(), ["toys", "toys-of-another-release"]);
    put(&model, &["a"]);
    let _managers = [run_as(&model, names[0], &[], keep), run_as(&model, names[1], &[], keep_their_port)];
    let count = |name: &'static str, resource: &'static str| {
        let model = model.clone();
        let is_counted = move |it: &&Entry| it.client == name && it.resource == resource && it.verb.writes();
        move || model.requests().iter().filter(is_counted).count()
    };
    sleep(Duration::from_mins(3)).await;
    let statuses = names.map(|name| count(name, TOYS)());
    let (steady, services) = (Duration::from_mins(7), names.map(|name| count(name, "services")));
    let before = services.each_ref().map(|count| count());
    let (ours, theirs) = tokio::join!(growth(steady, &services[0]), growth(steady, &services[1]));
    for ((seconds, count), before) in [ours, theirs].into_iter().zip(&services).zip(before) {
        assert_a_minute_apart(&seconds);
        // Several writes within one second would be one second with a write.
        for (what, number) in [("seconds with a write", seconds.len()), ("writes", count() - before)] {
            assert!((6..=7).contains(&number), "{number} {what}: {seconds:?}");
        }
    }
    for (name, before) in names.into_iter().zip(statuses) {
        let written = count(name, TOYS)() - before;
        assert!(written <= 7, "{name} wrote the status {written} times");
    }
    assert_eq!(ready(&model, "a")["reason"], "FieldsContested");
}

/// A number that no earlier call has returned.
fn fresh(model: &Model) -> i64 {
    1_000 + i64::try_from(model.requests().len()).expect("a small number")
}

/// Keeps a Service whose target port is generated. One that another client has set is replaced by a new one.
async fn generate_port(model: Model, toy: Arc<Toy>, context: Context<Toy>) -> Result<Action, Error> {
    let target = target_port(&model).filter(|port| *port != THEIRS).unwrap_or_else(|| fresh(&model));
    let port = json!([{"name": "a", "port": 1, "protocol": "TCP", "targetPort": target}]);
    keep_service(&toy, &context, json!({"spec": {"ports": port}})).await
}

/// The generated key in the annotations of the Service.
fn key(model: &Model) -> Option<String> {
    model.object("services", "default", "a")?["metadata"]["annotations"]["key"].as_str().map(str::to_owned)
}

/// Keeps a Service with a generated key. A key that another client has removed is replaced by a new one.
async fn generate_key(model: Model, toy: Arc<Toy>, context: Context<Toy>) -> Result<Action, Error> {
    let key = key(&model).unwrap_or_else(|| fresh(&model).to_string());
    let port = json!([{"name": "a", "port": 1, "protocol": "TCP", "targetPort": 1}]);
    let service = json!({"metadata": {"annotations": {"key": key}}, "spec": {"ports": port}});
    keep_service(&toy, &context, service).await
}

async fn remove_key(model: Model) {
    let api: Api<Service> = Api::namespaced(model.client_named("other"), "default");
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"key": null}}}));
    loop {
        sleep(REACTION).await;
        if key(&model).is_some() {
            api.patch("a", &PatchParams::default(), &patch).map(Result::unwrap).await;
        }
    }
}

/// The operator wants another value after each revert.
async fn restores_slowly(mut contest: Contest) {
    contest.is_slowed_down("services", 4..=11, 6..=7).await;
    contest.is_reported();
    contest.end();
    contest.calms_down_in(Duration::from_mins(4), "services").await;
}

/// Keeps a Service with an annotation.
async fn keep_annotation(toy: Arc<Toy>, context: Context<Toy>) -> Result<Action, Error> {
    let port = json!([{"name": "a", "port": 1, "protocol": "TCP", "targetPort": 1}]);
    let service = json!({"metadata": {"annotations": {"zone": "ours"}}, "spec": {"ports": port}});
    keep_service(&toy, &context, service).await
}

/// The child differs in the rewritten field too, after every write. That is no reason to restore the contested field at once.
#[tokio::test(start_paused = true)]
async fn contested_field_beside_one_that_a_policy_rewrites_is_restored_at_most_once_a_minute() {
    let model = model();
    model.mutate("services", |service| service["metadata"]["annotations"]["zone"] = json!("of the policy"));
    let ours = run(&model, &[], keep_annotation);
    restores_slowly(Contest::with(model, ours, set_target_port)).await;
}

#[tokio::test(start_paused = true)]
async fn generated_value_that_another_client_replaces_is_restored_at_most_once_a_minute() {
    let model = model();
    let generating = model.clone();
    let ours = run(&model, &[], move |toy, context| generate_port(generating.clone(), toy, context));
    restores_slowly(Contest::with(model, ours, set_target_port)).await;
}

#[tokio::test(start_paused = true)]
async fn generated_value_that_another_client_removes_is_restored_at_most_once_a_minute() {
    let model = model();
    let generating = model.clone();
    let ours = run(&model, &[], move |toy, context| generate_key(generating.clone(), toy, context));
    restores_slowly(Contest::with(model, ours, remove_key)).await;
}

#[tokio::test(start_paused = true)]
async fn new_desired_value_is_written_at_once_despite_a_contest() {
    let mut contest = Contest::begin(set_target_port);
    sleep(Duration::from_mins(5)).await;
    change(&contest.model, "a", 7).await;
    contest.end();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(contest.target_port(), Some(7));
}

#[tokio::test(start_paused = true)]
async fn contested_status_is_restored_at_most_once_a_minute_and_reported_once() {
    let mut contest = Contest::begin(set_status);
    contest.is_slowed_down(TOYS, 4..=11, 6..=7).await; // with the first status
    contest.note_of_the_only("StatusContested");

    change(&contest.model, "a", 7).await;
    sleep(REACTION / 2).await;
    let observed = ready(&contest.model, "a")["observedGeneration"].clone();
    assert_eq!(observed, 2, "a new status is written at once");

    contest.end();
    contest.calms_down_in(Duration::from_mins(2), TOYS).await;
}

/// Clears the `managedFields` of the child whenever they name us.
async fn clear_managed_fields(model: Model) {
    let api: Api<Service> = Api::namespaced(model.client_named("other"), "default");
    let patch = Patch::Merge(json!({"metadata": {"managedFields": [{}]}}));
    let is_ours = |service: &Value| {
        let mut entries = service["metadata"]["managedFields"].as_array().into_iter().flatten();
        entries.any(|entry| entry["manager"] == "toy-controller")
    };
    loop {
        sleep(REACTION).await;
        if model.object("services", "default", "a").as_ref().is_some_and(is_ours) {
            api.patch("a", &PatchParams::default(), &patch).map(Result::unwrap).await;
        }
    }
}

/// All values are the wanted ones, but the fields belong to no manager.
#[tokio::test(start_paused = true)]
async fn child_whose_managed_fields_are_cleared_again_and_again_is_written_at_most_once_a_minute_and_reported_once() {
    let mut contest = Contest::begin(clear_managed_fields);
    contest.is_slowed_down("services", 8..=24, 12..=16).await; // an entry and an apply each time
    let note = contest.is_reported();
    assert!(note.contains("clears metadata.managedFields of Service \"a\" again and again"), "{note}");
    contest.counts_delays();

    contest.end();
    contest.calms_down_in(Duration::from_mins(4), "services").await;
}

async fn delete_child(model: Model) {
    let api: Api<Service> = Api::namespaced(model.client_named("other"), "default");
    loop {
        sleep(REACTION).await;
        if model.object("services", "default", "a").is_some() {
            api.delete("a", &DeleteParams::default()).await.expect("it is deleted");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn child_that_is_deleted_again_and_again_is_created_at_most_once_a_minute_and_reported_once() {
    let mut contest = Contest::begin(delete_child);
    contest.is_slowed_down("services", 4..=11, 6..=7).await;
    let note = contest.is_reported();
    assert!(note.contains("deletes Service \"a\" again and again"), "{note}");
    contest.counts_delays();

    contest.end();
    contest.calms_down_in(Duration::from_mins(4), "services").await;
    assert_eq!(contest.target_port(), Some(1), "the last one stays");
}

#[tokio::test(start_paused = true)]
async fn child_that_is_deleted_twice_is_created_at_once() {
    let model = model();
    put(&model, &["a"]);
    let _harness = run(&model, &[], keep);
    until("the Service", || target_port(&model) == Some(1)).await;
    for _ in 0..2 {
        sleep(REACTION).await;
        model.take("services", "default", "a");
        let took = until("the Service again", || target_port(&model) == Some(1)).await;
        assert!(took < Duration::from_millis(200), "{took:?}");
    }
    until("it is ready", || is_ready(&model, "a")).await;
}

#[tokio::test(start_paused = true)]
async fn child_that_the_operator_itself_deletes_is_created_at_once() {
    let model = model();
    put(&model, &["a"]);
    let _harness = run(&model, &[], keep_unless_zero);
    let is_there = || model.object("services", "default", "a").is_some();
    until("the Service", is_there).await;
    for _ in 0..5 {
        change(&model, "a", 0).await;
        until("no Service", || !is_there()).await;
        change(&model, "a", 1).await;
        let took = until("the Service again", is_there).await;
        assert!(took < Duration::from_millis(200), "{took:?}");
    }
}

/// Whether the Service has no address. This field is immutable.
fn is_headless(model: &Model) -> Option<bool> {
    Some(model.object("services", "default", "a")?["spec"]["clusterIP"] == "None")
}

/// Keeps a Service that is headless if the object's size is odd.
async fn keep_headless_if_odd(toy: Arc<Toy>, context: Context<Toy>) -> Result<Action, Error> {
    let size = toy.spec.size;
    let mut spec = json!({"ports": [{"name": "a", "port": 1, "protocol": "TCP", "targetPort": size}]});
    if size % 2 == 1 {
        spec["clusterIP"] = json!("None");
    }
    keep_service(&toy, &context, json!({"spec": spec})).await
}

/// Acts as a second release, whose Service has an address.
async fn replace_headless(model: Model) {
    loop {
        sleep(REACTION).await;
        if is_headless(&model) == Some(true) {
            let ours = model.take("services", "default", "a").expect("a Service");
            let (labels, owners) = (&ours["metadata"]["labels"], &ours["metadata"]["ownerReferences"]);
            model.put(json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {"name": "a", "namespace": "default", "labels": labels, "ownerReferences": owners},
                "spec": {"clusterIP": "10.96.0.9", "ports": [{"name": "a", "port": 1, "protocol": "TCP", "targetPort": 1}]},
            }));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn child_whose_immutable_field_differs_again_and_again_is_replaced_at_most_once_a_minute_and_reported_once() {
    let model = model();
    let ours = run(&model, &[], keep_headless_if_odd);
    let mut contest = Contest::with(model, ours, replace_headless);
    contest.is_slowed_down("services", 9..=30, 12..=16).await; // a deletion and a create each time
    let note = contest.is_reported();
    assert!(note.contains("creates Service \"a\" with another type again and again"), "{note}");

    contest.end();
    change(&contest.model, "a", 7).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(is_headless(&contest.model), Some(true), "the edit of a user does not wait");
    assert_eq!(contest.target_port(), Some(7));
    contest.calms_down_in(Duration::from_mins(4), "services").await;
}

#[tokio::test(start_paused = true)]
async fn each_edit_of_an_immutable_field_replaces_the_child_at_once() {
    let model = model();
    put(&model, &["a"]);
    let _harness = run(&model, &[], keep_headless_if_odd);
    until("a headless Service", || is_headless(&model) == Some(true)).await;
    for size in 2..=9 {
        change(&model, "a", size).await;
        let took = until("the other type", || is_headless(&model) == Some(size % 2 == 1)).await;
        assert!(took < Duration::from_millis(200), "{took:?}");
    }
    until("it is ready", || is_ready(&model, "a")).await;
}

async fn remove_owner(model: Model) {
    let api: Api<Service> = Api::namespaced(model.client_named("other"), "default");
    let patch = Patch::Merge(json!({"metadata": {"ownerReferences": null}}));
    loop {
        sleep(REACTION).await;
        let service = model.object("services", "default", "a").unwrap_or_default();
        if service["metadata"]["ownerReferences"].is_array() {
            api.patch("a", &PatchParams::default(), &patch).map(Result::unwrap).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn child_whose_owner_is_removed_again_and_again_is_adopted_at_most_once_a_minute() {
    let mut contest = Contest::begin(remove_owner);
    contest.is_slowed_down("services", 4..=13, 6..=7).await;
    let note = contest.is_reported();
    assert!(note.contains("ownerReferences"), "{note}");
    contest.end();
    contest.calms_down_in(Duration::from_mins(4), "services").await;
}
