//! The operator misses no change that other clients make while it works, at any moment of any of its requests.

use helloapp_operator::HelloAppOperator;
use manager::Operator;
use manager_testing::{Story, interfere, survive_any_spec, survive_older_schema, two_releases};
use serde_json::{Value, json};

struct Application;

impl Story for Application {
    fn operator(&self) -> &'static dyn Operator {
        &HelloAppOperator
    }

    fn object(&self) -> Value {
        json!({
            "apiVersion": "apps.anupam.com/v1", "kind": "HelloApp", "metadata": {"name": "web"},
            "spec": {"image": "localhost/web:1", "size": 2, "port": 8080},
        })
    }

    fn changes(&self) -> Vec<Value> {
        vec![
            json!({"spec": {"image": "localhost/web:2"}}),
            json!({"spec": {"size": 3}}),
            json!({"spec": {"port": 9090}}),
        ]
    }

    fn other_change(&self) -> Value {
        json!({"spec": {"podLabels": {"team": "storefront"}}})
    }

    fn children(&self) -> &'static [&'static str] {
        &["deployments.apps", "services"]
    }

    fn damage(&self, resource: &str) -> Option<Value> {
        Some(match resource {
            "deployments.apps" => json!({"spec": {"replicas": 9}}),
            _ => json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "other"}}}),
        })
    }
}

#[tokio::test(start_paused = true)]
async fn no_change_during_a_request_is_missed() {
    interfere(Application, 100).await;
}

#[tokio::test(start_paused = true)]
async fn c1_any_spec_that_the_schema_allows_gets_a_status() {
    survive_any_spec(Application, 60).await;
}

#[tokio::test(start_paused = true)]
async fn c2_spec_that_the_schema_refuses_by_now_gets_a_status() {
    survive_older_schema(Application, 60).await;
}

#[tokio::test(start_paused = true)]
async fn two_releases_that_disagree_write_slowly_and_the_status_says_why() {
    let object =
        two_releases(Application, &["--default-security-profile=Restricted"], &["--default-security-profile=Baseline"])
            .await;
    let conditions = object["status"]["conditions"].as_array().expect("conditions");
    let stalled = conditions.iter().find(|it| it["type"] == "Stalled").expect("it is stalled");
    assert_eq!((&stalled["status"], &stalled["reason"]), (&json!("True"), &json!("FieldsContested")));
    let message = stalled["message"].as_str().expect("a message");
    let other = "another process of this operator (helloapp-controller), such as a second release, and this operator set different values";
    assert!(message.starts_with(other), "{message}");
}
