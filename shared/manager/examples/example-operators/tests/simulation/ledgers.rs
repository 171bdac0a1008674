//! What a Ledger requires of the cluster.

use example_operators::ledgers::Ledgers;
use fastrand::Rng;
use manager::Operator;
use model_apiserver::Model;
use serde_json::{Value, json};
use simulation::{
    Subject,
    oracle::{Wanted, beside, contains, labels, owner, say},
};

pub(crate) struct Ledger;

impl Subject for Ledger {
    fn operator(&self) -> &'static dyn Operator {
        &Ledgers { password: || "secret".to_owned() }
    }

    fn kind(&self) -> (&'static str, &'static str) {
        ("examples.example.com/v1", "Ledger")
    }

    fn resource(&self) -> &'static str {
        "ledgers.examples.example.com"
    }

    fn children(&self) -> &'static [&'static str] {
        &["statefulsets.apps", "secrets", "persistentvolumeclaims"]
    }

    fn spec(&self, _: &str, rng: &mut Rng) -> Value {
        json!({"replicas": rng.u8(..4)})
    }

    fn damage(&self, resource: &str, rng: &mut Rng) -> Option<Value> {
        match resource {
            "statefulsets.apps" => Some(json!({"spec": {"replicas": rng.u8(4..9)}})),
            _ => None, // users own the password, and the API server refuses to shrink a claim
        }
    }

    fn judge(&self, object: &Value, cluster: &Model) -> Result<(), String> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let wanted = Wanted {
            name,
            adopts: true,
            app: "ledger",
            children: &[("statefulsets.apps", true), ("secrets", true), ("persistentvolumeclaims", true)],
            fits: |_, _| true,
        };
        if !wanted.are_there(object, cluster)? {
            return Ok(());
        }
        let replicas = &object["spec"]["replicas"];
        let set = beside(object, cluster, "statefulsets.apps", name).unwrap_or_default();
        let expected = json!({
            "metadata": {"labels": labels("ledger", name), "ownerReferences": [owner(object)]},
            "spec": {"replicas": replicas, "template": {"spec": {"containers": [{"image": "database:1"}]}}},
        });
        contains(&set, &expected, "StatefulSet")?;
        let ready = set["status"]["readyReplicas"].as_i64().unwrap_or(0);
        let expected =
            if ready >= replicas.as_i64().unwrap_or(0) { ("True", "Ready") } else { ("False", "StillStarting") };
        say(&object["status"], &[("Ready", expected), ("Degraded", ("False", "AsExpected"))])
    }
}
