//! The children of a HelloApp: the operator creates, scales and repairs them, and leaves unowned objects alone.

use std::time::Duration;

use helloapp_operator::{HelloApp, desired};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{PodTemplateSpec, Service},
    policy::v1::PodDisruptionBudget,
};
use kube::{
    ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use manager_testing::{World, condition, contains};
use serde_json::{Value, json};

use crate::kit::{IMAGE, NAME, SAMPLE, converged, hello, uid, world};

fn template(deployment: &Deployment) -> PodTemplateSpec {
    deployment.spec.as_ref().map(|spec| spec.template.clone()).expect("a template")
}

fn image(deployment: &Deployment) -> Option<String> {
    template(deployment).spec?.containers.iter().find(|it| it.name == "app")?.image.clone()
}

/// Edits the Deployment, as `kubectl edit` does.
async fn edit(world: &World, change: impl FnOnce(&mut Deployment)) {
    let mut deployment: Deployment = world.get(NAME).await.expect("a Deployment");
    change(&mut deployment);
    world.api::<Deployment>().replace(NAME, &PostParams::default(), &deployment).await.expect("edited");
}

#[tokio::test(flavor = "multi_thread")]
async fn t01_sample_gets_only_one_deployment() {
    let Some(world) = world().await else { return };
    world.apply(SAMPLE).await;
    let deployment = world.until_deployment(NAME, 1).await;
    assert_eq!(image(&deployment).as_deref(), Some(IMAGE));
    let sample: HelloApp = world.get(NAME).await.expect("the sample");
    let wanted = serde_json::to_value(desired::deployment(
        &sample,
        desired::template(&sample, workloads::SecurityProfile::default()),
    ))
    .expect("JSON");
    contains(&serde_json::to_value(&deployment).expect("JSON"), &wanted, "");
    let [owner] = deployment.metadata.owner_references.as_deref().unwrap_or_default() else { panic!("{deployment:?}") };
    assert_eq!((&*owner.api_version, &*owner.kind, &*owner.uid), ("apps.anupam.com/v1", "HelloApp", &*uid(&sample)));
    assert_eq!(world.until_event(NAME, "Normal", "Created").await, format!("Created Deployment \"{NAME}\""));

    world.reconcile_again::<HelloApp>(NAME).await;
    assert_eq!(world.list::<Deployment>().await.len(), 1);
    assert!(world.list::<Service>().await.is_empty() && world.list::<PodDisruptionBudget>().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn t02_size_restarts_no_pod_and_image_rolls_out() {
    let Some(world) = world().await else { return };
    converged(&world, &json!({})).await;
    let before: Deployment = world.get(NAME).await.expect("a Deployment");
    world.patch::<HelloApp>(NAME, json!({"spec": {"size": 3}})).await;
    let scaled = world.until_deployment(NAME, 3).await;
    assert_eq!(template(&scaled), template(&before));
    assert_eq!(world.until_event(NAME, "Normal", "Scaled").await, "Scaled from 1 to 3");
    world.roll_out(NAME, 3).await;
    world.until_condition::<HelloApp>(NAME, "Ready", "True", "Ready").await;

    world.patch::<HelloApp>(NAME, json!({"spec": {"image": "example.com/hello:2"}})).await;
    let rolled = world
        .until("the image follows", async || {
            let deployment: Deployment = world.get(NAME).await?;
            (image(&deployment)? == "example.com/hello:2").then_some(deployment)
        })
        .await;
    assert_eq!(rolled.spec.and_then(|spec| spec.replicas), Some(3));
    world.until_event(NAME, "Normal", "RolloutStarted").await;
    world.roll_out(NAME, 3).await;
    world.until_event(NAME, "Normal", "RolloutFinished").await;
    let told = world.until_condition::<HelloApp>(NAME, "Ready", "True", "Ready").await;
    assert_eq!(told.status.and_then(|it| it.image).as_deref(), Some("example.com/hello:2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn t03_two_apps_in_one_namespace_share_no_pods() {
    let Some(world) = world().await else { return };
    for name in ["a", "b"] {
        world.apply(&hello(name, &json!({"image": "app:1"}))).await;
    }
    let (a, b) = (world.until_deployment("a", 1).await, world.until_deployment("b", 1).await);
    let selector = |deployment: &Deployment| deployment.spec.as_ref().and_then(|it| it.selector.match_labels.clone());
    let labels = |deployment: &Deployment| template(deployment).metadata.and_then(|it| it.labels).expect("labels");
    for (selecting, other) in [(&a, &b), (&b, &a)] {
        let selector = selector(selecting).expect("a selector");
        assert!(selector.iter().all(|(key, value)| labels(selecting).get(key) == Some(value)), "selects its pods");
        assert!(selector.iter().any(|(key, value)| labels(other).get(key) != Some(value)), "selects no other pods");
    }
    world.patch::<HelloApp>("a", json!({"spec": {"size": 4}})).await;
    world.until_deployment("a", 4).await;
    world.reconcile_again::<HelloApp>("b").await;
    let after: Deployment = world.get("b").await.expect("b's Deployment");
    assert_eq!(after.metadata.resource_version, b.metadata.resource_version);
}

#[tokio::test(flavor = "multi_thread")]
async fn t04_port_adds_and_removes_service_url_and_probes() {
    let Some(world) = world().await else { return };
    converged(&world, &json!({"port": 8080})).await;
    let service: Service = world.get(NAME).await.expect("a Service");
    let spec = serde_json::to_value(&service.spec).expect("JSON");
    assert_eq!(spec["ports"], json!([{"name": "http", "port": 80, "protocol": "TCP", "targetPort": "http"}]));
    let selector = spec["selector"].as_object().expect("a selector");
    let told: HelloApp = world.get(NAME).await.expect("the app");
    let url = format!("http://{NAME}.{}.svc:80", world.namespace);
    assert_eq!(told.status.and_then(|it| it.url), Some(url));
    let with_port: Deployment = world.get(NAME).await.expect("a Deployment");
    let labels = template(&with_port).metadata.and_then(|it| it.labels).expect("labels");
    assert!(selector.iter().all(|(key, value)| labels.get(key).map(String::as_str) == value.as_str()));
    let probes = |deployment: &Deployment| -> Vec<Value> {
        let container = template(deployment).spec.map(|it| it.containers[0].clone()).expect("a container");
        let probes = [container.readiness_probe, container.liveness_probe].into_iter().flatten();
        probes.map(|it| json!({"tcp": it.tcp_socket, "http": it.http_get})).collect()
    };
    let by_tcp = vec![json!({"tcp": {"port": "http"}, "http": null}); 2];
    assert_eq!(probes(&with_port), by_tcp);

    let by_http = vec![json!({"tcp": null, "http": {"path": "/healthy", "port": "http", "scheme": "HTTP"}}); 2];
    for (probe, wanted) in [(json!({"path": "/healthy"}), &by_http), (Value::Null, &by_tcp)] {
        world.patch::<HelloApp>(NAME, json!({"spec": {"probe": probe}})).await;
        world
            .until("the probes have the other form", async || {
                let deployment: Deployment = world.get(NAME).await?;
                (probes(&deployment) == *wanted).then_some(())
            })
            .await;
    }

    world.patch::<HelloApp>(NAME, json!({"spec": {"port": null}})).await;
    let without = world
        .until("the probes are gone", async || {
            let deployment: Deployment = world.get(NAME).await?;
            probes(&deployment).is_empty().then_some(deployment)
        })
        .await;
    assert_eq!(template(&without).spec.and_then(|it| it.containers[0].ports.clone()), None);
    world.until("the Service is gone", async || world.get::<Service>(NAME).await.is_none().then_some(())).await;
    world
        .until("the address is gone too", async || {
            world.get::<HelloApp>(NAME).await?.status?.url.is_none().then_some(())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t05_scale_subresource_sets_the_size_for_good() {
    let Some(world) = world().await else { return };
    converged(&world, &json!({})).await;
    // Read the scale and change it, as kubectl scale and an autoscaler do.
    let apps = world.api::<HelloApp>();
    let scale = apps.get_scale(NAME).await.expect("a scale");
    let status = scale.status.clone().expect("a status");
    assert_eq!(status.replicas, 1);
    assert_eq!(
        status.selector.as_deref(),
        Some("app.kubernetes.io/instance=helloapp-sample,app.kubernetes.io/name=helloapp")
    );
    let patch = Patch::Merge(json!({"spec": {"replicas": 4}}));
    apps.patch_scale(NAME, &PatchParams::default(), &patch).await.expect("scales");

    let scaled = world.until_deployment(NAME, 4).await;
    assert_eq!(apps.get(NAME).await.expect("the app").spec.size, 4);
    world.roll_out(NAME, 4).await;
    for _ in 0..3 {
        world.reconcile_again::<HelloApp>(NAME).await;
    }
    let app = apps.get(NAME).await.expect("the app");
    assert_eq!(app.spec.size, 4, "the operator writes nothing into spec");
    let owners: Vec<_> =
        app.managed_fields().iter().filter(|it| it.manager.as_deref() == Some("helloapp-controller")).collect();
    assert!(owners.iter().all(|it| it.subresource.as_deref() == Some("status")), "{owners:?}");
    let now: Deployment = world.get(NAME).await.expect("a Deployment");
    assert_eq!(now.metadata.generation, scaled.metadata.generation);

    // A user who applies the manifest again without a size leaves the size to the autoscaler.
    let patch = json!({"apiVersion": "apps.anupam.com/v1", "kind": "HelloApp", "spec": {"image": IMAGE}});
    apps.patch(NAME, &PatchParams::apply("gitops").force(), &Patch::Apply(&patch)).await.expect("applied");
    assert_eq!(apps.get(NAME).await.expect("the app").spec.size, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn t06_schema_rejects_invalid_specs() {
    let Some(world) = crate::kit::quiet_world().await else { return };
    let many: Vec<Value> = (0..101).map(|n| json!({"name": format!("A{n}")})).collect();
    for (spec, says) in [
        (json!({"size": 1}), "spec.image: Required value"),
        (json!({"image": "a b"}), "image must not contain blanks"),
        (json!({"image": ""}), "spec.image"),
        (json!({"image": "a", "size": 101}), "spec.size"),
        (json!({"image": "a", "size": -1}), "spec.size"),
        (json!({"image": "a", "port": 0}), "spec.port"),
        (json!({"image": "a", "env": many}), "spec.env"),
        (
            json!({"image": "a", "env": [{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]}),
            "value and valueFrom exclude each other",
        ),
        (json!({"image": "a", "probe": {"path": "/"}}), "probe.path needs port"),
        (json!({"image": "a", "startupProbe": {}}), "startupProbe needs port and a probe that is not disabled"),
        (
            json!({"image": "a", "port": 80, "probe": {"disabled": true}, "startupProbe": {}}),
            "startupProbe needs port and a probe that is not disabled",
        ),
        (json!({"image": "a", "port": 80, "probe": {"path": "ok"}}), "path must begin with / and not contain blanks"),
        (json!({"image": "a", "port": 80, "probe": {"path": "/a b"}}), "path must begin with / and not contain blanks"),
        (json!({"image": "a", "service": {"enabled": true}}), "service.enabled needs port"),
        (json!({"image": "a", "runAsUser": 0}), "runAsUser must be at least 1 under Restricted"),
        (
            json!({"image": "a", "runAsUser": 0, "securityProfile": "Restricted"}),
            "runAsUser must be at least 1 under Restricted",
        ),
        (
            json!({"image": "a", "rollout": {"maxSurge": "0%", "maxUnavailable": 0}}),
            "maxSurge and maxUnavailable cannot both be 0",
        ),
        (
            json!({"image": "a", "rollout": {"minReadySeconds": 600}}),
            "progressDeadlineSeconds must be more than minReadySeconds",
        ),
        (json!({"image": "a", "volumes": [{"name": "v", "hostPath": {"path": "/"}}]}), "hostPath"),
    ] {
        let error = world.try_apply(&hello("x", &spec)).await.expect_err("is refused").to_string();
        assert!(error.contains(says), "{spec}: {error}");
    }
    let twice = json!({"image": "a", "env": [{"name": "A"}, {"name": "A"}]});
    world.try_apply(&hello("x", &twice)).await.expect_err("the API server refuses a duplicate name");
    for name in [format!("a{}", "b".repeat(52)), "1abc".to_owned()] {
        let error = world.try_apply(&hello(&name, &json!({"image": "a"}))).await.expect_err("is refused").to_string();
        assert!(error.contains("metadata.name must be a DNS-1035 label of at most 52 characters"), "{error}");
    }
    world.apply(&hello("x", &json!({"image": "a", "runAsUser": 0, "securityProfile": "RootAllowed"}))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t07_unowned_deployment_is_left_alone() {
    let Some(world) = world().await else { return };
    let unowned: Deployment = world
        .create(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": NAME},
            "spec": {"selector": {"matchLabels": {"app": "other"}}, "template": {
                "metadata": {"labels": {"app": "other"}}, "spec": {"containers": [{"name": "x", "image": "x"}]}}},
        }))
        .await;
    world.apply(SAMPLE).await;
    let note = world.until_event(NAME, "Warning", "ErrResourceExists").await;
    assert_eq!(note, format!("Resource \"{NAME}\" already exists and is not managed by HelloApp"));
    world.until_condition::<HelloApp>(NAME, "Ready", "False", "ResourceConflict").await;
    let now: Deployment = world.get(NAME).await.expect("the unowned Deployment");
    assert_eq!(now.metadata.resource_version, unowned.metadata.resource_version);
}

#[tokio::test(flavor = "multi_thread")]
async fn unowned_service_is_left_alone_while_the_app_runs() {
    let Some(world) = world().await else { return };
    let unowned: Service = world
        .create(json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": NAME},
            "spec": {"selector": {"app": "other"}, "ports": [{"port": 1}]},
        }))
        .await;
    world.apply(&hello(NAME, &json!({"image": IMAGE, "port": 8080}))).await;
    world.until_deployment(NAME, 1).await;
    world.roll_out(NAME, 1).await;
    let told = world.until_condition::<HelloApp>(NAME, "Degraded", "True", "ResourceConflict").await;
    assert_eq!(condition(&told, "Available").map(|it| it.status.as_str()), Some("True"));
    assert_eq!(told.status.and_then(|it| it.url), None, "that address belongs to the other Service");
    let now: Service = world.get(NAME).await.expect("the unowned Service");
    assert_eq!(now.metadata.resource_version, unowned.metadata.resource_version);
}

#[tokio::test(flavor = "multi_thread")]
async fn t08_drift_is_reverted_and_a_sidecar_stays() {
    let limit = Duration::from_secs(2);
    let Some(world) = world().await else { return };
    converged(&world, &json!({})).await;
    world.patch::<Deployment>(NAME, json!({"spec": {"replicas": 9}})).await;
    world
        .within(limit, "the operator restores the replicas", async || {
            (world.get::<Deployment>(NAME).await?.spec?.replicas? == 1).then_some(())
        })
        .await;
    assert_eq!(
        world.until_event(NAME, "Warning", "DriftReverted").await,
        format!(
            "Reverted changes to Deployment \"{NAME}\" made by another-manager: spec.replicas; change the HelloApp instead"
        )
    );

    edit(&world, |deployment| {
        let pod = deployment.spec.as_mut().and_then(|spec| spec.template.spec.as_mut()).expect("a pod");
        pod.containers[0].image = Some("evil:1".to_owned());
        let sidecar = json!({"name": "sidecar", "image": "mesh:1"});
        pod.containers.insert(0, serde_json::from_value(sidecar).expect("a container"));
    })
    .await;
    let after = world
        .within(limit, "the operator restores the image", async || {
            let deployment: Deployment = world.get(NAME).await?;
            (image(&deployment)? == IMAGE).then_some(deployment)
        })
        .await;
    let containers = template(&after).spec.expect("a pod").containers;
    assert_eq!(containers.iter().map(|it| &*it.name).collect::<Vec<_>>(), ["sidecar", "app"]);
}

/// `kubectl rollout undo` restores an old template. The operator reverts that as drift, and its event names the object to change.
#[tokio::test(flavor = "multi_thread")]
async fn kubectl_rollout_undo_is_reverted() {
    let Some(world) = world().await else { return };
    converged(&world, &json!({})).await;
    world.patch::<HelloApp>(NAME, json!({"spec": {"image": "example.com/hello:2"}})).await;
    world
        .until("the image follows", async || {
            (image(&world.get::<Deployment>(NAME).await?)? == "example.com/hello:2").then_some(())
        })
        .await;
    world.roll_out(NAME, 1).await;
    world.until_condition::<HelloApp>(NAME, "Ready", "True", "Ready").await;
    edit(&world, |deployment| {
        let pod = deployment.spec.as_mut().and_then(|spec| spec.template.spec.as_mut()).expect("a pod");
        pod.containers[0].image = Some(IMAGE.to_owned());
    })
    .await;
    let note = world.until_event(NAME, "Warning", "DriftReverted").await;
    assert!(note.contains("containers[app].image") && note.ends_with("; change the HelloApp instead"), "{note}");
    world
        .until("the operator restores the image", async || {
            (image(&world.get::<Deployment>(NAME).await?)? == "example.com/hello:2").then_some(())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn full_sample_converges_without_further_requests() {
    let Some(world) = world().await else { return };
    world.apply(include_str!("../../samples/helloapp-web.yaml")).await;
    world.until_deployment("helloapp-web", 3).await;
    world.until("the budget", async || world.get::<PodDisruptionBudget>("helloapp-web").await).await;
    world.roll_out("helloapp-web", 3).await;
    world.until_condition::<HelloApp>("helloapp-web", "Ready", "True", "Ready").await;
    world.reconcile_again::<HelloApp>("helloapp-web").await;
    let settled = world.requests();
    world.reconcile_again::<HelloApp>("helloapp-web").await;
    let after = world.requests();
    // The operator knows the defaults of the API server: it reads nothing, and its only write answers the annotation.
    assert_eq!(after.count("get deployments"), settled.count("get deployments"));
    assert_eq!(after.count("get deployments"), 0, "{after:?}");
    assert_eq!(after.writes(), settled.writes() + 1, "{after:?}");
    let left: Vec<String> = world.list::<Deployment>().await.iter().map(ResourceExt::name_any).collect();
    assert_eq!(left, ["helloapp-web"]);
}
