//! Tests of admission and conversion reviews, with a small custom resource.

use kube::{CustomResource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::*;

#[derive(Debug, Clone, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(group = "cache.example.com", version = "v1", kind = "Cache", namespaced)]
pub(crate) struct CacheSpec {
    #[serde(default)]
    size: i32,
    #[serde(default)]
    arguments: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    image: Option<String>,
}

fn rules(_: Option<&Cache>, new: &Cache) -> ValidationResult {
    let mut findings = ValidationResult::none();
    if new.spec.size > 3 {
        findings.refuse("spec.size", "at most 3");
    }
    for (index, _) in new.spec.arguments.iter().enumerate().filter(|(_, it)| *it == "-p") {
        findings.refuse(format!("spec.arguments[{index}]"), "the port is spec.port");
    }
    if new.spec.size == 0 {
        findings.warn("0 nodes serve no client");
    }
    assert!(new.spec.size >= 0, "a bug for size {}", new.spec.size);
    findings
}

fn fill_in(cache: &mut Cache) {
    cache.spec.image.get_or_insert_with(|| "cache".to_owned());
}

pub(crate) fn cache(spec: &Value) -> Value {
    json!({"apiVersion": "cache.example.com/v1", "kind": "Cache", "metadata": {"name": "a", "namespace": "n"}, "spec": spec})
}

fn answered(webhook: &Webhook, review: &Value) -> (Value, Outcome) {
    let (answer, outcome) = admit(webhook, review.to_string().as_bytes()).expect("a review");
    (serde_json::from_str(&answer).expect("JSON"), outcome)
}

fn ask(webhook: &Webhook, old: Option<&Value>, new: &Value) -> Value {
    let operation = if old.is_some() { "UPDATE" } else { "CREATE" };
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": "u-1", "name": "a", "operation": operation, "object": new, "oldObject": old},
    });
    let answer = answered(webhook, &review).0;
    assert_eq!(answer["response"]["uid"], "u-1");
    answer["response"].clone()
}

#[test]
fn rejection_reads_like_an_api_server_error() {
    let webhook = Webhook::validating(rules);
    assert_eq!(ask(&webhook, None, &cache(&json!({"size": 3})))["allowed"], true);
    let refused = ask(&webhook, None, &cache(&json!({"size": 4, "arguments": ["-p"]})));
    assert_eq!(refused["allowed"], false);
    assert_eq!(refused["status"]["code"], 422);
    assert_eq!(
        refused["status"]["message"],
        "Cache.cache.example.com \"a\" is invalid: [spec.size: at most 3, spec.arguments[0]: the port is spec.port]"
    );
    assert_eq!(refused["status"]["details"]["causes"][0]["field"], "spec.size");
}

#[test]
fn update_is_not_rejected_for_unchanged_invalid_fields() {
    let webhook = Webhook::validating(rules);
    let stored = cache(&json!({"size": 9, "arguments": ["-p"]}));
    let allowed = |spec: &Value| ask(&webhook, Some(&stored), &cache(spec))["allowed"] == true;
    assert!(allowed(&json!({"size": 9, "arguments": ["-p"], "image": "x"})), "another field");
    assert!(allowed(&json!({"size": 2, "arguments": ["-p"]})), "one of two errors is fixed");
    assert!(!allowed(&json!({"size": 8, "arguments": ["-p"]})), "another wrong value");
    assert!(!allowed(&json!({"size": 9, "arguments": ["-p", "-p"]})), "the same list, longer");
}

#[test]
fn object_being_deleted_is_always_admitted() {
    let mut dying = cache(&json!({"size": 9}));
    dying["metadata"]["deletionTimestamp"] = json!("2026-11-21T00:00:00Z");
    for webhook in [Webhook::validating(rules), Webhook::defaulting(fill_in)] {
        let answer = ask(&webhook, None, &dying);
        assert_eq!((&answer["allowed"], &answer["patch"]), (&json!(true), &Value::Null));
    }
    // A deletion has no object, only an old one.
    assert_eq!(ask(&Webhook::validating(rules), Some(&dying), &Value::Null)["allowed"], true);
}

fn talkative(_: Option<&Cache>, _: &Cache) -> ValidationResult {
    ValidationResult { errors: Vec::new(), warnings: vec!["ä".repeat(1_000)] }
}

#[test]
fn warnings_are_returned_and_truncated() {
    let webhook = Webhook::warning(rules);
    assert_eq!(ask(&webhook, None, &cache(&json!({"size": 0})))["warnings"], json!(["0 nodes serve no client"]));
    let said = ask(&Webhook::warning(talkative), None, &cache(&json!({})));
    assert!(said["warnings"][0].as_str().expect("a text").len() <= 256);
}

#[test]
fn defaulting_patch_keeps_unknown_fields() {
    let webhook = Webhook::defaulting(fill_in);
    let answer = ask(&webhook, None, &cache(&json!({"size": 1, "later": true})));
    let patch: k8s_openapi::ByteString = serde_json::from_value(answer["patch"].clone()).expect("base64");
    let patch: Value = serde_json::from_slice(&patch.0).expect("a patch");
    assert_eq!(patch, json!([{"op": "add", "path": "/spec/image", "value": "cache"}]));
    let answer = ask(&webhook, None, &cache(&json!({"image": "x"})));
    assert_eq!(answer.get("patch"), None, "nothing to fill in");
}

#[test]
fn panic_rejects_the_object_and_is_reported() {
    let webhook = Webhook::validating(rules);
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {"uid": "u", "object": cache(&json!({"size": -1}))},
    });
    let (answer, outcome) = answered(&webhook, &review);
    assert_eq!(outcome, Outcome::Panicked);
    assert_eq!(answer["response"]["allowed"], false);
    assert_eq!(answer["response"]["status"]["code"], 500);
}

#[test]
fn undecodable_object_is_rejected_with_the_reason() {
    let refused = ask(&Webhook::validating(rules), None, &cache(&json!({"size": "big"})));
    let message = refused["status"]["message"].as_str().expect("a message");
    assert!(message.starts_with("the object is not a Cache: invalid type: string \"big\""), "{message}");
}

#[test]
fn body_that_is_not_a_review_is_malformed() {
    let webhook = Webhook::validating(rules);
    let conversion = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview"}).to_string();
    let old = json!({"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview"}).to_string();
    let empty = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}).to_string();
    let deep = "[".repeat(100_000);
    for body in ["", "{", "null", "[]", "\u{0}", &deep, &conversion, &old, &empty] {
        assert!(admit(&webhook, body.as_bytes()).is_err(), "{body:.40}");
        assert!(crate::conversion::convert(&[], body.as_bytes(), |_| ()).is_err(), "{body:.40}");
    }
}

/// Only the group `administrators` may delete caches with more than three nodes.
fn protect(review: &Review<Cache>) -> ValidationResult {
    let mut result = ValidationResult::none();
    let is_large = review.old.as_ref().is_some_and(|cache| cache.spec.size > 3);
    if review.operation == Operation::Delete && is_large && !review.user.groups.iter().any(|it| it == "administrators")
    {
        let Review { namespace, name, user, dry_run, .. } = review;
        result.refuse("spec.size", format!("{} may not delete {namespace}/{name}, dry run: {dry_run}", user.name));
    }
    result
}

fn delete(webhook: &Webhook, size: i32, groups: &[&str]) -> Value {
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u-1", "name": "a", "namespace": "n", "operation": "DELETE", "dryRun": true, "object": null,
            "oldObject": cache(&json!({"size": size})), "userInfo": {"username": "eve", "groups": groups},
        },
    });
    answered(webhook, &review).0["response"].clone()
}

#[test]
fn review_sees_deletion_user_and_dry_run() {
    let webhook = Webhook::reviewing(protect).on(&[Operation::Delete]);
    assert_eq!(delete(&webhook, 3, &[])["allowed"], true);
    assert_eq!(delete(&webhook, 4, &["administrators"])["allowed"], true);
    let refused = delete(&webhook, 4, &["others"]);
    assert_eq!(
        refused["status"]["message"],
        "Cache.cache.example.com \"a\" is invalid: spec.size: eve may not delete n/a, dry run: true"
    );
}

/// The request of a deletion of a collection has no name, only the object has.
#[test]
fn review_of_a_deleted_collection_has_the_name_of_each_object() {
    let webhook = Webhook::reviewing(protect).on(&[Operation::Delete]);
    let old = cache(&json!({"size": 4}));
    let request = |name: &Value| {
        json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "u-1", "name": name, "namespace": "n", "operation": "DELETE", "object": null, "oldObject": old,
                "userInfo": {"username": "eve"},
            },
        })
    };
    let mut without = request(&json!(""));
    without["request"].as_object_mut().expect("an object").remove("name");
    for review in [request(&json!("")), without, request(&json!("a"))] {
        let refused = answered(&webhook, &review).0["response"].clone();
        assert_eq!(
            refused["status"]["message"],
            "Cache.cache.example.com \"a\" is invalid: spec.size: eve may not delete n/a, dry run: false"
        );
        assert_eq!(refused["status"]["details"]["name"], "a");
    }
}

#[test]
fn review_admits_every_update_of_an_object_that_is_being_deleted() {
    let webhook = Webhook::reviewing(|_: &Review<Cache>| {
        let mut result = ValidationResult::none();
        result.refuse("spec", "never");
        result
    });
    let old = cache(&json!({"size": 1}));
    assert_eq!(ask(&webhook, Some(&old), &old)["allowed"], false);
    let mut new = old.clone();
    new["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(ask(&webhook, Some(&old), &new)["allowed"], true);
}

#[test]
fn configuration_has_the_operations_and_conditions() {
    let webhook = Webhook::reviewing(protect)
        .on(&[Operation::Delete])
        .only_if("not-the-admin", "request.userInfo.username != 'admin'");
    let endpoint = crate::Endpoint::Url("https://127.0.0.1:9443".to_owned());
    let configured = crate::configurations("a", &[webhook], &endpoint);
    let webhook = &configured[0]["webhooks"][0];
    assert_eq!(webhook["name"], "rcache-v1.cache.example.com");
    assert_eq!(webhook["clientConfig"]["url"], "https://127.0.0.1:9443/review-cache-example-com-v1-cache");
    assert_eq!(webhook["rules"][0]["operations"], json!(["DELETE"]));
    assert_eq!(webhook["rules"][0]["scope"], "Namespaced");
    assert_eq!(webhook["matchConditions"][0]["name"], "not-the-admin");
}

#[test]
fn refused_text_of_megabytes_is_not_repeated_in_the_answer() {
    let long = "x".repeat(1 << 20);
    let Err(Malformed(why)) =
        admit(&Webhook::validating(|_, _: &Cache| ValidationResult::none()), json!(long).to_string().as_bytes())
    else {
        panic!("a text is no review")
    };
    assert!(why.starts_with("not an AdmissionReview: invalid type: string") && why.len() <= 1024, "{}", why.len());
    let request = json!({"uid": "u", "object": {"metadata": {}, "spec": long}});
    let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).to_string();
    let answered = admit(&Webhook::validating(|_, _: &Cache| ValidationResult::none()), body.as_bytes());
    let (answer, _) = answered.expect("a review");
    assert!(answer.contains("the object is not a") && answer.len() < 4096, "{}", answer.len());
}

/// Refuses the field `spec.n` for a reason of this length, n times; these numbers are in the annotations.
fn repeats(_: Option<&Cache>, cache: &Cache) -> ValidationResult {
    let number = |key: &str| cache.annotations()[key].parse::<usize>().expect("a number");
    let (errors, length) = (number("errors"), number("length"));
    ValidationResult {
        errors: (0..errors).map(|n| FieldError { field: format!("spec.{n}"), why: "y".repeat(length) }).collect(),
        warnings: vec!["z".repeat(length); errors],
    }
}

#[test]
fn answer_has_a_limited_length_whatever_the_request_repeats() {
    let refused = |name: &str, errors: usize, length: usize| {
        let mut object = cache(&json!({"size": 1}));
        object["metadata"]["annotations"] = json!({"errors": errors.to_string(), "length": length.to_string()});
        let mut review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"});
        review["request"] = json!({"uid": "u", "name": name, "object": object});
        answered(&Webhook::validating(repeats), &review).0["response"].clone()
    };
    let long = refused(&"n".repeat(1 << 20), 1, 1 << 20);
    assert_eq!(long["status"]["details"]["name"], "n".repeat(NAME_BYTES));
    assert!(long.to_string().len() < 8192, "{}", long.to_string().len());
    let many = refused("a", 100_000, 10);
    assert_eq!(many["status"]["details"]["causes"].as_array().map(Vec::len), Some(MOST));
    assert!(many["status"]["message"].as_str().is_some_and(|it| it.ends_with(", and 99936 more]")), "{many}");
    assert_eq!(many["warnings"].as_array().map(Vec::len), Some(MOST));
    let exact = refused("a", 2, 1);
    assert_eq!(exact["status"]["message"], "Cache.cache.example.com \"a\" is invalid: [spec.0: y, spec.1: y]");
}

#[test]
fn long_uid_is_malformed() {
    let body =
        |uid: &str| json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": uid}});
    let webhook = Webhook::validating(|_, _: &Cache| ValidationResult::none());
    let result = |length: usize| admit(&webhook, body(&"u".repeat(length)).to_string().as_bytes());
    assert!(result(NAME_BYTES).is_ok());
    assert_eq!(result(NAME_BYTES + 1).err(), Some(Malformed("the uid has 254 bytes".to_owned())));
}
