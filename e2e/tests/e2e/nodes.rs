//! Tests of several nodes: how pods spread, and what the operators do about a node that fails.

mod timeline;

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use chart::helm::succeeded;
use cluster::{Access, Cluster};
use crontab_operator::CronTab;
use flightticket_operator::FlightTicket;
use helloapp_operator::HelloApp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, ResourceExt, api::DeleteParams};
use manager_testing::World;
use memcached_operator::Memcached;
use serde_json::{Value, json};

use crate::{
    kit::{app_is_ready, world_with},
    outages::{leader, wait_for_two_managers},
};
use timeline::Timeline;

const MEMCACHED: &str = include_str!("../../../operators/memcached-operator/samples/cache_v1_memcached.yaml");
const TICKET: &str = include_str!("../../../operators/flightticket-operator/samples/flights_v1_flightticket.yaml");
const HELLO: &str = include_str!("../../../operators/helloapp-operator/samples/apps_v1_helloapp.yaml");
/// The label of the app's pods.
const APP: &str = "app.kubernetes.io/instance=helloapp-sample";
/// The node that fails.
const SECOND: &str = "node2";
/// How long a node may be silent. A kubelet reports every 5 s, and a loaded machine delays it.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long Kubernetes takes to remove the pods of a deleted node: it looks every 20 s, and first waits for 40 s.
const COLLECTION: Duration = Duration::from_mins(2);

/// The pods of the node that fails: their names and addresses.
type Lost = BTreeMap<String, String>;

#[tokio::test(flavor = "multi_thread")]
async fn spread_constraint_of_an_app_divides_its_pods_among_the_workers() {
    let Some(world) = world_with(Access::Workers).await else { return };
    let constraint = json!({
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "nodeTaintsPolicy": "Honor", // otherwise the control plane of kind counts as a node without pods
    });
    let mut app: Value = serde_saphyr::from_str(HELLO).expect("YAML");
    app["spec"]["size"] = json!(4);
    app["spec"]["topologySpreadConstraints"] = json!([constraint]);
    world.apply(&app.to_string()).await;
    app_is_ready(&world, "helloapp-sample").await;
    let pods = world.ready_pods(APP).await;
    let node = |pod: &Pod| pod.spec.as_ref().and_then(|it| it.node_name.clone()).expect("a node");
    let mut numbers = BTreeMap::<String, usize>::new();
    for pod in &pods {
        *numbers.entry(node(pod)).or_default() += 1;
    }
    assert_eq!(numbers.values().sum::<usize>(), 4, "{numbers:?}");
    assert!(numbers.len() >= 2 && numbers.values().all(|number| *number <= 2), "{numbers:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_silent_or_deleted_node_are_replaced_and_nothing_is_booked_twice() {
    let Some(world) = World::visit("nodes", || installation::failing_cluster(PATIENCE)).await else { return };
    let timeline = Timeline::of(&world);
    install_on_first_node(&world).await;
    create_on_second_node(&world).await;
    timeline.note("everything runs");
    let booking = booked(&world, 2).await;

    let (lost, first) = (pods_on_second_node(&world).await, leader(&world).await);
    part(&world, |cluster| cluster.pause_part(SECOND)).await;
    timeline.note("node2 stops answering, and with it the leader");
    let another = async || Some(leader(&world).await).filter(|it| *it != first);
    let second = world.within(4 * PATIENCE, "another manager leads", another).await;
    timeline.note("another manager leads");
    endpoints_are_gone(&world, &lost, 4 * PATIENCE).await;
    timeline.note("the Memcached does not list the endpoints of silent pods any more");
    cache_is_ready(&world, 3, &lost).await;
    app_is_elsewhere(&world, 1, &lost, 4 * PATIENCE).await;
    timeline.note("the cache and the app are ready again");
    let success = last_success(&world).await;
    world.patch::<FlightTicket>("my-flight-ticket", json!({"spec": {"number": 3}})).await;
    assert_eq!(booked(&world, 3).await, booking, "the booking was replaced");
    timeline.note("the ticket is modified");
    succeeded_after(&world, success.as_ref()).await;
    timeline.note("a later run of the CronTab has succeeded");

    part(&world, |cluster| cluster.resume_part(SECOND)).await;
    timeline.note("node2 answers again");
    node_is_ready(&world).await;
    world
        .within(4 * PATIENCE, "the kubelet ends the replaced pods", async || {
            let pods: Vec<Pod> = world.list().await;
            (!pods.iter().any(|pod| lost.contains_key(&pod.name_any()))).then_some(())
        })
        .await;
    wait_for_two_managers(&world).await;
    assert_eq!(leader(&world).await, second, "the manager that was silent must not lead");

    kubectl(&world, &["cordon", "node1"]).await;
    world.patch::<Memcached>("memcached-sample", json!({"spec": {"size": 5}})).await;
    cache_is_ready(&world, 5, &lost).await;
    release_app_on_second_node(&world).await;
    kubectl(&world, &["uncordon", "node1"]).await;
    let (lost, success) = (pods_on_second_node(&world).await, last_success(&world).await);
    part(&world, |cluster| cluster.stop_part(SECOND)).await;
    kubectl(&world, &["delete", "node", SECOND, "--wait=false"]).await;
    timeline.note("node2 has no power, and its Node is deleted");
    endpoints_are_gone(&world, &lost, COLLECTION).await;
    timeline.note("the Memcached does not list the endpoints of the deleted node any more");
    cache_is_ready(&world, 5, &lost).await;
    timeline.note("the cache is ready again");
    app_is_elsewhere(&world, 2, &lost, COLLECTION).await;
    let app = app_is_ready(&world, "helloapp-sample").await;
    assert_eq!(app.status.expect("a status").rolled_back, None, "the failed node took its pods");
    timeline.note("the app is ready again, with its new release");
    succeeded_after(&world, success.as_ref()).await;
    timeline.note("a later run of the CronTab has succeeded");

    part(&world, |cluster| cluster.start_part(SECOND)).await;
    timeline.note("node2 has power again");
    node_is_ready(&world).await;
    wait_for_two_managers(&world).await;
    assert_eq!(booked(&world, 3).await, booking, "the booking was replaced");
}

/// Installs the operators. All their pods, and with them the bookings, are on the node that does not fail.
async fn install_on_first_node(world: &World) {
    kubectl(world, &["cordon", SECOND]).await;
    let cluster = world.cluster.clone();
    let install = move || installation::install(&cluster, &installation::image_for(&cluster)?);
    tokio::task::spawn_blocking(install).await.expect("no panic").expect("the operators are installed");
    kubectl(world, &["uncordon", SECOND]).await;
}

/// Creates an object of each kind, while pods can start only on the node that will fail, and lets a manager there lead. The last pod of
/// the cache can also start on the other node.
async fn create_on_second_node(world: &World) {
    kubectl(world, &["cordon", "node1"]).await;
    delete_leader(world).await;
    wait_for_two_managers(world).await;
    let crontab = json!({
        "apiVersion": "stable.example.com/v1", "kind": "CronTab", "metadata": {"name": "minutely"},
        "spec": {"cronSpec": "* * * * *", "image": "docker.io/library/busybox:1.36", "runAsUser": 65532, "command": ["date"]},
    });
    let app = format!("{HELLO}  rollback: OnStall\n");
    for object in [MEMCACHED.replace("size: 3", "size: 2").as_str(), &app, TICKET, &crontab.to_string()] {
        world.until("the API server accepts the object", async || world.try_apply(object).await.ok()).await;
    }
    cache_is_ready(world, 2, &Lost::new()).await;
    app_is_ready(world, "helloapp-sample").await;
    booked(world, 2).await;
    // The manager that succeeded the deleted one may be on either node.
    if !leads_on_second_node(world).await {
        kubectl(world, &["cordon", SECOND]).await; // so that no new pod can lead
        delete_leader(world).await;
        let leads = async || leads_on_second_node(world).await.then_some(());
        world.within(4 * PATIENCE, "the manager on the node that will fail leads", leads).await;
    }
    kubectl(world, &["uncordon", "node1"]).await;
    wait_for_two_managers(world).await;
    kubectl(world, &["uncordon", SECOND]).await;
    world.patch::<Memcached>("memcached-sample", json!({"spec": {"size": 3}})).await;
    cache_is_ready(world, 3, &Lost::new()).await;
    assert!(leads_on_second_node(world).await, "the leader has changed");
}

async fn delete_leader(world: &World) {
    managers(world).delete(&leader(world).await, &DeleteParams::default()).await.expect("deleted");
}

/// Whether the manager that leads is on the node that fails.
async fn leads_on_second_node(world: &World) -> bool {
    let pod = managers(world).get_opt(&leader(world).await).await.expect("the API server answers");
    pod.and_then(|pod| pod.spec).and_then(|spec| spec.node_name).is_some_and(|node| node == SECOND)
}

fn managers(world: &World) -> Api<Pod> {
    Api::namespaced(world.client.clone(), installation::MANAGER_NAMESPACE)
}

/// Gives the app a second pod and a new release, while pods can start only on the node that will fail. Returns when two of its pods run
/// there, mostly in the middle of the rollout: a new pod is available only after 10 s.
async fn release_app_on_second_node(world: &World) {
    let change = json!({"spec": {"size": 2, "env": [{"name": "RELEASE", "value": "2"}]}});
    world.patch::<HelloApp>("helloapp-sample", change).await;
    world
        .within(4 * PATIENCE, "two pods of the app run on the node that will fail", async || {
            let pods = world.ready_pods(APP).await;
            (pods.iter().filter(|pod| is_on_second_node(pod)).count() == 2).then_some(())
        })
        .await;
}

/// Waits until the ready pods of the app are this number, and none of them is lost.
async fn app_is_elsewhere(world: &World, size: usize, lost: &Lost, limit: Duration) {
    world
        .within(limit, &format!("the app has {size} pods on the other node"), async || {
            let pods = world.ready_pods(APP).await;
            (pods.len() == size && !pods.iter().any(|pod| lost.contains_key(&pod.name_any()))).then_some(())
        })
        .await;
}

/// Waits until the Memcached is ready with this number of nodes, none of which is in `lost`.
async fn cache_is_ready(world: &World, size: usize, lost: &Lost) {
    world
        .within(4 * PATIENCE, &format!("{size} nodes of the cache are ready"), async || {
            let memcached: Memcached = world.get("memcached-sample").await?;
            let status = memcached.status?;
            let ready = status.conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True");
            let current = status.observed_generation == memcached.metadata.generation;
            let live = status.nodes.iter().all(|name| !lost.contains_key(name));
            (ready && current && live && status.endpoints.len() == size).then_some(())
        })
        .await;
}

/// Waits until the ticket has a booking for this number of seats, and returns the booking's id.
async fn booked(world: &World, number: u64) -> String {
    world
        .until(&format!("{number} seats are booked"), async || {
            let ticket: FlightTicket = world.get("my-flight-ticket").await?;
            let status = json!(ticket.status?);
            let booked = status["phase"] == "Booked" && status["number"] == number;
            booked.then(|| status["bookingId"].as_str().map(ToOwned::to_owned)).flatten()
        })
        .await
}

async fn node_is_ready(world: &World) {
    let nodes: Api<Node> = Api::all(world.client.clone());
    world
        .within(4 * PATIENCE, "the node is ready", async || {
            let node = nodes.get_opt(SECOND).await.ok()??;
            let ready = |status: k8s_openapi::api::core::v1::NodeStatus| {
                status.conditions.into_iter().flatten().any(|it| it.type_ == "Ready" && it.status == "True")
            };
            node.status.is_some_and(ready).then_some(())
        })
        .await;
}

/// Waits until a run of the CronTab succeeds later than this one.
async fn succeeded_after(world: &World, earlier: Option<&Value>) {
    let later = async || last_success(world).await.filter(|it| Some(it) != earlier).map(drop);
    world.within(Duration::from_mins(3), "a later run of the CronTab succeeds", later).await;
}

async fn last_success(world: &World) -> Option<Value> {
    Some(json!(world.get::<CronTab>("minutely").await?.status?.last_successful_time?))
}

/// Waits until the Memcached does not list the lost pods as endpoints.
async fn endpoints_are_gone(world: &World, lost: &Lost, limit: Duration) {
    world
        .within(limit, "the status does not list lost pods as endpoints", async || {
            let endpoints = world.get::<Memcached>("memcached-sample").await?.status?.endpoints;
            let address = |endpoint: &String| endpoint.parse::<SocketAddr>().expect("an address").ip().to_string();
            let is_lost = |endpoint: &String| lost.values().any(|lost| *lost == address(endpoint));
            (!endpoints.iter().any(is_lost)).then_some(())
        })
        .await;
}

async fn pods_on_second_node(world: &World) -> Lost {
    let pods: Vec<Pod> = world.list().await;
    let address = |pod: &Pod| pod.status.as_ref().and_then(|it| it.pod_ip.clone()).unwrap_or_default();
    let lost = pods.iter().filter(|pod| is_on_second_node(pod)).map(|pod| (pod.name_any(), address(pod)));
    let lost: Lost = lost.collect();
    assert!(lost.keys().filter(|name| name.starts_with("memcached")).count() >= 2, "{lost:?}");
    lost
}

fn is_on_second_node(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|it| it.node_name.as_deref() == Some(SECOND))
}

async fn part(world: &World, change: fn(&Cluster) -> anyhow::Result<()>) {
    let cluster = world.cluster.clone();
    tokio::task::spawn_blocking(move || change(&cluster)).await.expect("no panic").expect("the node changes");
}

async fn kubectl(world: &World, arguments: &[&str]) {
    let mut command = world.cluster.kubectl(arguments);
    let run = move || succeeded(&mut command);
    tokio::task::spawn_blocking(run).await.expect("no panic").expect("kubectl succeeds");
}
