//! Policies of the cluster that change every child on admission.

use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    core::v1::{ConfigMap, Service},
    networking::v1::NetworkPolicy,
    policy::v1::PodDisruptionBudget,
};
use serde_json::{Value, json};
use workloads::ServiceMonitor;

use super::{NAME, NamespacedChild, World, deployment, take, without, writes};

/// Finds the JSON pointers of all leaves of `value`: scalars, and empty objects and lists.
fn leaves(value: &Value, at: &str, found: &mut Vec<String>) {
    let step = |name: &str| format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            fields.iter().for_each(|(name, value)| leaves(value, &step(name), found));
        }
        Value::Array(items) if !items.is_empty() => {
            items.iter().enumerate().for_each(|(index, item)| leaves(item, &step(&index.to_string()), found));
        }
        _ => found.push(at.to_owned()),
    }
}

/// For each single field of a child, a policy removes or rewrites this field. Then a process must come to rest, and the next
/// process must write nothing and emit no event. `other` is the desired object of a new operator version.
async fn assert_in_sync_under_every_policy<C: NamespacedChild>(desired: Value, other: Value) {
    let mut places = Vec::new();
    leaves(&desired, "", &mut places);
    places.retain(|place| place.starts_with("/spec") || place.starts_with("/data"));
    // Leave out keys of list elements, and selectors.
    places.retain(|place| !place.ends_with("/name") && !place.contains("/selector/"));
    places.retain(|place| !["ort", "/protocol", "/mountPath"].iter().any(|key| place.ends_with(key)));
    assert!(!places.is_empty());
    for place in places {
        for rewrites in [false, true] {
            let what = format!("{} {place}, {}", C::kind(&()), if rewrites { "rewritten" } else { "removed" });
            let mut world = World::<C>::new();
            let there = place.clone();
            world.model.mutate(&World::<C>::resource(), move |object| match object.pointer_mut(&there) {
                Some(value) if rewrites => *value = rewritten(value),
                _ => take(object, &there),
            });
            world.run(&desired).await;
            let asked = world.run(&desired).await;
            assert!(writes(&asked).is_empty(), "{what}: {:?} {}", writes(&asked), world.child());
            assert_eq!(world.told(), [""; 0], "{what}");
            world.run(&other).await;
            let told = world.told();
            assert!(told.iter().all(|it| !it.starts_with("DriftReverted")), "{what}: {told:?}");
            let asked = world.run(&other).await;
            assert!(writes(&asked).is_empty(), "{what}, after an upgrade: {:?} {}", writes(&asked), world.child());
            assert_eq!(world.told(), told, "{what}");
        }
    }
}

fn rewritten(value: &Value) -> Value {
    match value {
        Value::Bool(flag) => json!(!flag),
        Value::Number(_) => json!(77),
        Value::String(_) => json!("other"),
        Value::Object(_) => json!({"other": "x"}),
        _ => json!(["other"]),
    }
}

#[tokio::test(start_paused = true)]
async fn deployment_changed_by_a_policy_is_in_sync() {
    let mut other = without(&deployment(), "/spec/template/spec/tolerations");
    other["spec"]["replicas"] = json!(3);
    assert_in_sync_under_every_policy::<Deployment>(deployment(), other).await;
}

#[tokio::test(start_paused = true)]
async fn other_children_changed_by_a_policy_are_in_sync() {
    let service = |idle: i32| {
        json!({"metadata": {"name": NAME}, "spec": {
            "selector": {"app": "a"}, "publishNotReadyAddresses": false, "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": idle}},
            "ports": [{"name": "http", "port": 80, "targetPort": "http", "appProtocol": ""}],
        }})
    };
    assert_in_sync_under_every_policy::<Service>(service(5), service(6)).await;
    let budget = |count: i32| json!({"metadata": {"name": NAME}, "spec": {"maxUnavailable": count, "selector": {"matchLabels": {"app": "a"}}}});
    assert_in_sync_under_every_policy::<PodDisruptionBudget>(budget(0), budget(1)).await;
    let map = |value: &str| json!({"metadata": {"name": NAME}, "data": {"empty": "", "full": value}});
    assert_in_sync_under_every_policy::<ConfigMap>(map("x"), map("y")).await;
    let policy = |port: i32| {
        let pods = json!({"matchLabels": {"app": "a"}});
        json!({"metadata": {"name": NAME}, "spec": {"podSelector": pods, "policyTypes": ["Ingress"], "ingress": [
            {"from": [{"podSelector": {}}], "ports": [{"port": port, "protocol": "TCP"}]},
        ]}})
    };
    assert_in_sync_under_every_policy::<NetworkPolicy>(policy(80), policy(81)).await;
    let monitor = |interval: &str| {
        json!({"metadata": {"name": NAME}, "spec": {
            "endpoints": [{"port": "", "interval": interval}], "selector": {},
        }})
    };
    assert_in_sync_under_every_policy::<ServiceMonitor>(monitor("1s"), monitor("2s")).await;
    let job = |parallelism: i32| {
        json!({"metadata": {"name": NAME}, "spec": {"backoffLimit": 0, "suspend": false, "parallelism": parallelism,
            "ttlSecondsAfterFinished": 0, "template": {"spec": {"restartPolicy": "Never", "containers": []}}}})
    };
    assert_in_sync_under_every_policy::<Job>(job(0), job(2)).await;
}
