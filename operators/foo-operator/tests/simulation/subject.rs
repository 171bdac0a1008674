//! What random worlds must know about Foo: its specs, and how to judge its final state. The judge follows the specification and
//! uses none of the operator's code.

use fastrand::Rng;
use foo_operator::FooOperator;
use manager::Operator;
use model_apiserver::Model;
use serde_json::{Value, json};
use simulation::{
    Subject,
    oracle::{Wanted, beside, contains, labels, owner, say},
};

/// The operator, as its specification describes it.
pub(crate) struct Foo;

impl Subject for Foo {
    fn operator(&self) -> &'static dyn Operator {
        &FooOperator
    }

    fn kind(&self) -> (&'static str, &'static str) {
        ("samplecontroller.k8s.io/v1alpha1", "Foo")
    }

    fn resource(&self) -> &'static str {
        "foos.samplecontroller.k8s.io"
    }

    fn children(&self) -> &'static [&'static str] {
        &["deployments.apps"]
    }

    /// The object `b`, which only worlds of three objects have, wants the Deployment of `a` in its namespace.
    fn spec(&self, name: &str, rng: &mut Rng) -> Value {
        let mut spec = json!({"deploymentName": format!("web-{}", if name == "b" { "a" } else { name })});
        if rng.u8(..4) > 0 {
            spec["replicas"] = json!(rng.u8(..5));
        }
        spec
    }

    fn damage(&self, _: &str, rng: &mut Rng) -> Option<Value> {
        Some(match rng.u8(..2) {
            0 => json!({"spec": {"replicas": rng.u8(..9)}}),
            _ => json!({"spec": {"template": {"spec": {"containers": [{"name": "nginx", "image": "nginx:other"}]}}}}),
        })
    }

    fn judge(&self, object: &Value, cluster: &Model) -> Result<(), String> {
        let (spec, status) = (&object["spec"], &object["status"]);
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let deployment_name = spec["deploymentName"].as_str().unwrap_or_default();
        let wanted = Wanted {
            name: deployment_name,
            adopts: false,
            app: "foo",
            children: &[("deployments.apps", true)],
            fits: |_, _| true,
        };
        if !wanted.are_there(object, cluster)? {
            return Ok(());
        }
        let deployment = beside(object, cluster, "deployments.apps", deployment_name).unwrap_or_default();
        let pods = json!({"app": "nginx", "controller": name});
        let mut wanted = json!({
            "metadata": {"labels": labels("foo", name), "ownerReferences": [owner(object)]},
            "spec": {
                "selector": {"matchLabels": pods},
                "template": {
                    "metadata": {"labels": pods},
                    "spec": {
                        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
                        "containers": [{
                            "name": "nginx", "image": "nginx:latest",
                            "securityContext": {"allowPrivilegeEscalation": false},
                        }],
                    },
                },
            },
        });
        // Without `replicas`, other clients may scale the Deployment.
        if !spec["replicas"].is_null() {
            wanted["spec"]["replicas"] = spec["replicas"].clone();
        }
        contains(&deployment, &wanted, "Deployment")?;
        let available = deployment["status"]["availableReplicas"].as_i64().unwrap_or(0);
        contains(status, &json!({"availableReplicas": available}), "status")?;
        say(status, &[("Ready", ("True", "Ready")), ("Degraded", ("False", "AsExpected"))])
    }
}
