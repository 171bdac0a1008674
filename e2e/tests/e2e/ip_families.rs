//! Tests of the operators on a cluster with IPv6 alone. `E2E_IP_FAMILY=ipv6` runs the whole suite on such a cluster.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv6Addr, SocketAddrV6, TcpStream},
};

use cluster::IpFamily;
use flightticket_operator::FlightTicket;
use installation::metrics;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::ListParams};
use manager_testing::World;
use memcached_operator::Memcached;
use serde_json::json;

use crate::kit::{app_is_ready, inside};

const MEMCACHED: &str = include_str!("../../../operators/memcached-operator/samples/cache_v1_memcached.yaml");
const TICKET: &str = include_str!("../../../operators/flightticket-operator/samples/flights_v1_flightticket.yaml");
const HELLO: &str = include_str!("../../../operators/helloapp-operator/samples/apps_v1_helloapp.yaml");

/// The API server calls the webhooks, the operators report addresses, and the booking server and the proxy of the metrics answer.
#[tokio::test(flavor = "multi_thread")]
async fn operators_work_without_ipv4() {
    let Some(world) = World::visit("ipv6", || installation::cluster_with(IpFamily::Ipv6)).await else { return };
    let cluster = world.cluster.clone();
    let install = move || {
        installation::install(&cluster, &installation::image_for(&cluster)?)?;
        metrics::let_read(&cluster, "reader")?;
        metrics::token(&cluster, "reader")
    };
    let reader = tokio::task::spawn_blocking(install).await.expect("no panic").expect("the operators are installed");
    for object in [MEMCACHED, HELLO, TICKET] {
        world.apply(object).await;
    }
    let flawed = MEMCACHED.replace("size: 3", "size: 3\n  config: {extraArgs: [-p 1]}");
    let refusal = world.try_apply(&flawed).await.expect_err("the webhook refuses it").to_string();
    assert!(refusal.contains("denied the request"), "{refusal}");

    let endpoints = world
        .until("three nodes of the cache are ready", async || {
            let endpoints = world.get::<Memcached>("memcached-sample").await?.status?.endpoints;
            (endpoints.len() == 3).then_some(endpoints)
        })
        .await;
    let addresses: Vec<SocketAddrV6> = endpoints.iter().map(|it| it.parse().expect("an address of IPv6")).collect();
    let version = |address: SocketAddrV6| -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(b"version\r\nquit\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let work = move || addresses.into_iter().map(version).collect::<std::io::Result<Vec<_>>>();
    let answers = inside(world.cluster.clone(), work).await.expect("every node answers");
    assert!(answers.iter().all(|answer| answer.starts_with("VERSION")), "{answers:?}");

    app_is_ready(&world, "helloapp-sample").await;
    world
        .until("the ticket is booked", async || {
            let status = json!(world.get::<FlightTicket>("my-flight-ticket").await?.status?);
            (status["phase"] == "Booked").then_some(())
        })
        .await;

    let cluster = world.cluster.clone();
    let scrape = move || metrics::scrape(&cluster, Some(&reader));
    let answer = tokio::task::spawn_blocking(scrape).await.expect("no panic").expect("the proxy answers");
    let page = answer.expect("the reader may read");
    assert!(page.contains("\nworkqueue_depth{"), "{page}");

    let managers: Api<Pod> = Api::namespaced(world.client.clone(), installation::MANAGER_NAMESPACE);
    let selector = ListParams::default().labels("app.kubernetes.io/component=controller-manager");
    for pod in managers.list(&selector).await.expect("pods").items {
        let address = pod.status.and_then(|it| it.pod_ip).expect("an address");
        assert!(address.parse::<Ipv6Addr>().is_ok(), "{address}");
    }
}
