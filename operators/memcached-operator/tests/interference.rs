//! The operator misses no change that other clients make while it works, at any moment of any of its requests.

use manager::Operator;
use manager_testing::{Story, interfere, survive_any_spec, survive_older_schema, two_releases};
use memcached_operator::MemcachedOperator;
use serde_json::{Value, json};

struct Cache;

impl Story for Cache {
    fn operator(&self) -> &'static dyn Operator {
        &MemcachedOperator
    }

    fn object(&self) -> Value {
        json!({
            "apiVersion": "memcached.cache.example.com/v1", "kind": "Memcached", "metadata": {"name": "cache"},
            "spec": {"size": 3, "config": {"memoryMB": 64}},
        })
    }

    fn changes(&self) -> Vec<Value> {
        vec![json!({"spec": {"config": {"memoryMB": 128}}}), json!({"spec": {"size": 4}}), json!({"spec": {"size": 0}})]
    }

    fn other_change(&self) -> Value {
        json!({"spec": {"podLabels": {"team": "storefront"}}})
    }

    fn children(&self) -> &'static [&'static str] {
        &["deployments.apps", "services", "poddisruptionbudgets.policy"]
    }

    fn damage(&self, resource: &str) -> Option<Value> {
        match resource {
            "deployments.apps" => Some(json!({"spec": {"replicas": 9}})),
            "services" => Some(json!({"metadata": {"labels": {"app.kubernetes.io/version": "other"}}})),
            _ => Some(json!({"spec": {"maxUnavailable": 3}})),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_change_during_a_request_is_missed() {
    interfere(Cache, 150).await;
}

#[tokio::test(start_paused = true)]
async fn c1_any_spec_that_the_schema_allows_gets_a_status() {
    survive_any_spec(Cache, 60).await;
}

#[tokio::test(start_paused = true)]
async fn c2_spec_that_the_schema_refuses_by_now_gets_a_status() {
    survive_older_schema(Cache, 60).await;
}

#[tokio::test(start_paused = true)]
async fn two_releases_that_disagree_write_slowly_and_the_status_says_why() {
    let object =
        two_releases(Cache, &["--image-registry=one.example.com"], &["--image-registry=other.example.com"]).await;
    let conditions = object["status"]["conditions"].as_array().expect("conditions");
    let stalled = conditions.iter().find(|it| it["type"] == "Stalled").expect("it is stalled");
    assert_eq!((&stalled["status"], &stalled["reason"]), (&json!("True"), &json!("FieldsContested")));
    let message = stalled["message"].as_str().expect("a message");
    let other = "another process of this operator (memcached-controller), such as a second release, and this operator set different values";
    assert!(message.starts_with(other), "{message}");
}
