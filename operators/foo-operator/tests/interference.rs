//! The operator misses no change that other clients make while it works, at any moment of any of its requests.

use foo_operator::FooOperator;
use manager::Operator;
use manager_testing::{Story, interfere, survive_any_spec, survive_older_schema, two_releases};
use serde_json::{Value, json};

struct Example;

impl Story for Example {
    fn operator(&self) -> &'static dyn Operator {
        &FooOperator
    }

    fn object(&self) -> Value {
        json!({
            "apiVersion": "samplecontroller.k8s.io/v1alpha1", "kind": "Foo", "metadata": {"name": "example"},
            "spec": {"deploymentName": "example", "replicas": 1},
        })
    }

    fn changes(&self) -> Vec<Value> {
        vec![json!({"spec": {"replicas": 2}})]
    }

    fn other_change(&self) -> Value {
        json!({"spec": {"replicas": 4}})
    }

    fn children(&self) -> &'static [&'static str] {
        &["deployments.apps"]
    }

    fn damage(&self, _: &str) -> Option<Value> {
        Some(json!({"spec": {"replicas": 9}}))
    }
}

#[tokio::test(start_paused = true)]
async fn no_change_during_a_request_is_missed() {
    interfere(Example, 60).await;
}

#[tokio::test(start_paused = true)]
async fn c1_any_spec_that_the_schema_allows_gets_a_status() {
    survive_any_spec(Example, 60).await;
}

#[tokio::test(start_paused = true)]
async fn c2_spec_that_the_schema_refuses_by_now_gets_a_status() {
    survive_older_schema(Example, 60).await;
}

#[tokio::test(start_paused = true)]
async fn two_releases_over_one_object_do_not_fight() {
    two_releases(Example, &[], &[]).await;
}
