//! The rights of the pods, and the rights of the operator.

use helloapp_operator::{HelloApp, HelloAppOperator};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::PodSpec};
use kube::api::PostParams;
use manager_testing::World;
use serde_json::{Value, json};

use crate::kit::{IMAGE, NAME, hello, quiet_world, world};

/// Waits for the Deployment of the object, and returns its pod spec.
async fn pods_of(world: &World, name: &str) -> PodSpec {
    world.until_deployment(name, 1).await.spec.and_then(|it| it.template.spec).expect("a pod")
}

/// Runs the API server's own check, in a namespace that enforces the restricted standard.
async fn is_restricted(world: &World, pod: &PodSpec) -> Result<(), String> {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"}, "spec": pod});
    let pod = serde_json::from_value(pod).expect("a Pod");
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let created = world.api::<k8s_openapi::api::core::v1::Pod>().create(&dry, &pod).await;
    created.map(drop).map_err(|error| error.to_string())
}

fn context(pod: &PodSpec) -> Value {
    json!({
        "token": pod.automount_service_account_token, "links": pod.enable_service_links, "pod": pod.security_context,
        "container": pod.containers[0].security_context,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn t09_pods_are_restricted_by_default() {
    let Some(world) = world().await else { return };
    for (name, profile) in
        [("by-default", Value::Null), ("root-allowed", json!("RootAllowed")), ("baseline", json!("Baseline"))]
    {
        let mut spec = json!({"image": IMAGE, "securityProfile": profile});
        spec.as_object_mut().expect("an object").retain(|_, value| !value.is_null());
        world.apply(&hello(name, &spec)).await;
    }
    let restricted = pods_of(&world, "by-default").await;
    is_restricted(&world, &restricted).await.expect("passes the API server's check");
    let mut expected = context(&restricted);

    let root_allowed = pods_of(&world, "root-allowed").await;
    let error = is_restricted(&world, &root_allowed).await.expect_err("does not pass");
    assert!(error.contains("runAsNonRoot != true") && !error.contains("capabilities"), "{error}");
    for part in ["pod", "container"] {
        expected[part].as_object_mut().expect("a context").remove("runAsNonRoot").expect("was there");
    }
    assert_eq!(context(&root_allowed), expected, "only runAsNonRoot is gone");

    assert_eq!(
        context(&pods_of(&world, "baseline").await),
        json!({
            "token": null, "links": null, "pod": {"seccompProfile": {"type": "RuntimeDefault"}},
            "container": {"allowPrivilegeEscalation": false},
        })
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn default_security_profile_flag_is_applied() {
    let Some(mut world) = quiet_world().await else { return };
    world.run(&["--default-security-profile", "RootAllowed"]);
    world.apply(&hello(NAME, &json!({"image": IMAGE}))).await;
    let pod = pods_of(&world, NAME).await;
    assert_eq!(pod.security_context.and_then(|it| it.run_as_non_root), None);
    assert_eq!(
        world.get::<HelloApp>(NAME).await.and_then(|it| it.spec.security_profile),
        None,
        "the operator does not write the default into spec"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn weakest_security_profile_flag_refuses_weaker_ones() {
    let Some(mut world) = quiet_world().await else { return };
    world.run(&["--weakest-security-profile", "RootAllowed"]);
    world.apply(&hello(NAME, &json!({"image": IMAGE, "securityProfile": "Baseline"}))).await;
    world.until_condition::<HelloApp>(NAME, "Degraded", "True", "InvalidSpec").await;
    assert!(world.get::<Deployment>(NAME).await.is_none(), "no pods of a forbidden profile");
    world.apply(&hello(NAME, &json!({"image": IMAGE, "securityProfile": "RootAllowed"}))).await;
    pods_of(&world, NAME).await;
}

#[test]
fn t14_operator_may_not_read_secrets_or_exec_into_pods() {
    let granted = manager::permissions(&[&HelloAppOperator]);
    for rule in &granted {
        for resource in rule.resources.iter().flatten() {
            let forbidden = ["secrets", "configmaps", "pods/exec", "*"];
            assert!(!forbidden.contains(&resource.as_str()), "{rule:?}");
            let reads_only = rule.verbs.iter().all(|verb| ["get", "list", "watch"].contains(&verb.as_str()));
            assert!(resource != "pods" || reads_only, "{rule:?}");
        }
    }
    let resources: Vec<_> = granted.iter().filter_map(|rule| rule.resources.as_ref()).flatten().collect();
    assert!(resources.iter().any(|it| *it == "deployments"), "{resources:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn deployment_refused_by_quota_is_reported() {
    let Some(world) = world().await else { return };
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"},
        "spec": {"hard": {"count/deployments.apps": "0"}},
    });
    world.create::<k8s_openapi::api::core::v1::ResourceQuota>(quota).await;
    // No controller counts the usage on this cluster, so the test writes it.
    let used = json!({"hard": {"count/deployments.apps": "0"}, "used": {"count/deployments.apps": "0"}});
    world.patch_status::<k8s_openapi::api::core::v1::ResourceQuota>("none", used).await;
    world.apply(&hello(NAME, &json!({"image": IMAGE}))).await;
    world.until_condition::<HelloApp>(NAME, "Degraded", "True", "QuotaExceeded").await;
    world.delete::<k8s_openapi::api::core::v1::ResourceQuota>("none").await;
    let deployment: Deployment = world.until_deployment(NAME, 1).await;
    assert_eq!(deployment.metadata.name.as_deref(), Some(NAME));
}
