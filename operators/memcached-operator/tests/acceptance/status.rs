//! The status, its conditions and the events of a Memcached.

use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use memcached_operator::Memcached;
use serde_json::json;

use crate::kit::{NAME, SAMPLE, children, condition, converged, pod, until_condition, world};

#[tokio::test(flavor = "multi_thread")]
async fn t02_nodes_are_listed_and_the_object_is_ready() {
    let Some(world) = world().await else { return };
    let memcached = converged(&world).await;
    let status = memcached.status.as_ref().expect("a status");
    assert_eq!(status.nodes, ["memcached-sample-a", "memcached-sample-b", "memcached-sample-c"]);
    assert_eq!(status.observed_generation, memcached.metadata.generation);
    assert_eq!((status.replicas, status.ready_replicas, status.updated_replicas), (3, 3, 3));
    assert_eq!(status.label_selector, "app.kubernetes.io/instance=memcached-sample,app.kubernetes.io/name=memcached");
    assert_eq!(status.image.as_deref(), Some("docker.io/library/memcached:1.6"));
    assert_eq!(status.endpoints, ["10.0.0.1:11211"; 3]);
    assert_eq!(condition(&memcached, "Ready").map(|it| it.message.as_str()), Some("all 3 nodes are ready"));

    world.api::<Pod>().delete("memcached-sample-b", &DeleteParams::default().grace_period(0)).await.expect("deleted");
    pod(&world, NAME, "memcached-sample-d", false).await;
    world
        .until("the status lists the new pod instead of the old one", async || {
            let nodes = world.get::<Memcached>(NAME).await?.status?.nodes;
            (nodes == ["memcached-sample-a", "memcached-sample-c", "memcached-sample-d"]).then_some(())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_image_is_reported_and_clears() {
    let Some(world) = world().await else { return };
    world.apply(SAMPLE).await;
    children(&world).await;
    pod(&world, NAME, "memcached-sample-a", false).await;
    let waiting = json!({"containerStatuses": [{
        "name": "memcached", "image": "nowhere/memcached:1", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}},
    }]});
    world.patch_status::<Pod>("memcached-sample-a", waiting).await;
    until_condition(&world, NAME, "Degraded", "True", "ImagePullFailed").await;
    let note = world.until_event(NAME, "Warning", "ImagePullFailed").await;
    assert!(note.starts_with("Pod memcached-sample-a: cannot pull image"), "{note}");
    world.patch_status::<Pod>("memcached-sample-a", json!({"containerStatuses": null})).await;
    until_condition(&world, NAME, "Degraded", "False", "AsExpected").await;
}
