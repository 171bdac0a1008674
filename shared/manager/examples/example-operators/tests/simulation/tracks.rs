//! What a Track requires of the cluster and of the registry outside of it.

use std::{collections::HashMap, sync::Arc, time::Duration};

use example_operators::{registry::Registry, tracks::Tracks};
use fastrand::Rng;
use manager::{ObjectKey, Operator};
use model_apiserver::Model;
use parking_lot::Mutex;
use serde_json::{Value, json};
use simulation::{
    Caller, ExternalService, Note, Subject, condition,
    oracle::{beside, say},
};

pub(crate) struct Track;

const VERSION: &str = "examples.example.com/version";

impl Subject for Track {
    fn operator(&self) -> &'static dyn Operator {
        Box::leak(Box::<Tracks>::default())
    }

    fn kind(&self) -> (&'static str, &'static str) {
        ("examples.example.com/v1", "Track")
    }

    fn resource(&self) -> &'static str {
        "tracks.examples.example.com"
    }

    fn children(&self) -> &'static [&'static str] {
        &[]
    }

    /// Users make the Deployments, and the operator sets their version and size.
    fn changes(&self) -> &'static [&'static str] {
        &["deployments.apps"]
    }

    /// Each object has a Deployment of its own, because the second one of a Deployment is refused.
    fn spec(&self, name: &str, rng: &mut Rng) -> Value {
        let mut spec = json!({"deployment": format!("web-{name}")});
        if rng.bool() {
            spec["replicas"] = rng.u8(..3).into();
        }
        spec
    }

    fn damage(&self, _: &str, _: &mut Rng) -> Option<Value> {
        None
    }

    fn input(&self, rng: &mut Rng) -> Option<Value> {
        let (name, labels) = (format!("web-{}", rng.char('a'..='c')), json!({"app": "web"}));
        let containers = json!([{"name": "web", "image": format!("web:{}", rng.u8(..3))}]);
        Some(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {
                "replicas": 0, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
            },
        }))
    }

    fn outside(&self, _: u64, note: Note) -> Option<Arc<dyn ExternalService>> {
        Some(Arc::new(Published { registry: Arc::default(), versions: Mutex::default(), note }))
    }

    fn judge(&self, object: &Value, cluster: &Model) -> Result<(), String> {
        let name = object["spec"]["deployment"].as_str().unwrap_or_default();
        let ready = match beside(object, cluster, "deployments.apps", name) {
            None => ("False", "NoDeployment"),
            Some(deployment) if version(&deployment).is_null() => ("False", "NoVersion"),
            Some(deployment) => {
                let (found, version) = (&condition(&object["status"], "Ready")["message"], version(&deployment));
                let expected = says(version.as_str().unwrap_or_default());
                if *found != expected {
                    return Err(format!("the message is {found}, not {expected}"));
                }
                let (size, wanted) = (&deployment["spec"]["replicas"], &object["spec"]["replicas"]);
                if !wanted.is_null() && size != wanted {
                    return Err(format!("the Deployment has {size} replicas, not {wanted}"));
                }
                ("True", "Ready")
            }
        };
        say(&object["status"], &[("Ready", ready)])
    }
}

/// The message of a Track whose Deployment has this version.
fn says(version: &str) -> String {
    format!("the newest version is {version}")
}

/// The version that the pods of a Deployment have.
fn version(deployment: &Value) -> &Value {
    &deployment["spec"]["template"]["metadata"]["annotations"][VERSION]
}

/// The registry, which outlives the processes of the operator.
struct Published {
    registry: Arc<Registry>,
    /// The newest version of each object.
    versions: Mutex<HashMap<ObjectKey, String>>,
    note: Note,
}

fn key(object: &Value) -> ObjectKey {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    ObjectKey::new(text("namespace"), text("name"))
}

impl ExternalService for Published {
    fn operator(&self, _: Caller) -> Box<dyn Operator> {
        Box::new(Tracks { registry: self.registry.clone() })
    }

    fn act(&self, object: &Value, _: Duration, rng: &mut Rng) -> bool {
        let (key, version) = (key(object), format!("1.{}", rng.u8(..)));
        (self.note)(format!("  registry: {key} is {version}"));
        self.registry.publish(&key, &version);
        self.versions.lock().insert(key, version);
        true
    }

    fn heal(&self) {}

    fn check(&self, _: bool) -> Result<(), String> {
        Ok(())
    }

    /// Checks that each Track that is ready is at the newest version.
    fn judge(&self, objects: &[Value], _: &dyn Fn(&str) -> bool) -> Result<(), String> {
        for object in objects {
            let ready = condition(&object["status"], "Ready");
            let newest = self.versions.lock().get(&key(object)).map_or(Value::Null, |version| says(version).into());
            if ready["status"] == "True" && ready["reason"] == "Ready" && ready["message"] != newest {
                return Err(format!("{} says {}", key(object), ready["message"]));
            }
        }
        Ok(())
    }
}
