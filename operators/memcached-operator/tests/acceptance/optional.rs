//! Optional children: network policy, exporters, service monitor.

use cluster::{Cluster, Nodes};
use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::Service, networking::v1::NetworkPolicy},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, api::PostParams};
use manager_testing::World;
use memcached_operator::MemcachedOperator;
use serde_json::{Value, json};
use workloads::ServiceMonitor;

use crate::kit::{deployment, memcached, quiet_world, reconcile_again, world};

#[tokio::test(flavor = "multi_thread")]
async fn network_policy_and_exporters_are_added_and_removed() {
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

    // The stored objects are in sync, so another reconcile does not write them.
    reconcile_again(&world, "guarded").await;
    let (again, kept) = (
        world.get::<Deployment>("guarded").await.expect("a Deployment"),
        world.get::<NetworkPolicy>("guarded").await.expect("a policy"),
    );
    assert_eq!(again.metadata.resource_version, made.metadata.resource_version);
    assert_eq!(kept.metadata.resource_version, policy.metadata.resource_version);

    world.apply(&memcached("guarded", &json!({"size": 2}))).await;
    world.until("no policy", async || world.get::<NetworkPolicy>("guarded").await.is_none().then_some(())).await;
    world
        .until("the exporters are gone", async || {
            let deployment = world.get::<Deployment>("guarded").await?;
            let ports = world.get::<Service>("guarded").await?.spec?.ports?;
            (names(&deployment) == ["memcached"] && ports.len() == 1).then_some(())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn schema_rejects_contradictory_fields() {
    let Some(world) = quiet_world().await else { return };
    for (spec, says) in [
        (json!({"tls": {"clientAuth": "Require"}}), "tls.clientAuth needs tls.secretName"),
        (json!({"port": 9150, "metrics": {"enabled": true}}), "metrics.port must differ from port"),
        (json!({"metrics": {"enabled": true, "port": 11211}}), "metrics.port must differ from port"),
        (json!({"metrics": {"serviceMonitor": {"enabled": true}}}), "serviceMonitor needs metrics.enabled"),
        (json!({"metrics": {"serviceMonitor": {"interval": "often"}}}), "interval must be numbers with the units"),
        (json!({"metrics": {"serviceMonitor": {"interval": "1ms"}}}), "interval must be numbers with the units"),
        (json!({"metrics": {"serviceMonitor": {"interval": "0m0s"}}}), "and at least 1s"),
        (json!({"auth": {}}), "auth needs either secretName or generate: true"),
        (json!({"auth": {"secretName": "a_b"}}), "secretName must consist of lower case letters, digits, '-' and '.'"),
        (json!({"tls": {"secretName": "a..b"}}), "each part between dots must begin and end with a letter or digit"),
        (
            json!({"auth": {"secretName": "a", "key": "../b/c"}}),
            "key must consist of letters, digits, '-', '_' and '.'",
        ),
        (json!({"auth": {"secretName": "a", "key": "a."}}), "and not end with '.'"),
    ] {
        let error = world.try_apply(&memcached("x", &spec)).await.expect_err("is refused").to_string();
        assert!(error.contains(says), "{error}");
    }
    world.apply(&memcached("x", &json!({"tls": {}, "metrics": {}, "networkPolicy": {}}))).await;
}

/// A minimal version of the Prometheus operator's CRD.
fn monitor_definition() -> CustomResourceDefinition {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": any}}});
    let definition = json!({
        "metadata": {"name": "servicemonitors.monitoring.coreos.com"},
        "spec": {
            "group": "monitoring.coreos.com",
            "scope": "Namespaced",
            "names": {"kind": "ServiceMonitor", "plural": "servicemonitors", "singular": "servicemonitor"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    });
    serde_json::from_value(definition).expect("a definition")
}

#[tokio::test(flavor = "multi_thread")]
async fn service_monitor_is_created_once_its_crd_exists() {
    let fresh = || Cluster::fresh(Nodes::None); // other tests must not have this kind
    let Some(mut world) = World::prepare(&MemcachedOperator, env!("CARGO_BIN_EXE_memcached-operator"), fresh).await
    else {
        return;
    };
    world.watch_all_namespaces(&MemcachedOperator).await;
    world.run(&[]);
    let with = |monitor: Value| memcached("seen", &json!({"metrics": {"enabled": true, "serviceMonitor": monitor}}));
    world.apply(&with(json!({"enabled": true}))).await;
    deployment(&world, "seen", 1).await;
    let note = world.until_event("seen", "Warning", "ServiceMonitorUnavailable").await;
    assert_eq!(note, "API monitoring.coreos.com/v1 is not installed; no ServiceMonitor is made");
    reconcile_again(&world, "seen").await;
    let told = world.events("seen").await.into_iter().filter(|event| event.1 == "ServiceMonitorUnavailable");
    assert_eq!(told.count(), 1);
    assert_eq!(world.requests().count("patch events"), 0, "the operator does not repeat the event as a series");

    world
        .until("the operator watches the definition", async || {
            (world.requests().count("watch customresourcedefinitions") >= 1).then_some(())
        })
        .await;
    let before = world.requests();
    assert_eq!(before.forbidden(), Vec::<&str>::new());
    let lists = before.count("list servicemonitors");
    assert!(lists <= 2, "{lists} lists, although the watch of the definition replaces further ones");

    let definitions: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    definitions.create(&PostParams::default(), &monitor_definition()).await.expect("created");
    let monitors: Api<ServiceMonitor> = world.api();
    let monitor = async || monitors.get_opt("seen").await.ok().flatten();
    let made = world.until("the operator creates it without any other event", monitor).await;
    assert_eq!(made.spec.endpoints[0].interval, "30s");
    reconcile_again(&world, "seen").await;
    let kept = monitor().await.expect("it stays");
    assert_eq!(kept.metadata.resource_version, made.metadata.resource_version);

    let before = world.get::<Deployment>("seen").await.and_then(|it| it.metadata.generation);
    world.apply(&with(json!({"enabled": true, "labels": {"release": "prometheus"}}))).await;
    let labelled = async || monitor().await?.metadata.labels?.remove("release");
    assert_eq!(world.until("the monitor has the label", labelled).await, "prometheus");
    world.apply(&with(json!({}))).await;
    world.until("it is gone", async || monitor().await.is_none().then_some(())).await;
    assert_eq!(world.get::<Deployment>("seen").await.and_then(|it| it.metadata.generation), before, "no pod restarts");
}
