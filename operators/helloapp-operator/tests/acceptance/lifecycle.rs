//! Deletion, adoption, the number of requests, and many objects at once.

use std::time::Duration;

use helloapp_operator::HelloApp;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service, policy::v1::PodDisruptionBudget};
use kube::api::DeleteParams;
use serde_json::json;

use crate::kit::{NAME, SAMPLE, converged, hello, quiet_world, uid, world};

#[tokio::test(flavor = "multi_thread")]
async fn t12_deletion_removes_children_without_the_operator() {
    let Some(mut world) = world().await else { return };
    let app = converged(&world, &json!({"port": 8080, "size": 2})).await;
    assert_eq!(app.metadata.finalizers, None);
    world.until("the budget", async || world.get::<PodDisruptionBudget>(NAME).await).await;
    world.operator = None; // a stopped operator delays no deletion
    world.delete::<HelloApp>(NAME).await;
    world
        .until("all objects are gone", async || {
            let left = world.list::<HelloApp>().await.len()
                + world.list::<Deployment>().await.len()
                + world.list::<Service>().await.len()
                + world.list::<PodDisruptionBudget>().await.len();
            (left == 0).then_some(())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orphans_are_adopted() {
    let Some(mut world) = world().await else { return };
    converged(&world, &json!({})).await;
    let before: Deployment = world.get(NAME).await.expect("a Deployment");
    world.operator = None; // so that the test controls the order of deletion and adoption
    drop(world.api::<HelloApp>().delete(NAME, &DeleteParams::orphan()).await.expect("deleted"));
    world
        .until("the Deployment is an orphan", async || {
            let gone = world.get::<HelloApp>(NAME).await.is_none();
            let owners = world.get::<Deployment>(NAME).await?.metadata.owner_references;
            (gone && owners.unwrap_or_default().is_empty()).then_some(())
        })
        .await;
    world.apply(SAMPLE).await;
    world.restart();
    assert_eq!(world.until_event(NAME, "Normal", "Adopted").await, format!("Adopted Deployment \"{NAME}\""));
    let after: Deployment = world.get(NAME).await.expect("a Deployment");
    assert_eq!((uid(&after), after.metadata.generation), (uid(&before), before.metadata.generation));
}

/// Limits the requests, as the API server's audit log counts them, for one app with three children.
#[tokio::test(flavor = "multi_thread")]
async fn request_count_stays_within_limits() {
    let Some(mut world) = quiet_world().await else { return };
    world.run(&["--resync-interval", "1s"]);
    converged(&world, &json!({"port": 8080, "size": 2})).await;
    let created = world.requests();
    assert_eq!((created.count("create deployments"), created.count("create services")), (1, 1), "{created:?}");
    // One write when the children exist, one when they are ready.
    assert!(created.count("patch helloapps/status") <= 2, "{created:?}");
    assert!(created.writes() <= 5, "{created:?}");

    world.patch::<HelloApp>(NAME, json!({"spec": {"size": 3}})).await;
    world.until_deployment(NAME, 3).await;
    world.roll_out(NAME, 3).await;
    world.until_condition::<HelloApp>(NAME, "Ready", "True", "Ready").await;
    let scaled = world.requests();
    println!("created: {created:?}\nscaled: {scaled:?}");
    assert!(scaled.writes() - created.writes() <= 5, "{scaled:?}");

    let resyncs = |world: &manager_testing::World| {
        let log = world.operator.as_ref().map(manager_testing::Process::log).unwrap_or_default();
        log.matches("\"msg\":\"Resync\"").count()
    };
    let settled = world.requests();
    let before = resyncs(&world);
    world.until("three resyncs", async || (resyncs(&world) >= before + 3).then_some(())).await;
    assert_eq!(world.requests(), settled, "a converged object causes no requests");

    world.run(&["--resync-interval", "1s"]);
    let before = resyncs(&world);
    world.until("three resyncs of another process", async || (resyncs(&world) >= before + 3).then_some(())).await;
    let after = world.requests();
    assert_eq!(after.writes(), settled.writes(), "no write after a restart: {after:?}");
    assert_eq!(after.count("get deployments"), settled.count("get deployments"), "{after:?}");
    assert!(after.forbidden().is_empty(), "{after:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn hundred_apps_get_children_within_a_minute() {
    let Some(world) = world().await else { return };
    for index in 0..100 {
        world.apply(&hello(&format!("a{index}"), &json!({"image": "app:1", "port": 8080}))).await;
    }
    world
        .within(Duration::from_mins(1), "a Deployment, a Service and a status for each", async || {
            let deployments = world.list::<Deployment>().await.len();
            let services = world.list::<Service>().await.len();
            let told = world.list::<HelloApp>().await.iter().filter(|it| it.status.is_some()).count();
            (deployments == 100 && services == 100 && told == 100).then_some(())
        })
        .await;
}
