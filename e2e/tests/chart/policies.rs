//! The chart's `NetworkPolicies` on a node that enforces them.

use std::{
    fs,
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use chart::helm::succeeded;
use installation::{
    MANAGER, MANAGER_NAMESPACE,
    metrics::{let_read, scrape, token},
    policies::enforced,
};
use serde_json::Value;
use tempfile::TempDir;

use crate::kit::{World, processes};

/// The API server in the example of the page about security.
const EXAMPLE: [&str; 2] = ["192.0.2.10/32", "6443"];

/// The values of the page about security, for an API server at this address.
fn documented_values(server: SocketAddr) -> String {
    let page = include_str!("../../../docs/book/src/how-to/security.md");
    let mark = "policies.rs operators_work_and_connect_to_nothing_but_what_policies_name -->\n```yaml\n";
    let block = page.split_once(mark).unwrap().1.split_once("```").unwrap().0;
    assert_eq!(EXAMPLE.map(|part| block.matches(part).count()), [1, 1], "{block}");
    let range = format!("{}/{}", server.ip(), if server.is_ipv4() { 32 } else { 128 });
    block.replace(EXAMPLE[0], &range).replace(EXAMPLE[1], &server.port().to_string())
}

/// Where the Service `kubernetes` leads.
fn api_server(world: &World) -> SocketAddr {
    let of_service = "--selector=kubernetes.io/service-name=kubernetes";
    let slice = world.get(&["endpointslices", "--namespace=default", of_service])["items"][0].clone();
    let address = slice["endpoints"][0]["addresses"][0].as_str().unwrap().parse().unwrap();
    SocketAddr::new(address, u16::try_from(slice["ports"][0]["port"].as_u64().unwrap()).unwrap())
}

/// Starts a server at an address that belongs to neither a node, a pod nor a Service, of the family of `like`. It accepts connections
/// until the returned handle is dropped.
fn foreign_server(world: &World, like: IpAddr) -> (TcpListener, SocketAddr) {
    let address = if like.is_ipv4() { "203.0.113.7" } else { "2001:db8::7" };
    succeeded(world.cluster.inside("ip").args(["address", "add", address, "dev", "lo"])).unwrap();
    let address = SocketAddr::new(address.parse().unwrap(), 443);
    (world.cluster.in_network(|| Ok(TcpListener::bind(address)?)).unwrap(), address)
}

/// Whether a program in this pod can connect to the address.
fn connects(world: &World, pod: &Value, address: SocketAddr) -> bool {
    let connect = || Ok(TcpStream::connect_timeout(&address, Duration::from_secs(5)).is_ok());
    world.cluster.in_network_of(processes(pod)[0].id, connect).unwrap()
}

/// A pod of this namespace that is no part of the release.
fn client(world: &World, namespace: &str) -> Value {
    let image = "--image=docker.io/nginxinc/nginx-unprivileged:stable";
    world.until("the namespace has its account", |world| {
        world.try_kubectl(&["run", "client", "--namespace", namespace, image]).is_ok()
    });
    world.kubectl(&["wait", "--namespace", namespace, "--for=condition=Ready", "pod/client", "--timeout=2m"]);
    world.get(&["pod", "client", "--namespace", namespace])
}

#[test]
fn operators_work_and_connect_to_nothing_but_what_policies_name() {
    let Some(world) = World::drawn(8, installation::own_cluster) else { return };
    let server = api_server(&world);
    let folder = TempDir::new().unwrap();
    let values = folder.path().join("values.yaml");
    fs::write(&values, documented_values(server)).unwrap();
    world.upgrade(&["--values", values.to_str().unwrap()]);

    let (_listener, foreign) = foreign_server(&world, server.ip());
    let kubelet = SocketAddr::new(server.ip(), 10250); // another port of the permitted address
    world.kubectl(&["create", "namespace", "monitoring"]);
    let [scraper, other] = ["monitoring", "default"].map(|namespace| client(&world, namespace));
    let of_booking = "--selector=app.kubernetes.io/component=booking-server";
    let booking = world.get(&["pods", "--namespace", MANAGER_NAMESPACE, of_booking])["items"][0].clone();
    let reader = token(&world.cluster, "reader").unwrap();
    let_read(&world.cluster, "reader").unwrap();

    let refused = enforced(&world.cluster, || {
        // The new pod does all of its start under the policies.
        let manager = format!("deployment/{MANAGER}");
        let rollout = |what: &str| world.kubectl(&["rollout", what, &manager, "--namespace", MANAGER_NAMESPACE]);
        rollout("restart");
        rollout("status");
        world.until("only the new pod is left", |world| world.pods().len() == 1);
        // The API server calls the webhooks, and FlightTicket its provider.
        world.tested();
        let page = scrape(&world.cluster, Some(&reader)).unwrap().unwrap();
        assert!(page.contains("\nworkqueue_depth{"), "{page}");

        let manager = world.pods().remove(0);
        let own: IpAddr = manager["status"]["podIP"].as_str().unwrap().parse().unwrap();
        let [metrics, probes] = [8443, 8081].map(|port| SocketAddr::new(own, port));
        for (pod, address) in [(&manager, server), (&scraper, metrics), (&other, probes), (&other, foreign)] {
            assert!(connects(&world, pod, address), "{} to {address}", pod["metadata"]["name"]);
        }
        let refused = [(manager.clone(), foreign), (manager, kubelet), (booking, foreign), (other, metrics)];
        for (pod, address) in &refused {
            assert!(!connects(&world, pod, *address), "{} to {address}", pod["metadata"]["name"]);
        }
        refused
    });
    for (pod, address) in refused.unwrap() {
        let is_free = connects(&world, &pod, address);
        assert!(is_free, "refused also without policies: {} to {address}", pod["metadata"]["name"]);
    }
}
