//! A restore of etcd from a backup while the operator runs: resource versions go back, and the API server uses them again for
//! other changes.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use cluster::{Cluster, Nodes};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Service},
};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use manager_testing::World;
use memcached_operator::{Memcached, MemcachedOperator};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::kit::{deployment, memcached, uid, until_condition};

/// Within this time after the API server is ready again, the operator must follow the restored cluster.
const FOLLOWED: Duration = Duration::from_secs(10);
/// A part of the text of `/readyz?verbose` while versions have gone back, and afterwards.
const TOLD: &str = "went back in time";

/// Most restores happen long after the backup: new writes get versions that the operator has already observed.
#[tokio::test(flavor = "multi_thread")]
async fn operator_follows_a_restored_cluster() {
    check_that_the_restore_is_followed(false, 500).await;
}

/// Here the restored versions overtake those that the operator knows within seconds, through writes of the API server itself.
#[tokio::test(flavor = "multi_thread")]
async fn operator_follows_a_restore_of_a_fresh_backup() {
    check_that_the_restore_is_followed(false, 0).await;
}

/// With leader election: the Lease goes back too.
#[tokio::test(flavor = "multi_thread")]
async fn leader_follows_a_restored_cluster() {
    check_that_the_restore_is_followed(true, 500).await;
}

/// Restores a cluster to a backup that is a few more than `writes` writes old.
async fn check_that_the_restore_is_followed(elects: bool, writes: u32) {
    let fresh = || Cluster::fresh(Nodes::None);
    let binary = env!("CARGO_BIN_EXE_memcached-operator");
    let Some(mut world) = World::prepare(&MemcachedOperator, binary, fresh).await else { return };
    let namespace = world.namespace.clone();
    let election = ["--leader-elect", "--leader-election-namespace", &namespace];
    world.run(if elects { &election } else { &[] });
    for name in ["untouched", "changed", "childless", "deleted"] {
        world.apply(&memcached(name, &json!({"size": 1}))).await;
    }
    let mut uids = Vec::new();
    for name in ["untouched", "changed"] {
        uids.push(uid(&deployment(&world, name, 1).await));
    }
    for name in ["untouched", "changed", "childless", "deleted"] {
        until_condition(&world, name, "Ready", "False", "RollingOut").await;
    }
    let snapshot = on(&world, |cluster| cluster.snapshot("before").expect("a snapshot")).await;

    world.patch::<Memcached>("changed", json!({"spec": {"size": 3}})).await;
    deployment(&world, "changed", 3).await;
    let first = world.get::<Deployment>("childless").await.map(|it| uid(&it));
    world.delete::<Deployment>("childless").await;
    world
        .until("the operator creates the child again", async || {
            (world.get::<Deployment>("childless").await.map(|it| uid(&it))? != first.clone()?).then_some(())
        })
        .await;
    world.delete::<Memcached>("deleted").await;
    world.apply(&memcached("later", &json!({"size": 1}))).await;
    until_condition(&world, "later", "Ready", "False", "RollingOut").await;
    for n in 0..writes {
        let noise = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "noise"}, "data": {"n": n.to_string()}});
        let parameters = PatchParams::apply("test").force();
        world.api::<ConfigMap>().patch("noise", &parameters, &Patch::Apply(&noise)).await.expect("written");
    }

    let (ready, told) = restore_and_listen(&world, snapshot).await;
    // One object of each sort: unchanged since the backup, changed since, deleted since, a child, and a name first used since.
    let service = world.get::<Service>("childless").await.map(|it| uid(&it)).expect("restored");
    for (name, size) in [("untouched", 2), ("changed", 4), ("deleted", 5)] {
        change(&world, name, &json!({"spec": {"size": size}})).await;
    }
    world.api::<Service>().delete("childless", &DeleteParams::default()).await.expect("deleted");
    let later = serde_json::from_str(&memcached("later", &json!({"size": 6}))).expect("a Memcached");
    world.api::<Memcached>().create(&PostParams::default(), &later).await.expect("the name is free again");

    let mut missed = BTreeSet::from(["untouched", "changed", "deleted", "childless", "later"]);
    while !missed.is_empty() && ready.elapsed() < FOLLOWED {
        for (name, size) in [("untouched", 2), ("changed", 4), ("deleted", 5), ("later", 6)] {
            let replicas = world.get::<Deployment>(name).await.and_then(|it| it.spec?.replicas);
            if replicas == Some(size) {
                missed.remove(name);
            }
        }
        if world.get::<Service>("childless").await.is_some_and(|it| uid(&it) != service) {
            missed.remove("childless");
        }
        sleep(Duration::from_millis(25)).await;
    }
    let operator = world.operator.as_mut().expect("it runs");
    assert_eq!(operator.ended(), None, "the process still runs");
    let tail: Vec<_> = operator.log().lines().rev().take(30).map(str::to_owned).collect();
    let (since, log) = (ready.elapsed(), tail.into_iter().rev().collect::<Vec<_>>().join("\n"));
    assert!(missed.is_empty(), "not followed {since:?} after the API server was ready: {missed:?}\n{log}");
    eprintln!("followed {since:?} after the API server was ready");

    let now = operator.probe("/readyz?verbose").map(|(_, body)| body);
    assert!(told || now.as_ref().is_some_and(|body| body.contains(TOLD)), "/readyz?verbose never reported it: {now:?}");
    for (name, before) in ["untouched", "changed"].into_iter().zip(uids) {
        assert_eq!(world.get::<Deployment>(name).await.map(|it| uid(&it)), Some(before), "{name} is the same child");
    }
}

/// Restores the snapshot. Returns when the API server was ready again, and whether `/readyz` reported the restore meanwhile.
async fn restore_and_listen(world: &World, snapshot: cluster::Snapshot) -> (Instant, bool) {
    let mut told = false;
    let restore = on(world, move |cluster| {
        let restored = cluster.restore(&snapshot).expect("restored");
        eprintln!("{restored:?}");
    });
    let listen = async {
        loop {
            let answer = world.operator.as_ref().and_then(|operator| operator.probe("/readyz?verbose"));
            told |= answer.is_some_and(|(_, body)| body.contains(TOLD));
            sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        () = restore => {}
        () = listen => {}
    }
    let ready = Instant::now();
    // The restore has closed the test's own connections.
    let answers = async || world.api::<Service>().get_opt("childless").await.ok().flatten().map(drop);
    world.until("the API server answers the test", answers).await;
    (ready, told)
}

/// Changes an object as its user would, as soon as the API server accepts the change.
async fn change(world: &World, name: &str, patch: &Value) {
    let taken = async || {
        world.api::<Memcached>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.ok().map(drop)
    };
    world.until("the API server accepts the change", taken).await;
}

/// Runs blocking work on the cluster.
async fn on<T: Send + 'static>(world: &World, work: impl FnOnce(&Cluster) -> T + Send + 'static) -> T {
    let cluster: Arc<Cluster> = world.cluster.clone();
    tokio::task::spawn_blocking(move || work(&cluster)).await.expect("no panic")
}
