//! Several replicas: one works, and another takes over.

use std::time::Duration;

use manager_testing::{Process, World};
use memcached_operator::Memcached;
use serde_json::json;

use crate::kit::{NAME, SAMPLE, children, deployment, quiet_world};

const ELECT: &[&str] = &["--leader-elect", "--leader-election-namespace"];

fn flags<'a>(world: &'a World, more: &[&'a str]) -> Vec<&'a str> {
    let mut flags = ELECT.to_vec();
    flags.push(&world.namespace);
    flags.extend(more);
    flags
}

fn leads(replica: &Process) -> bool {
    replica.log().contains("\"msg\":\"Became leader\"")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_stops_hands_over_at_once() {
    let Some(world) = quiet_world().await else { return };
    let mut first = world.replica("-first", &flags(&world, &[]));
    world.until("the first leads", async || leads(&first).then_some(())).await;
    let second = world.replica("-second", &flags(&world, &[]));
    world.until("the second is ready", async || (second.probe("/readyz")?.0 == 200).then_some(())).await;
    world.apply(SAMPLE).await;
    children(&world).await;
    assert!(!leads(&second) && !second.log().contains("Workers started"), "a standby starts no work");

    assert_eq!(first.terminate().code(), Some(0));
    assert!(first.log().contains("\"msg\":\"Stopped leading\""));
    // Far below the 15 s after which a lease runs out that nobody gave back.
    world.within(Duration::from_secs(5), "the second leads", async || leads(&second).then_some(())).await;
    world.patch::<Memcached>(NAME, json!({"spec": {"size": 4}})).await;
    deployment(&world, NAME, 4).await;
    let (code, body) = second.probe("/healthz?verbose").expect("an answer");
    assert!(code == 200 && body.contains("[+]leader-election ok"), "{body}");
    assert!(world.requests().forbidden().is_empty(), "{:?}", world.requests());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_killed_is_replaced_when_its_lease_has_run_out() {
    let times =
        ["--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=500ms"];
    let Some(world) = quiet_world().await else { return };
    let mut first = world.replica("-first", &flags(&world, &times));
    world.until("the first leads", async || leads(&first).then_some(())).await;
    let second = world.replica("-second", &flags(&world, &times));
    world.apply(SAMPLE).await;
    children(&world).await;
    first.kill();
    world.until("the second leads", async || leads(&second).then_some(())).await;
    world.patch::<Memcached>(NAME, json!({"spec": {"size": 4}})).await;
    deployment(&world, NAME, 4).await;
}
