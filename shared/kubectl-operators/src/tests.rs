//! Commands against a model of the API server.

use std::sync::Arc;

use clap::Parser;
use fault_plan::Plan;
use http::Response;
use http_body_util::{Either, Full};
use jiff::Timestamp;
use kube::{Client, client::Body};
use model_apiserver::{Model, Planned};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::{CATEGORY, Failed, cli::Cli, execute_with};

const THINGS: &str = "things.example.com";

/// A model with two kinds of operators. Only `Run` has runs.
fn model() -> Model {
    let model = Model::new();
    model.add_namespace("shop");
    for (kind, runs) in [("Thing", false), ("Run", true)] {
        let lower = kind.to_lowercase();
        let status = if runs { json!({"lastRunNow": {"type": "string"}}) } else { json!({}) };
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"status": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": status,
        }}});
        model.install(&json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{lower}s.example.com")},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"kind": kind, "plural": format!("{lower}s"), "singular": lower, "categories": [CATEGORY]},
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema},
                }],
            },
            "status": {"storedVersions": ["v1"]},
        }));
    }
    model
}

/// Stores an object whose conditions have just changed.
fn put(model: &Model, kind: &str, namespace: &str, name: &str, conditions: &[(&str, &str, &str)]) {
    let now = Timestamp::now().to_string();
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|(type_, status, reason)| {
            json!({"type": type_, "status": status, "reason": reason, "message": format!("{reason} it is"),
                   "lastTransitionTime": now})
        })
        .collect();
    model.put(json!({
        "apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": name, "namespace": namespace, "generation": 1},
        "spec": {}, "status": {"observedGeneration": 1, "conditions": conditions},
    }));
}

/// What the API server tells about kinds: the model serves neither discovery nor schemas.
fn told(model: &Model, path: &str) -> Option<Value> {
    let definitions = model.objects("customresourcedefinitions.apiextensions.k8s.io");
    if path == "/apis" {
        let resources: Vec<Value> = definitions
            .iter()
            .map(|definition| {
                let names = &definition["spec"]["names"];
                json!({
                    "resource": names["plural"], "singularResource": names["singular"], "scope": "Namespaced",
                    "responseKind": {"group": "example.com", "version": "v1", "kind": names["kind"]},
                    "categories": names["categories"],
                })
            })
            .collect();
        return Some(json!({"items": [{"versions": [{"version": "v1", "resources": resources}]}]}));
    }
    path.strip_prefix("/openapi/v3/apis/")?;
    let schema = |definition: &Value| {
        let mut schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone();
        let kind = definition["spec"]["names"]["kind"].as_str().expect("a kind").to_owned();
        schema["x-kubernetes-group-version-kind"] = json!([{"group": "example.com", "version": "v1", "kind": kind}]);
        (kind, schema)
    };
    let schemas: serde_json::Map<String, Value> = definitions.iter().map(schema).collect();
    Some(json!({"components": {"schemas": schemas}}))
}

fn client(model: &Model) -> Client {
    let (service, model) = (model.service("user"), model.clone());
    let serve = tower::service_fn(move |request: http::Request<Body>| {
        let (service, told) = (service.clone(), told(&model, request.uri().path()));
        async move {
            if let Some(told) = told {
                return Ok(Response::new(Either::Left(Full::new(told.to_string().into_bytes().into()))));
            }
            let (parts, body) = service.oneshot(request).await?.into_parts();
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(Response::from_parts(parts, Either::Right(body)))
        }
    });
    Client::new(serve, "shop")
}

async fn run(model: &Model, command: &str) -> Result<String, Failed> {
    let arguments = ["kubectl-operators"].into_iter().chain(command.split_whitespace());
    execute_with(Cli::try_parse_from(arguments).expect("arguments"), client(model), "shop", None).await
}

async fn error(model: &Model, command: &str) -> String {
    run(model, command).await.expect_err(command).error
}

fn annotation(model: &Model, name: &str) -> Option<String> {
    let object = model.object(THINGS, "shop", "a").expect("an object");
    object["metadata"]["annotations"][name].as_str().map(str::to_owned)
}

/// Plays the operator: after this request of the user, copies the annotation to the status.
fn operator(model: &Model, resource: &'static str, annotation: &'static str, field: &'static str) {
    let of_plan = model.clone();
    let plan: Plan = format!("delivered patch {resource} #1 -> signal handle").parse().expect("a plan");
    model.set_shared_faults(Arc::new(Planned::with_signals(&plan, move |_| {
        let mut object = of_plan.object(resource, "shop", "a").expect("an object");
        object["status"][field] = object["metadata"]["annotations"][annotation].clone();
        of_plan.put(object);
        Box::pin(async {})
    })));
}

#[tokio::test(start_paused = true)]
async fn status_shows_all_kinds_with_what_is_wrong_first() {
    let model = model();
    put(&model, "Run", "shop", "ready", &[("Ready", "True", "Ready")]);
    put(&model, "Thing", "shop", "rolling", &[("Ready", "False", "RollingOut"), ("Reconciling", "True", "RollingOut")]);
    put(&model, "Thing", "shop", "broken", &[("Ready", "False", "BadImage"), ("Degraded", "True", "BadImage")]);
    let unknown =
        [("Ready", "Unknown", "NoAnswer"), ("Synced", "Unknown", "NoAnswer"), ("Reconciling", "True", "NoAnswer")];
    put(&model, "Thing", "shop", "unknown", &unknown);
    put(&model, "Thing", "default", "elsewhere", &[]);
    let names = |text: &str| {
        let rows = text.lines().skip(1).take_while(|line| !line.is_empty());
        rows.map(|row| row.split_whitespace().find(|word| word.contains('/')).expect("a name").to_owned())
            .collect::<Vec<_>>()
    };
    let here = run(&model, "status").await.expect("a table");
    assert_eq!(names(&here), ["thing/broken", "thing/unknown", "thing/rolling", "run/ready"], "{here}");
    assert!(here.ends_with("\n2 with problems, 1 in progress, 1 ready\n"), "{here}");
    let everywhere = run(&model, "status -A").await.expect("a table");
    let expected = ["thing/elsewhere", "thing/broken", "thing/unknown", "thing/rolling", "run/ready"];
    assert_eq!(names(&everywhere), expected, "{everywhere}");
    assert!(everywhere.contains("it has no status: is its operator running?"), "{everywhere}");
    let all_ready = run(&model, "status --not-ready runs").await.expect("a table");
    assert_eq!(all_ready, "All objects in namespace shop are ready: 1.\n");
    assert_eq!(names(&run(&model, "status runs run").await.expect("a table")), ["run/ready"], "each kind once");
    assert_eq!(names(&run(&model, "status things -n default").await.expect("a table")), ["thing/elsewhere"]);
    let parsed: Value = serde_json::from_str(&run(&model, "status -o json").await.expect("JSON")).expect("JSON");
    assert_eq!((&parsed[0]["object"], &parsed[0]["health"]), (&json!("thing/broken"), &json!("Wrong")));
}

#[tokio::test(start_paused = true)]
async fn kind_that_cannot_be_listed_does_not_hide_the_others() {
    let model = model();
    put(&model, "Run", "shop", "ready", &[("Ready", "True", "Ready")]);
    let plan: Plan = "before list things.example.com -> answer 403".parse().expect("a plan");
    model.set_shared_faults(Arc::new(Planned::new(&plan)));
    let failed = run(&model, "status").await.expect_err("a kind is missing");
    assert!(failed.text.contains("run/ready"), "{}", failed.text);
    assert!(failed.error.starts_with("cannot list things: "), "{}", failed.error);

    let failed = run(&model, "status things").await.expect_err("a kind is missing");
    assert_eq!(failed.text, "", "what cannot be listed may be there");
}

#[tokio::test(start_paused = true)]
async fn trace_without_the_right_to_read_events_shows_the_rest() {
    let model = model();
    put(&model, "Thing", "shop", "a", &[("Ready", "True", "Ready")]);
    let plan: Plan = "before list events.events.k8s.io -> answer 403".parse().expect("a plan");
    model.set_shared_faults(Arc::new(Planned::new(&plan)));
    let text = run(&model, "trace thing/a").await.expect("a timeline");
    assert!(text.contains("Ready became True") && text.contains("Events: cannot read the events: "), "{text}");
}

/// The annotation is written by then, so the user need not ask again.
#[tokio::test(start_paused = true)]
async fn request_whose_answer_cannot_be_watched_was_made() {
    let model = model();
    put(&model, "Thing", "shop", "a", &[("Ready", "True", "Ready")]);
    let plan: Plan = "before watch things.example.com -> answer 403".parse().expect("a plan");
    model.set_shared_faults(Arc::new(Planned::new(&plan)));
    let why = error(&model, "reconcile thing/a").await;
    assert!(why.starts_with("thing/a: its operator has the request, but its answer cannot be read: "), "{why}");
    assert!(annotation(&model, "example.com/reconcile-requested-at").is_some());
}

#[tokio::test(start_paused = true)]
async fn pause_and_resume_set_and_remove_the_annotation() {
    let model = model();
    put(&model, "Thing", "shop", "a", &[("Ready", "True", "Ready")]);
    assert!(run(&model, "pause thing/a").await.expect("paused").contains("is paused: "));
    assert_eq!(annotation(&model, "example.com/paused").as_deref(), Some("true"));
    let version = model.version();
    assert_eq!(run(&model, "pause thing a").await.expect("paused"), "thing/a is paused already\n");
    assert_eq!(model.version(), version);
    assert!(run(&model, "status").await.expect("a table").contains("1 paused"));
    assert_eq!(run(&model, "resume things/a").await.expect("resumed"), "thing/a is resumed\n");
    assert_eq!(annotation(&model, "example.com/paused"), None);
}

#[tokio::test(start_paused = true)]
async fn reconcile_waits_for_the_operators_answer() {
    let model = model();
    put(&model, "Thing", "shop", "a", &[("Ready", "True", "Ready")]);
    operator(&model, THINGS, "example.com/reconcile-requested-at", "lastHandledReconcileAt");
    let text = run(&model, "reconcile thing/a").await.expect("an answer");
    assert!(text.starts_with("thing/a reconciled after ") && text.ends_with(": Ready=True Ready\n"), "{text}");
    assert!(annotation(&model, "example.com/reconcile-requested-at").is_some());

    let why = error(&model, "reconcile thing/a --timeout 5").await;
    assert!(why.contains("its operator has not answered within 5 s. Is it running"), "{why}");
    let text = run(&model, "reconcile thing/a --timeout 0").await.expect("no waiting");
    assert_eq!(text, "thing/a: example.com/reconcile-requested-at is set\n");
}

#[tokio::test(start_paused = true)]
async fn only_kinds_with_runs_can_run_now() {
    let model = model();
    put(&model, "Thing", "shop", "a", &[("Ready", "True", "Ready")]);
    put(&model, "Run", "shop", "a", &[("Ready", "True", "Scheduled")]);
    assert!(error(&model, "run-now thing/a").await.starts_with("a Thing has no runs; "));
    assert_eq!(annotation(&model, "example.com/run-now"), None);
    operator(&model, "runs.example.com", "example.com/run-now", "lastRunNow");
    let text = run(&model, "run-now run/a").await.expect("an answer");
    assert!(text.starts_with("run/a run requested after "), "{text}");
    run(&model, "pause run/a").await.expect("paused");
    assert!(error(&model, "run-now run/a").await.contains("is paused; `kubectl operators resume run/a` first"));
}

#[tokio::test(start_paused = true)]
async fn describe_and_trace_show_children_and_events() {
    let model = model();
    put(&model, "Thing", "shop", "a", &[("Ready", "True", "Ready")]);
    let uid = model.object(THINGS, "shop", "a").expect("an object")["metadata"]["uid"].clone();
    let owner = json!([{"apiVersion": "example.com/v1", "kind": "Thing", "name": "a", "uid": uid}]);
    let labels = json!({"app.kubernetes.io/instance": "a", "app.kubernetes.io/name": "thing"});
    model.put(json!({
        "apiVersion": "v1", "kind": "Service", "spec": {"clusterIP": "None"},
        "metadata": {"name": "a-svc", "namespace": "shop", "labels": labels, "ownerReferences": owner},
    }));
    model.put(json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "a.1", "namespace": "shop"},
        "regarding": {"kind": "Thing", "name": "a", "namespace": "shop", "uid": uid}, "type": "Normal",
        "reason": "Created", "note": "created Service a-svc", "eventTime": "2026-01-01T00:00:01.000000Z",
    }));
    for command in ["describe thing/a", "trace thing/a"] {
        let text = run(&model, command).await.expect(command);
        assert!(text.contains("a-svc") && text.contains("created Service a-svc"), "{text}");
    }
}

/// Secrets are read by name, so that a user needs no right to list them. What a Secret holds is not read at all.
#[tokio::test(start_paused = true)]
async fn secrets_of_the_object_are_found_by_their_names() {
    let model = model();
    put(&model, "Thing", "shop", "a", &[("Ready", "True", "Ready")]);
    let uid = model.object(THINGS, "shop", "a").expect("an object")["metadata"]["uid"].clone();
    let owner = json!([{"apiVersion": "example.com/v1", "kind": "Thing", "name": "a", "uid": uid}]);
    let labels = json!({"app.kubernetes.io/instance": "a", "app.kubernetes.io/name": "thing"});
    let template = json!({"spec": {
        "volumes": [
            {"name": "tls", "secret": {"secretName": "a-tls"}}, {"name": "empty", "emptyDir": {}},
            {"name": "all", "projected": {"sources": [{"secret": {"name": "a-auth"}}, {"configMap": {"name": "a"}}]}},
        ],
        "initContainers": [{"name": "i", "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "a-key", "key": "k"}}}]}],
        "containers": [{"name": "c", "envFrom": [{"secretRef": {"name": "of-the-user"}}, {"secretRef": {"name": "missing"}}]}],
    }});
    model.put(json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": template},
        "metadata": {"name": "a", "namespace": "shop", "labels": labels, "ownerReferences": owner},
    }));
    for (name, owners) in [
        ("a-tls", &owner),
        ("a-auth", &owner),
        ("a-key", &owner),
        ("unused", &owner),
        ("of-the-user", &json!([])),
        ("a-ca", &owner),
    ] {
        model.put(json!({
            "apiVersion": "v1", "kind": "Secret", "data": {"password": "aHVudGVyMg=="},
            "metadata": {"name": name, "namespace": "shop", "labels": labels, "ownerReferences": owners},
        }));
    }
    let text = run(&model, "describe thing/a").await.expect("a description");
    let shown: Vec<_> =
        text.lines().filter_map(|line| line.split_once("Secret/")).map(|(_, name)| name.trim()).collect();
    assert_eq!(shown, ["a-auth", "a-ca", "a-key", "a-tls"], "{text}");
    assert!(!text.contains("hunter2") && !text.contains("aHVudGVyMg"), "{text}");
    assert!(!text.contains("cannot read"), "{text}");
    let asked = model.requests();
    let of_secrets: Vec<_> = asked.iter().filter(|it| it.resource == "secrets").map(|it| it.verb.as_str()).collect();
    assert_eq!(of_secrets, ["get"; 6], "no list of Secrets");

    // The user may not read Secrets.
    let plan: Plan = "before get secrets.core -> answer 403".parse().expect("a plan");
    model.set_faults(Planned::new(&plan));
    assert!(run(&model, "describe thing/a").await.expect("a description").contains("(cannot read: Secret)"));
    put(&model, "Thing", "shop", "b", &[("Ready", "True", "Ready")]);
    let text = run(&model, "describe thing/b").await.expect("a description");
    assert!(!text.contains("cannot read"), "it has no Secret: {text}");
}

#[tokio::test(start_paused = true)]
async fn errors_say_what_to_do() {
    let model = model();
    let why = error(&model, "describe pod/a").await;
    assert_eq!(why, "there is no kind \"pod\"; the operators of this cluster manage Run, Thing");
    let why = error(&model, "describe thing/missing").await;
    let expected = "there is no Thing \"missing\" in namespace shop; `kubectl operators status thing --all-namespaces` \
                    lists what there is";
    assert_eq!(why, expected);
    assert_eq!(error(&model, "describe thing").await, "\"thing\" is not an object: expected KIND/NAME");
    assert!(error(&model, "pause thing/a -A").await.contains("give --namespace"));
    let none = run(&model, "status").await.expect("a table");
    assert_eq!(none, "No objects in namespace shop; --all-namespaces shows those of all namespaces.\n");
}

#[tokio::test(start_paused = true)]
async fn discovered_kinds_are_migrated() {
    let model = model();
    let text = run(&model, "migrate-storage --kind thing").await.expect("a table");
    assert!(text.contains("nothing to do: only v1 is stored") && !text.contains("Run"), "{text}");
    assert!(error(&model, "migrate-storage --kind pod").await.contains("known are Run, Thing"));
}

#[test]
fn command_line_is_consistent() {
    <Cli as clap::CommandFactory>::command().debug_assert();
}
