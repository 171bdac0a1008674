//! Records what nodes, pods and objects do, second by second. A failed test prints it.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use crontab_operator::CronTab;
use flightticket_operator::FlightTicket;
use helloapp_operator::HelloApp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams},
};
use manager_testing::World;
use memcached_operator::Memcached;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// Prints each change until it is dropped.
pub(super) struct Timeline {
    begun: Instant,
    watcher: JoinHandle<()>,
}

impl Timeline {
    pub(super) fn of(world: &World) -> Self {
        let (client, namespace, begun) = (world.client.clone(), world.namespace.clone(), Instant::now());
        let watcher = tokio::spawn(async move {
            let mut seen = BTreeMap::new();
            loop {
                let now = states(&client, &namespace).await;
                for (object, state) in &now {
                    if seen.get(object) != Some(state) {
                        say(begun, &format!("{object}: {state}"));
                    }
                }
                for object in seen.keys().filter(|object| !now.contains_key(*object)) {
                    say(begun, &format!("{object}: gone"));
                }
                seen = now;
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
        });
        Self { begun, watcher }
    }

    pub(super) fn note(&self, what: &str) {
        say(self.begun, &format!("--- {what}"));
    }
}

impl Drop for Timeline {
    fn drop(&mut self) {
        self.watcher.abort();
    }
}

fn say(begun: Instant, what: &str) {
    eprintln!("{:7.1} s  {what}", begun.elapsed().as_secs_f32());
}

/// The state of each object in one line.
async fn states(client: &Client, namespace: &str) -> BTreeMap<String, String> {
    let mut states = BTreeMap::new();
    let every = ListParams::default();
    for node in Api::<Node>::all(client.clone()).list(&every).await.into_iter().flatten() {
        let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        let taints: Vec<_> = taints.map(|taint| format!("{}:{}", taint.key, taint.effect)).collect();
        let ready = condition(&json!(node.status), "Ready");
        states.insert(format!("node {}", node.name_any()), format!("Ready={ready} {}", taints.join(" ")));
    }
    for namespace in [namespace, installation::MANAGER_NAMESPACE] {
        for pod in Api::<Pod>::namespaced(client.clone(), namespace).list(&every).await.into_iter().flatten() {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
            let reported = json!(pod.status);
            let phase = reported["phase"].as_str().unwrap_or_default();
            let deleted = if pod.metadata.deletion_timestamp.is_some() { " being deleted" } else { "" };
            let state = format!("on {node} {phase} Ready={}{deleted}", condition(&reported, "Ready"));
            states.insert(format!("pod {}", pod.name_any()), state);
        }
    }
    for resource in [
        ApiResource::erase::<Memcached>(&()),
        ApiResource::erase::<HelloApp>(&()),
        ApiResource::erase::<CronTab>(&()),
        ApiResource::erase::<FlightTicket>(&()),
    ] {
        let objects: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
        for object in objects.list(&every).await.into_iter().flatten() {
            states.insert(format!("{} {}", resource.kind, object.name_any()), summary(&object.data["status"]));
        }
    }
    states
}

fn condition(status: &Value, type_: &str) -> String {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let found = conditions.into_iter().find(|condition| condition["type"] == type_);
    found.map_or_else(|| "none".into(), |it| format!("{}/{}", text(&it["status"]), text(&it["reason"])))
}

fn summary(status: &Value) -> String {
    let fields =
        ["readyReplicas", "phase", "bookingId", "number", "activeJobs", "lastScheduleTime", "lastSuccessfulTime"];
    let present = fields.into_iter().filter(|field| !status[*field].is_null());
    let mut parts: Vec<_> = present.map(|field| format!("{field}={}", text(&status[field]))).collect();
    if let Some(endpoints) = status["endpoints"].as_array() {
        parts.push(format!("endpoints={}", endpoints.len()));
    }
    format!("Ready={} {}", condition(status, "Ready"), parts.join(" "))
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
}
