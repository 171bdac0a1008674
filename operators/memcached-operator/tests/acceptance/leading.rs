//! Several replicas: one leads, and a standby takes over.

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
async fn stopped_leader_hands_over_at_once() {
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
    // Much less than the 15 s after which an unreleased lease expires.
    world.within(Duration::from_secs(5), "the second leads", async || leads(&second).then_some(())).await;
    world.patch::<Memcached>(NAME, json!({"spec": {"size": 4}})).await;
    deployment(&world, NAME, 4).await;
    let (code, body) = second.probe("/healthz?verbose").expect("an answer");
    assert!(code == 200 && body.contains("[+]leader-election ok"), "{body}");
    assert!(world.requests().forbidden().is_empty(), "{:?}", world.requests());
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_leader_is_replaced_when_its_lease_expires() {
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

#[tokio::test(flavor = "multi_thread")]
async fn l2_resumed_leader_writes_nothing_after_its_lease_expired() {
    let times =
        ["--leader-elect-lease-duration=8s", "--leader-elect-renew-deadline=5s", "--leader-elect-retry-period=1s"];
    let Some(world) = quiet_world().await else { return };
    let first = world.replica("-first", &flags(&world, &times));
    world.until("the first leads", async || leads(&first).then_some(())).await;
    world.apply(SAMPLE).await;
    children(&world).await;
    let second = world.replica("-second", &flags(&world, &times));
    world.until("the second is ready", async || (second.probe("/readyz")?.0 == 200).then_some(())).await;

    first.pause();
    // Give the first work: the event waits in its socket.
    world.patch::<Memcached>(NAME, json!({"spec": {"size": 4}})).await;
    world.until("the second leads", async || leads(&second).then_some(())).await;
    deployment(&world, NAME, 4).await;
    second.pause(); // from now on, any write comes from the first
    world.patch::<Memcached>(NAME, json!({"spec": {"size": 5}})).await;
    let mut before = world.requests().writes();
    world
        .until("the API server has handled the writes of the second", async || {
            tokio::time::sleep(Duration::from_millis(300)).await;
            (std::mem::replace(&mut before, world.requests().writes()) == before).then_some(())
        })
        .await;

    first.resume();
    let stopped = async || first.log().contains("\"msg\":\"Stopped leading\"").then_some(());
    world.until("the first notices that it does not lead", stopped).await;
    // The first has just observed the second's lease, which is valid for eight seconds.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(world.requests().writes(), before, "{}", first.log());
    deployment(&world, NAME, 5).await; // then the first leads again, as the second is paused
}
