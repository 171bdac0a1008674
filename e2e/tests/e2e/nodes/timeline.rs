//! Records what nodes, pods, leases and objects do, second by second. nextest prints it in the end.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use crontab_operator::CronTab;
use flightticket_operator::FlightTicket;
use helloapp_operator::HelloApp;
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Node, Pod},
};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams},
};
use manager_testing::World;
use memcached_operator::Memcached;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// The state of each object of a list in one line, by its name.
type States = BTreeMap<String, String>;

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
                for (list, found) in lists(&client, &namespace).await {
                    for line in changes(seen.entry(list).or_default(), found) {
                        say(begun, &line);
                    }
                }
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

/// What a list has changed, a line each. A list that has failed says nothing about its objects, so the last states stay.
fn changes(seen: &mut States, found: Option<States>) -> Vec<String> {
    let Some(found) = found else { return Vec::new() };
    let new = found.iter().filter(|(object, state)| seen.get(*object) != Some(*state));
    let mut lines: Vec<_> = new.map(|(object, state)| format!("{object}: {state}")).collect();
    lines.extend(seen.keys().filter(|object| !found.contains_key(*object)).map(|object| format!("{object}: gone")));
    *seen = found;
    lines
}

/// The states of the objects of each list, by a name of the list; `None` for a list that has failed.
async fn lists(client: &Client, namespace: &str) -> Vec<(String, Option<States>)> {
    let every = ListParams::default();
    let mut lists = Vec::new();
    let nodes = Api::<Node>::all(client.clone()).list(&every).await.ok();
    lists.push(("nodes".to_owned(), nodes.map(|nodes| nodes.items.iter().map(of_node).collect())));
    for namespace in [namespace, installation::MANAGER_NAMESPACE] {
        let pods = Api::<Pod>::namespaced(client.clone(), namespace).list(&every).await.ok();
        lists.push((format!("pods of {namespace}"), pods.map(|pods| pods.items.iter().map(of_pod).collect())));
    }
    let leases = Api::<Lease>::namespaced(client.clone(), installation::MANAGER_NAMESPACE).list(&every).await.ok();
    lists.push(("leases".to_owned(), leases.map(|leases| leases.items.iter().map(of_lease).collect())));
    for resource in [
        ApiResource::erase::<Memcached>(&()),
        ApiResource::erase::<HelloApp>(&()),
        ApiResource::erase::<CronTab>(&()),
        ApiResource::erase::<FlightTicket>(&()),
    ] {
        let objects: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
        let state = |object: &DynamicObject| {
            (format!("{} {}", resource.kind, object.name_any()), summary(&object.data["status"]))
        };
        let objects = objects.list(&every).await.ok();
        lists.push((resource.kind.clone(), objects.map(|objects| objects.items.iter().map(state).collect())));
    }
    lists
}

fn of_node(node: &Node) -> (String, String) {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let taints: Vec<_> = taints.map(|taint| format!("{}:{}", taint.key, taint.effect)).collect();
    let ready = condition(&json!(node.status), "Ready");
    (format!("node {}", node.name_any()), format!("Ready={ready} {}", taints.join(" ")))
}

fn of_pod(pod: &Pod) -> (String, String) {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
    let reported = json!(pod.status);
    let phase = reported["phase"].as_str().unwrap_or_default();
    let deleted = if pod.metadata.deletion_timestamp.is_some() { " being deleted" } else { "" };
    let state = format!("on {node} {phase} Ready={}{deleted}", condition(&reported, "Ready"));
    (format!("pod {}", pod.name_any()), state)
}

/// Without the time of the renewal, which changes every two seconds.
fn of_lease(lease: &Lease) -> (String, String) {
    let spec = json!(lease.spec);
    let state = format!("holder={} transitions={}", text(&spec["holderIdentity"]), text(&spec["leaseTransitions"]));
    (format!("lease {}", lease.name_any()), state)
}

fn condition(status: &Value, type_: &str) -> String {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let found = conditions.into_iter().find(|condition| condition["type"] == type_);
    found.map_or_else(|| "none".into(), |it| format!("{}/{}", text(&it["status"]), text(&it["reason"])))
}

fn summary(status: &Value) -> String {
    let fields = [
        "readyReplicas",
        "availableReplicas",
        "rolledBack",
        "phase",
        "bookingId",
        "number",
        "attempt",
        "activeJobs",
        "lastScheduleTime",
        "lastSuccessfulTime",
        "lastMissedTime",
    ];
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

#[test]
fn failed_list_changes_nothing() {
    let states = |states: &[(&str, &str)]| -> States {
        states.iter().map(|(object, state)| ((*object).to_owned(), (*state).to_owned())).collect()
    };
    let mut seen = States::new();
    assert_eq!(
        changes(&mut seen, Some(states(&[("pod a", "runs"), ("pod b", "waits")]))),
        ["pod a: runs", "pod b: waits"]
    );
    assert_eq!(changes(&mut seen, None), Vec::<String>::new(), "the objects may be there");
    assert_eq!(changes(&mut seen, Some(states(&[("pod a", "runs")]))), ["pod b: gone"]);
    assert_eq!(changes(&mut seen, Some(States::new())), ["pod a: gone"]);
}

#[test]
fn summary_has_what_a_failed_node_could_change() {
    let status = json!({
        "availableReplicas": 2, "rolledBack": {"generation": 3}, "attempt": 1, "lastMissedTime": "2026-01-02T03:04:05Z",
        "conditions": [{"type": "Ready", "status": "False", "reason": "Degraded"}],
    });
    assert_eq!(
        summary(&status),
        "Ready=False/Degraded availableReplicas=2 rolledBack={\"generation\":3} attempt=1 lastMissedTime=2026-01-02T03:04:05Z"
    );
}
