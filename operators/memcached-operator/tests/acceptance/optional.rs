//! What there is only when it is asked for.

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service, networking::v1::NetworkPolicy};
use serde_json::json;

use crate::kit::{deployment, memcached, quiet_world, reconcile_again, world};

#[tokio::test(flavor = "multi_thread")]
async fn a_network_policy_and_exporters_come_and_go() {
    let Some(world) = world().await else { return };
    let spec = json!({
        "size": 2,
        "networkPolicy": {"enabled": true, "from": [{"podSelector": {"matchLabels": {"app": "shop"}}, "namespaceSelector": {}}]},
        "metrics": {"enabled": true},
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"},
        ],
    });
    world.apply(&memcached("guarded", &spec)).await;
    let made = deployment(&world, "guarded", 2).await;
    let policy = world.until("the policy", async || world.get::<NetworkPolicy>("guarded").await).await;
    let service = world.until("the Service", async || world.get::<Service>("guarded").await).await;
    let names = |it: &Deployment| -> Vec<String> {
        let pod = it.spec.as_ref().and_then(|it| it.template.spec.as_ref()).expect("a pod");
        pod.containers.iter().map(|it| it.name.clone()).collect()
    };
    assert_eq!(names(&made), ["memcached", "exporter"]);
    assert_eq!(service.spec.and_then(|it| it.ports).expect("ports").len(), 2);
    let note = world.until_event("guarded", "Normal", "Created").await;
    assert_eq!(note, "Created Deployment, Service, PodDisruptionBudget and NetworkPolicy \"guarded\"");

    // As the API server keeps them they are as we want them.
    reconcile_again(&world, "guarded").await;
    let (again, kept) = (
        world.get::<Deployment>("guarded").await.expect("a Deployment"),
        world.get::<NetworkPolicy>("guarded").await.expect("a policy"),
    );
    assert_eq!(again.metadata.resource_version, made.metadata.resource_version);
    assert_eq!(kept.metadata.resource_version, policy.metadata.resource_version);

    world.apply(&memcached("guarded", &json!({"size": 2}))).await;
    world.until("the policy goes", async || world.get::<NetworkPolicy>("guarded").await.is_none().then_some(())).await;
    world
        .until("the exporters go", async || {
            let deployment = world.get::<Deployment>("guarded").await?;
            let ports = world.get::<Service>("guarded").await?.spec?.ports?;
            (names(&deployment) == ["memcached"] && ports.len() == 1).then_some(())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_that_contradict_each_other_are_refused() {
    let Some(world) = quiet_world().await else { return };
    for (spec, says) in [
        (json!({"tls": {"clientAuth": "Require"}}), "tls.clientAuth needs tls.secretName"),
        (json!({"port": 9150, "metrics": {"enabled": true}}), "metrics.port must differ from port"),
        (json!({"metrics": {"enabled": true, "port": 11211}}), "metrics.port must differ from port"),
        (json!({"auth": {}}), "spec.auth.secretName"),
        (json!({"auth": {"secretName": "a", "key": "../b/c"}}), "spec.auth.key"),
    ] {
        let error = world.try_apply(&memcached("x", &spec)).await.expect_err("is refused").to_string();
        assert!(error.contains(says), "{error}");
    }
    world.apply(&memcached("x", &json!({"tls": {}, "metrics": {}, "networkPolicy": {}}))).await;
}
