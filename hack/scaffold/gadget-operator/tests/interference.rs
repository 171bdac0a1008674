//! The operator misses no change that other clients make while it works, at random moments of its requests. With
//! `INTERFERENCES=all`, at every moment of each of them.

use std::time::Duration;

use gadget_operator::GadgetOperator;
use manager::Operator;
use manager_testing::{InMemory, Story, interfere, survive_any_spec};
use serde_json::{Value, json};

struct Example;

impl Story for Example {
    fn operator(&self) -> &'static dyn Operator {
        &GadgetOperator
    }

    /// The object, as a user creates it.
    fn object(&self) -> Value {
        json!({
            "apiVersion": "shop.example.com/v1alpha1", "kind": "Gadget", "metadata": {"name": "example"},
            "spec": {"text": "one"},
        })
    }

    /// Merge patches that a user sends one after the other.
    fn changes(&self) -> Vec<Value> {
        vec![json!({"spec": {"text": "two"}})]
    }

    /// A merge patch that another user sends in between.
    fn other_change(&self) -> Value {
        json!({"spec": {"text": "three"}})
    }

    fn children(&self) -> &'static [&'static str] {
        &["configmaps"]
    }

    /// A merge patch by which another client changes a child. The operator must revert it.
    fn damage(&self, _: &str) -> Option<Value> {
        Some(json!({"data": {"text": "from another client"}}))
    }
}

#[tokio::test(start_paused = true)]
async fn no_change_during_a_request_is_missed() {
    interfere(Example, 60).await;
}

#[tokio::test(start_paused = true)]
async fn any_spec_that_the_schema_allows_gets_a_status() {
    survive_any_spec(Example, 60).await;
}

/// The operator restores what another client changes again and again ever more slowly. While it waits, the object is not ready.
#[tokio::test(start_paused = true)]
async fn object_is_not_ready_while_its_config_map_is_out_of_date() {
    let mut memory = InMemory::new(&GadgetOperator, &[]);
    let mut object = Example.object();
    object["metadata"]["namespace"] = json!("default");
    memory.model.put(object);
    memory.start();
    memory.until_quiet().await;

    let found = |memory: &InMemory, resource: &str| {
        memory.model.object(resource, "default", "example").expect("the object exists")
    };
    for _ in 0..3 {
        let mut child = found(&memory, "configmaps");
        child["data"]["text"] = json!("from another client");
        memory.model.put(child);
        memory.pass(Duration::from_millis(200)).await;
    }
    assert_eq!(found(&memory, "configmaps")["data"]["text"], "from another client", "the third revert waits");
    let conditions = found(&memory, "gadgets.shop.example.com")["status"]["conditions"].clone();
    let ready = conditions.as_array().into_iter().flatten().find(|it| it["type"] == "Ready");
    assert_eq!(ready.map(|it| &it["reason"]), Some(&json!("NotUpToDate")), "{conditions}");
}
