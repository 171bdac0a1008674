//! The webhooks of the examples, which answer as the API server asks them.

use example_operators::{banners::Banners, tracks::Tracks};
use k8s_openapi::ByteString;
use manager::{Operator, Webhook, answer_review};
use model_apiserver::Planned;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{MOMENT, label, put, start, start_with};

/// The response of the first webhook to a request.
fn response(webhooks: &[Webhook], request: &Value) -> Value {
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
    let reply = answer_review(webhooks, &webhooks[0].path(), review.to_string().as_bytes()).expect("it is a review");
    let answer: Value = serde_json::from_str(&reply.review).expect("JSON");
    answer["response"].clone()
}

/// Why the webhook does not let a user delete this Theme; `None` if it does.
fn refusal(webhooks: &[Webhook], namespace: &str, theme: &str) -> Option<Value> {
    let user = json!({"username": "ann"});
    let request = json!({"uid": "u", "operation": "DELETE", "namespace": namespace, "name": theme, "userInfo": user});
    let response = response(webhooks, &request);
    (response["allowed"] == false).then(|| response["status"]["details"]["causes"][0]["message"].clone())
}

/// A cache that holds no Banners yet must not look like a namespace without Banners.
#[tokio::test(start_paused = true)]
async fn theme_is_protected_before_the_cache_is_filled_and_while_a_banner_shows_it() {
    let banners = Banners::default();
    let webhooks = banners.webhooks();
    let refused = |theme: &str| refusal(&webhooks, "default", theme);
    assert_eq!(refused("dark"), Some(json!("the cache is not in sync; try again in a moment")));
    let (model, _harness) = start(&banners);
    put(&model, "Banner", "default", "door", json!({"config": "text", "theme": "dark"})).await;
    let is_shown = Some(json!("Banner \"door\" shows this theme"));
    assert_eq!((refused("dark"), refused("light")), (is_shown.clone(), None));
    put(&model, "Banner", "default", "door", json!({"config": "text", "theme": "light"})).await;
    assert_eq!((refused("dark"), refused("light")), (None, is_shown));
    model.take("banners.examples.example.com", "default", "door");
    sleep(MOMENT).await;
    assert_eq!(refused("light"), None);
}

/// The webhook refuses, allows or warns, also by a dry run.
#[tokio::test(start_paused = true)]
async fn only_designers_change_the_colour_of_a_theme_that_a_banner_shows() {
    let banners = Banners::default();
    let webhooks = banners.webhooks();
    let theme = |colour: &str| {
        let (api_version, spec) = ("examples.example.com/v1", json!({"colour": colour}));
        json!({"apiVersion": api_version, "kind": "Theme", "metadata": {"name": "dark"}, "spec": spec})
    };
    let change = |group: &str, colour: &str, is_dry_run: bool| {
        let request = json!({
            "uid": "u", "operation": "UPDATE", "namespace": "default", "name": "dark", "dryRun": is_dry_run,
            "userInfo": {"username": "ann", "groups": [group]}, "oldObject": theme("black"), "object": theme(colour),
        });
        let response = response(&webhooks, &request);
        let refused = response["status"]["details"]["causes"][0].clone();
        assert_eq!(response["allowed"] == true, refused.is_null(), "{response}");
        (refused["message"].clone(), response["warnings"].clone())
    };
    let (nothing, is_free) = (Value::Null, (Value::Null, Value::Null));
    let out_of_sync = json!("the cache is not in sync; try again in a moment");
    assert_eq!(change("users", "black", false), is_free);
    assert_eq!(change("users", "navy", false), (out_of_sync, nothing.clone()));
    let (model, _harness) = start(&banners);
    sleep(MOMENT).await;
    assert_eq!(change("users", "navy", false), is_free);
    put(&model, "Banner", "default", "door", json!({"config": "text", "theme": "dark"})).await;
    let refusal = json!("Banner \"door\" shows it, and ann is no designer");
    for is_dry_run in [false, true] {
        assert_eq!(change("users", "navy", is_dry_run), (refusal.clone(), nothing.clone()));
        assert_eq!(change("users", "black", is_dry_run), is_free);
        let warnings = if is_dry_run { nothing.clone() } else { json!(["Banner \"door\" changes its colour"]) };
        assert_eq!(change("designers", "navy", is_dry_run), (nothing.clone(), warnings));
    }
}

/// The cache is in sync, but does not have the objects of a namespace that has just joined.
#[tokio::test(start_paused = true)]
async fn theme_is_protected_in_a_namespace_that_joins() {
    let banners = Banners::default();
    let webhooks = banners.webhooks();
    let (model, _harness) = start_with(&banners, &["--watch-namespace-selector=examples.example.com/tenant=red"]);
    label(&model, "shop", None).await;
    put(&model, "Banner", "shop", "door", json!({"config": "text", "theme": "dark"})).await;
    model.set_faults(Planned::new(&"before list banners.examples.example.com -> delay 5s".parse().expect("a plan")));
    label(&model, "shop", Some("red")).await;
    let refused = || refusal(&webhooks, "shop", "dark");
    assert_eq!(refused(), Some(json!("the cache is not in sync; try again in a moment")));
    sleep(10 * MOMENT).await;
    assert_eq!(refused(), Some(json!("Banner \"door\" shows this theme")));
}

/// The patch that the webhook sends to the API server for a new Track; `None` if it changes nothing.
fn defaulted(metadata: &Value, spec: &Value) -> Option<Value> {
    let track = json!({"apiVersion": "examples.example.com/v1", "kind": "Track", "metadata": metadata, "spec": spec});
    let request = json!({"uid": "u", "operation": "CREATE", "namespace": "default", "object": track});
    let response = response(&Tracks::default().webhooks(), &request);
    assert_eq!(response["allowed"], true, "{response}");
    let patch: ByteString = serde_json::from_value(response.get("patch")?.clone()).expect("base64");
    Some(serde_json::from_slice(&patch.0).expect("a patch"))
}

#[test]
fn webhook_writes_the_deployment_into_a_track_that_names_none() {
    let named = json!({"name": "web", "namespace": "default"});
    let patch = json!([{"op": "add", "path": "/spec/deployment", "value": "web"}]);
    assert_eq!(defaulted(&named, &json!({})), Some(patch));
    assert_eq!(defaulted(&named, &json!({"deployment": "other"})), None);
    assert_eq!(defaulted(&json!({"generateName": "web-", "namespace": "default"}), &json!({})), None);
}
