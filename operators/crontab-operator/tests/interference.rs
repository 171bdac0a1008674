//! Other clients change the objects during each of the operator's requests. The operator must not miss any of these changes.

use crontab_operator::CronTabOperator;
use manager::Operator;
use manager_testing::{Story, interfere, survive_any_spec, survive_older_schema, two_releases};
use serde_json::{Value, json};

/// A CronTab that runs only once a year, so no run is due during the test. The runs come from `run-now`.
struct Yearly;

impl Story for Yearly {
    fn operator(&self) -> &'static dyn Operator {
        &CronTabOperator
    }

    fn object(&self) -> Value {
        json!({
            "apiVersion": "stable.example.com/v1", "kind": "CronTab", "metadata": {"name": "yearly"},
            "spec": {"cronSpec": "0 0 31 12 *", "image": "localhost/report:1"},
        })
    }

    fn changes(&self) -> Vec<Value> {
        vec![
            json!({"metadata": {"annotations": {"stable.example.com/run-now": "1"}}}),
            json!({"spec": {"suspend": true}}),
            json!({"spec": {"suspend": false}}),
        ]
    }

    fn other_change(&self) -> Value {
        json!({"spec": {"image": "localhost/report:2"}})
    }

    fn children(&self) -> &'static [&'static str] {
        &["jobs.batch"]
    }

    /// A change of a Job does not repeat its run.
    fn damage(&self, _: &str) -> Option<Value> {
        Some(json!({"metadata": {"labels": {"team": "other"}}}))
    }
}

#[tokio::test(start_paused = true)]
async fn no_change_during_a_request_is_missed() {
    interfere(Yearly, 100).await;
}

#[tokio::test(start_paused = true)]
async fn c1_any_spec_that_the_schema_allows_gets_a_status() {
    survive_any_spec(Yearly, 60).await;
}

#[tokio::test(start_paused = true)]
async fn c2_spec_that_the_schema_refuses_by_now_gets_a_status() {
    survive_older_schema(Yearly, 60).await;
}

#[tokio::test(start_paused = true)]
async fn two_releases_over_one_object_do_not_fight() {
    two_releases(Yearly, &[], &[]).await;
}
