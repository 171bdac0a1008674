//! Migrations against a model of the API server, which can fail, and can kill the command, at any request.

use std::{
    collections::BTreeSet,
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use fault_plan::{Plan, enumerate};
use model_apiserver::{Model, Planned};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::{
    Failure, KindReport, Objects, Options, Outcome, Output, Target, choose, json as as_json, run, summary, table,
};

const THINGS: &str = "things.example.com";
const CRDS: &str = "customresourcedefinitions.apiextensions.k8s.io";
/// Stands for the version in which the model stores an object: each write sets it.
const STORED_AS: &str = "stored-as";

fn options() -> Options {
    Options { kinds: Vec::new(), dry_run: false, force: false, workers: 2, chunk_size: 2, output: Output::Table }
}

fn target() -> Target {
    Target { definition: THINGS.to_owned(), kind: "Thing".to_owned() }
}

fn definition(storage: &str, stored: &[&str]) -> Value {
    let version = |name: &str| {
        json!({
            "name": name, "served": true, "storage": name == storage,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": THINGS},
        "spec": {
            "group": "example.com", "names": {"kind": "Thing", "plural": "things"}, "scope": "Namespaced",
            "versions": [version("v1"), version("v1alpha1"), version("v2")],
        },
        "status": {"storedVersions": stored},
    })
}

/// A model with five objects in two namespaces, all of which may be stored as v1alpha1.
fn model() -> Model {
    let model = Model::new();
    model.add_namespace("shop");
    model.install(&definition("v1", &["v1alpha1", "v1"]));
    for (namespace, name) in [("default", "a"), ("default", "b"), ("shop", "a"), ("shop", "b"), ("shop", "c")] {
        model.put(json!({
            "apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"namespace": namespace, "name": name},
            "spec": {"size": 1.50, "of": format!("{namespace}/{name}")},
        }));
    }
    model.mutate(THINGS, |object| object["metadata"]["annotations"][STORED_AS] = json!("v1"));
    model
}

async fn migrate(model: &Model, options: &Options) -> KindReport {
    let mut reports = run(&model.client(), &[target()], options, |_| ()).await;
    reports.remove(0)
}

fn stored_versions(model: &Model) -> Value {
    model.object(CRDS, "", THINGS).expect("the definition")["status"]["storedVersions"].clone()
}

/// The objects that are not known to be stored as v1.
fn left(model: &Model) -> Vec<String> {
    let objects = model.objects(THINGS).into_iter();
    let old = objects.filter(|object| object["metadata"]["annotations"][STORED_AS] != "v1");
    old.map(|object| object["spec"]["of"].as_str().expect("a name").to_owned()).collect()
}

/// Executes the plan; the signal `kill` kills the command.
fn plan(model: &Model, text: &str, signal: impl Fn(&str) + Send + Sync + 'static) -> Arc<Planned> {
    let planned = Arc::new(Planned::with_signals(&text.parse().expect("a plan"), move |name| {
        signal(name);
        Box::pin(async {})
    }));
    model.set_shared_faults(planned.clone());
    planned
}

#[tokio::test(start_paused = true)]
async fn every_object_is_rewritten_once_and_old_versions_are_pruned() {
    let model = model();
    let before = model.objects(THINGS);
    let seen = std::cell::RefCell::new(Vec::new());
    let reports = run(&model.client(), &[target()], &options(), |it| seen.borrow_mut().push((it.done, it.total))).await;
    let KindReport { outcome, objects, failures, .. } = &reports[0];
    assert_eq!((*outcome, objects.rewritten, failures.len()), (Outcome::Migrated, 5, 0), "{reports:?}");
    assert_eq!(*seen.borrow(), [(2, 5), (4, 5), (5, 5)]);
    assert!(left(&model).is_empty());
    assert_eq!(stored_versions(&model), json!(["v1"]));
    let specs = |objects: &[Value]| objects.iter().map(|object| object["spec"].clone()).collect::<Vec<_>>();
    assert_eq!(specs(&before), specs(&model.objects(THINGS)), "only the stored form changes");
    let writes: Vec<_> = model.requests().into_iter().filter(|it| it.verb.writes()).collect();
    assert_eq!(writes.len(), 6, "one for each object, and one for the definition: {writes:#?}");
    summary(&reports).expect("success");

    let version = model.version();
    let again = migrate(&model, &options()).await;
    assert_eq!((again.outcome, again.objects), (Outcome::UpToDate, Objects::default()));
    let forced = migrate(&model, &Options { force: true, ..options() }).await;
    assert_eq!((forced.outcome, forced.objects.current), (Outcome::Migrated, 5));
    assert_eq!(model.version(), version, "nothing was written");
}

#[tokio::test(start_paused = true)]
async fn command_that_is_killed_at_any_request_completes_when_it_runs_again() {
    let whole = model();
    migrate(&whole, &options()).await;
    let requests = whole.requests();
    let writes: Vec<_> = requests.iter().filter(|it| it.verb.writes()).map(fault_plan::Request::from).collect();
    let turns = (1..=requests.len()).map(|n| format!("after * * #{n} -> signal kill + drop").parse().expect("a plan"));
    let plans: Vec<Plan> = enumerate::crashes(&writes).into_iter().chain(turns).collect();
    assert!(plans.len() > 20, "{}", plans.len());
    for plan in plans {
        let model = model();
        let (alive, killed) = (Arc::new(AtomicBool::new(true)), Arc::new(Notify::new()));
        let (of_plan, notify) = (alive.clone(), killed.clone());
        let planned = Arc::new(Planned::with_signals(&plan, move |_| {
            of_plan.store(false, Ordering::Relaxed);
            notify.notify_one();
            Box::pin(pending())
        }));
        model.set_shared_faults(planned.clone());
        let client = model.client_while(alive, "killed");
        let (targets, options) = ([target()], options());
        tokio::select! {
            () = killed.notified() => {}
            _ = run(&client, &targets, &options, |_| ()) => {}
        }
        assert!(planned.unused().is_empty(), "{plan}");
        // What must hold at every moment, because the user may take the old version out of the definition then.
        assert!(stored_versions(&model) != json!(["v1"]) || left(&model).is_empty(), "{plan}: {:?}", left(&model));
        let report = migrate(&model, &options).await;
        assert!(matches!(report.outcome, Outcome::Migrated | Outcome::UpToDate), "{plan}: {report:?}");
        assert_eq!((left(&model), stored_versions(&model)), (Vec::new(), json!(["v1"])), "{plan}");
        assert_eq!(model.objects(THINGS).len(), 5, "{plan}");
    }
}

#[tokio::test(start_paused = true)]
async fn passing_errors_are_retried() {
    let model = model();
    let faults = plan(
        &model,
        "before list things.example.com #1..2 -> answer 503; after patch things.example.com shop/b #1 -> drop; \
         before patch things.example.com default/a #1..3 -> answer 429 retry-after=\"2\"; before patch \
         customresourcedefinitions.apiextensions.k8s.io/status #1 -> answer 500",
        |_| (),
    );
    let report = migrate(&model, &options()).await;
    assert!(faults.unused().is_empty(), "{:?}", faults.unused());
    assert_eq!((report.outcome, report.objects.total()), (Outcome::Migrated, 5), "{report:?}");
    assert_eq!((left(&model), stored_versions(&model)), (Vec::new(), json!(["v1"])));
}

#[tokio::test(start_paused = true)]
async fn refused_object_is_named_and_old_versions_stay_recorded() {
    let model = model();
    let _faults = plan(&model, "before patch things.example.com shop/b -> answer 422", |_| ());
    let report = migrate(&model, &options()).await;
    assert_eq!((report.outcome, report.objects.rewritten, report.objects.failed), (Outcome::Failed, 4, 1));
    assert_eq!(report.failures[0].object, "shop/b");
    assert_eq!((left(&model), stored_versions(&model)), (vec!["shop/b".to_owned()], json!(["v1alpha1", "v1"])));
    let why = report.error.clone().expect("an error");
    assert_eq!(why, "1 object could not be rewritten, so status.storedVersions stays v1alpha1, v1");
    assert!(summary(&[report]).expect_err("a failure").starts_with("not migrated: Thing. Nothing is lost."));
}

#[tokio::test(start_paused = true)]
async fn object_that_a_webhook_denies_as_not_found_is_not_taken_for_a_deleted_one() {
    let model = model();
    let body = json!({
        "kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound",
        "message": "admission webhook \"things.example.com\" denied the request: secrets \"s\" not found",
    });
    let rule = format!("before patch things.example.com shop/b -> answer 404 body={}", json!(body.to_string()));
    let _faults = plan(&model, &rule, |_| ());
    let report = migrate(&model, &options()).await;
    assert_eq!((report.outcome, report.objects.failed), (Outcome::Failed, 1));
    assert_eq!((left(&model), stored_versions(&model)), (vec!["shop/b".to_owned()], json!(["v1alpha1", "v1"])));
}

#[tokio::test(start_paused = true)]
async fn object_that_cannot_be_read_does_not_stop_those_before_it() {
    let model = model();
    // The second page cannot be read, nor the second of its objects.
    let rules = "before list things.example.com #2..7 -> answer 500; before list things.example.com #9.. -> answer 500";
    let _faults = plan(&model, rules, |_| ());
    let report = migrate(&model, &options()).await;
    assert_eq!((report.outcome, report.objects.rewritten), (Outcome::Failed, 3), "{report:?}");
    assert!(
        report.error.as_ref().expect("an error").starts_with("cannot read the things after shop/a: "),
        "{report:?}"
    );
    assert_eq!(stored_versions(&model), json!(["v1alpha1", "v1"]));
}

#[tokio::test(start_paused = true)]
async fn position_that_the_api_server_forgot_costs_no_object() {
    let model = model();
    let compacted = model.clone();
    let faults = plan(&model, "before list things.example.com #2 -> signal compact", move |_| {
        compacted.put(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "shop"}}));
        compacted.compact();
    });
    let report = migrate(&model, &options()).await;
    assert!(faults.unused().is_empty());
    assert_eq!((report.outcome, left(&model)), (Outcome::Migrated, Vec::new()), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn change_of_the_storage_version_is_noticed() {
    for moment in ["before list things.example.com #2", "after patch things.example.com shop/c #1"] {
        let model = model();
        let changed = model.clone();
        let faults = plan(&model, &format!("{moment} -> signal change"), move |_| {
            let mut now = changed.object(CRDS, "", THINGS).expect("the definition");
            let next = definition("v2", &["v1alpha1", "v1", "v2"]);
            (now["spec"], now["status"]) = (next["spec"].clone(), next["status"].clone());
            changed.put(now);
        });
        let report = migrate(&model, &options()).await;
        assert!(faults.unused().is_empty(), "{moment}");
        let why = report.error.as_deref().expect("an error");
        assert!(why.starts_with("the storage version changed from v1 to v2 in the meantime; run"), "{moment}: {why}");
        assert_eq!(stored_versions(&model), json!(["v1alpha1", "v1", "v2"]), "{moment}");
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_writers_and_deletions_are_no_failures() {
    let model = model();
    let other = model.clone();
    let rules = "before patch things.example.com default/a #1 -> signal write; \
                 before patch things.example.com shop/c #1 -> signal delete; \
                 before patch customresourcedefinitions.apiextensions.k8s.io/status #1 -> signal annotate";
    let faults = plan(&model, rules, move |name| match name {
        "write" => {
            let mut object = other.object(THINGS, "default", "a").expect("an object");
            object["spec"]["size"] = json!(7);
            object["metadata"]["annotations"][STORED_AS] = json!("v1");
            other.put(object);
        }
        "delete" => drop(other.take(THINGS, "shop", "c")),
        _ => {
            let mut object = other.object(CRDS, "", THINGS).expect("the definition");
            object["metadata"]["annotations"]["another"] = json!("client");
            other.put(object);
        }
    });
    let report = migrate(&model, &options()).await;
    assert!(faults.unused().is_empty(), "{:?}", faults.unused());
    let objects = Objects { rewritten: 3, changed_meanwhile: 1, gone: 1, ..Objects::default() };
    assert_eq!((report.outcome, report.objects), (Outcome::Migrated, objects), "{report:?}");
    assert_eq!(model.object(THINGS, "default", "a").expect("an object")["spec"]["size"], 7);
    assert_eq!((left(&model), stored_versions(&model)), (Vec::new(), json!(["v1"])));
}

#[tokio::test(start_paused = true)]
async fn dry_run_writes_nothing_and_shows_what_would_be_refused() {
    let model = model();
    let dry = Options { dry_run: true, ..options() };
    let version = model.version();
    let report = migrate(&model, &dry).await;
    let accepted = Objects { accepted: 5, ..Objects::default() };
    assert_eq!((report.outcome, report.objects), (Outcome::WouldMigrate, accepted), "which are old is unknown");
    let shown = table(&[report], true);
    assert!(
        shown.starts_with("KIND    STORAGE   STORED BEFORE   ACCEPTED   CHANGED   GONE   FAILED   RESULT\n"),
        "{shown}"
    );
    let result = "can be migrated to v1; the API server does not say which of the accepted objects it would rewrite\n";
    assert!(shown.ends_with(result), "{shown}");
    let _faults = plan(&model, "before patch things.example.com shop/b -> answer 422", |_| ());
    let report = migrate(&model, &dry).await;
    assert_eq!((report.outcome, report.objects.failed), (Outcome::Failed, 1));
    assert_eq!((model.version(), left(&model).len()), (version, 5));
}

#[tokio::test(start_paused = true)]
async fn missing_permission_and_missing_definition_are_explained() {
    let model = model();
    let body = json!({
        "kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden",
        "message": "things.example.com is forbidden: User \"u\" cannot list resource \"things\" in API group \"example.com\"",
    });
    let rule = format!("before list things.example.com -> answer 403 body={}", json!(body.to_string()));
    let _faults = plan(&model, &rule, |_| ());
    let why = migrate(&model, &options()).await.error.expect("an error");
    assert!(why.starts_with("cannot read the things: things.example.com is forbidden"), "{why}");
    assert!(
        why.ends_with("the user needs the permissions that `controller-manager rbac --migrate-storage` prints"),
        "{why}"
    );
    model.set_faults(model_apiserver::NoFaults);
    model.uninstall(THINGS);
    assert_eq!(migrate(&model, &options()).await.outcome, Outcome::NotInstalled);
}

#[test]
fn kinds_are_chosen_by_any_of_their_names() {
    let other = Target { definition: "others.example.com".to_owned(), kind: "Other".to_owned() };
    let known = || vec![target(), other.clone()];
    let chosen = |names: &[&str]| choose(known(), &names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    assert_eq!(chosen(&[]), Ok(known()));
    for name in ["thing", "Things", THINGS] {
        assert_eq!(chosen(&[name]), Ok(vec![target()]), "{name}");
    }
    assert_eq!(chosen(&["foo"]), Err("--kind: there is no kind \"foo\"; known are Thing, Other".to_owned()));
}

fn reports() -> Vec<KindReport> {
    let report =
        |kind: &str, outcome, stored: &[&str], objects, failures: Vec<Failure>, error: Option<&str>| KindReport {
            definition: format!("{}s.example.com", kind.to_lowercase()),
            kind: kind.to_owned(),
            storage_version: if outcome == Outcome::NotInstalled { String::new() } else { "v1".to_owned() },
            stored_versions: stored.iter().map(|it| (*it).to_owned()).collect(),
            outcome,
            objects,
            failures,
            error: error.map(str::to_owned),
        };
    let failures: Vec<Failure> = (0..22)
        .map(|n| Failure { object: format!("shop/row-{n}"), error: "spec.size: too\u{1b}large (code 422)".to_owned() })
        .collect();
    let many = Objects { rewritten: 9_996, current: 1, changed_meanwhile: 2, gone: 1, ..Objects::default() };
    let some = Objects { rewritten: 3, failed: 22, ..Objects::default() };
    let old: &[&str] = &["v1alpha1", "v1"];
    vec![
        report("Warehouse", Outcome::Migrated, old, many, vec![], None),
        report("Library", Outcome::UpToDate, &["v1"], Objects::default(), vec![], None),
        report("Bar", Outcome::NotInstalled, &[], Objects::default(), vec![], None),
        report("Bookcase", Outcome::Failed, old, some, failures, Some("22 objects could not be rewritten")),
    ]
}

#[test]
fn table_shows_each_kind_and_what_was_refused() {
    insta::assert_snapshot!(table(&reports(), false));
}

#[test]
fn json_has_every_failure() {
    let parsed: Value = serde_json::from_str(&as_json(&reports())).expect("JSON");
    assert_eq!(parsed[3]["failures"].as_array().expect("failures").len(), 22);
    let keys: BTreeSet<&str> = parsed[0].as_object().expect("an object").keys().map(String::as_str).collect();
    let expected = ["definition", "failures", "kind", "objects", "outcome", "storageVersion", "storedVersions"];
    assert_eq!(keys, BTreeSet::from(expected));
    assert_eq!(parsed[0]["objects"]["changedMeanwhile"], 2);
}
