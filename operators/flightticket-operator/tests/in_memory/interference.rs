//! Other clients change the objects during each of the operator's requests. The operator must not miss any of these changes.

use manager::Operator;
use manager_testing::{Story, interfere, survive_any_spec, survive_older_schema, two_releases};
use serde_json::{Value, json};

use crate::office::clerk;

struct Journey;

impl Story for Journey {
    fn operator(&self) -> &'static dyn Operator {
        clerk()
    }

    fn object(&self) -> Value {
        json!({
            "apiVersion": "flights.com/v1", "kind": "FlightTicket", "metadata": {"name": "ours"},
            "spec": {"from": "Mumbai", "to": "London", "number": 2},
        })
    }

    fn changes(&self) -> Vec<Value> {
        vec![json!({"spec": {"number": 3}}), json!({"spec": {"number": 1}})]
    }

    fn other_change(&self) -> Value {
        json!({"spec": {"number": 4}})
    }

    fn children(&self) -> &'static [&'static str] {
        &[]
    }

    fn damage(&self, _: &str) -> Option<Value> {
        None
    }

    /// It polls the provider.
    fn sleeps(&self) -> bool {
        false
    }
}

#[tokio::test(start_paused = true)]
async fn no_change_during_a_request_is_missed() {
    interfere(Journey, 60).await;
}

#[tokio::test(start_paused = true)]
async fn c1_any_spec_that_the_schema_allows_gets_a_status() {
    survive_any_spec(Journey, 60).await;
}

#[tokio::test(start_paused = true)]
async fn c2_spec_that_the_schema_refuses_by_now_gets_a_status() {
    survive_older_schema(Journey, 60).await;
}

#[tokio::test(start_paused = true)]
async fn two_releases_over_one_object_do_not_fight() {
    two_releases(Journey, &[], &[]).await;
}
