//! Simulates random worlds: users, faults and other clients change objects at random, in simulated time. In the end, `judge` checks
//! each object. It follows the specification and uses none of the operator's code.

use std::time::Duration;

use fastrand::Rng;
use gadget_operator::GadgetOperator;
use manager::Operator;
use model_apiserver::Model;
use serde_json::{Value, json};
use simulation::{
    Campaign, Plan, Subject,
    oracle::{Wanted, beside, contains, labels, owner, say},
};

struct Example;

/// How long a usual run simulates worlds from a fresh seed.
const USUAL: Duration = Duration::from_secs(3);

impl Subject for Example {
    fn operator(&self) -> &'static dyn Operator {
        &GadgetOperator
    }

    fn kind(&self) -> (&'static str, &'static str) {
        ("shop.example.com/v1alpha1", "Gadget")
    }

    fn resource(&self) -> &'static str {
        "gadgets.shop.example.com"
    }

    fn children(&self) -> &'static [&'static str] {
        &["configmaps"]
    }

    /// A spec that a user may write.
    fn spec(&self, _: &str, rng: &mut Rng) -> Value {
        json!({"text": format!("text {}", rng.u8(..4))})
    }

    /// A merge patch by which another client changes a child. The operator must revert it.
    fn damage(&self, _: &str, rng: &mut Rng) -> Option<Value> {
        Some(json!({"data": {"text": format!("damage {}", rng.u8(..4))}}))
    }

    /// Whether the cluster is as the object specifies; otherwise, the error says what differs.
    fn judge(&self, object: &Value, cluster: &Model) -> Result<(), String> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let app = &"Gadget".to_lowercase();
        // The operator adopts a ConfigMap that an earlier object of the same name has left, whatever it contains.
        let wanted = Wanted { name, adopts: true, app, children: &[("configmaps", true)], fits: |_, _| true };
        if !wanted.are_there(object, cluster)? {
            return Ok(()); // the object of another client has the name of the child, and the status reports that
        }
        let child = beside(object, cluster, "configmaps", name).unwrap_or_default();
        let expected = json!({
            "metadata": {"labels": labels(app, name), "ownerReferences": [owner(object)]},
            "data": {"text": object["spec"]["text"]},
        });
        contains(&child, &expected, "ConfigMap")?;
        say(&object["status"], &[("Ready", ("True", "Ready")), ("Degraded", ("False", "AsExpected"))])
    }
}

#[test]
fn every_world_ends_as_specified() {
    Campaign::from_env(USUAL).run(&Example);
}

/// Finds any dependency on hash order, random numbers or clocks, which differ from run to run.
#[test]
fn the_same_seed_gives_the_same_trace() {
    Plan::of(fastrand::u64(..1_000_000)).is_repeatable(&Example);
}
