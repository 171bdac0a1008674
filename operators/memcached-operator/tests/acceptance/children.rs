//! The children of a Memcached: the operator creates, scales, repairs and adopts them, and leaves unowned objects alone.

use std::time::Duration;

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Pod, Service},
    policy::v1::PodDisruptionBudget,
};
use kube::{ResourceExt, api::DeleteParams};
use memcached_operator::{Config, Memcached, desired};
use serde_json::{Value, json};

use crate::kit::{
    NAME, SAMPLE, children, condition, converged, deployment, memcached, names, quiet_world, reconcile_again, roll_out,
    uid, until_condition, world,
};

/// Asserts that each field of `desired` has the same value in `live`. Elements of lists are compared in order.
fn contains(live: &Value, desired: &Value, path: &str) {
    match (live, desired) {
        (Value::Object(live), Value::Object(desired)) => {
            for (key, value) in desired {
                contains(live.get(key).unwrap_or(&Value::Null), value, &format!("{path}.{key}"));
            }
        }
        (Value::Array(live), Value::Array(desired)) => {
            assert_eq!(live.len(), desired.len(), "{path}");
            for (index, (live, desired)) in live.iter().zip(desired).enumerate() {
                contains(live, desired, &format!("{path}[{index}]"));
            }
        }
        _ => assert_eq!(live, desired, "{path}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t01_sample_gets_three_children() {
    let Some(world) = world().await else { return };
    world.apply(SAMPLE).await;
    let (deployment, service, budget) = children(&world).await;
    let memcached: Memcached = world.get(NAME).await.expect("the sample");

    let config = Config::default();
    for (live, desired) in [
        (serde_json::to_value(&deployment), serde_json::to_value(desired::deployment(&memcached, &config, None))),
        (serde_json::to_value(&service), serde_json::to_value(desired::service(&memcached))),
        (serde_json::to_value(&budget), serde_json::to_value(desired::disruption_budget(&memcached))),
    ] {
        contains(&live.expect("JSON"), &desired.expect("JSON"), "");
    }
    for metadata in [&deployment.metadata, &service.metadata, &budget.metadata] {
        let [owner] = metadata.owner_references.as_deref().unwrap_or_default() else { panic!("{metadata:?}") };
        assert_eq!(owner.api_version, "memcached.cache.example.com/v1");
        assert_eq!(
            (owner.kind.as_str(), owner.name.as_str(), owner.uid.as_str()),
            ("Memcached", NAME, uid(&memcached).as_str())
        );
        assert_eq!((owner.controller, owner.block_owner_deletion), (Some(true), Some(true)));
    }
    assert_eq!(names(&world.list::<Deployment>().await), [NAME]);
    assert_eq!(names(&world.list::<Service>().await), [NAME]);
    assert_eq!(names(&world.list::<PodDisruptionBudget>().await), [NAME]);
    let note = world.until_event(NAME, "Normal", "Created").await;
    assert_eq!(note, format!("Created Deployment, Service and PodDisruptionBudget \"{NAME}\""));
}

#[tokio::test(flavor = "multi_thread")]
async fn t04_kubectl_scale_restarts_no_pod() {
    let Some(world) = world().await else { return };
    converged(&world).await;
    let before = deployment(&world, NAME, 3).await;

    let scale = json!({"spec": {"replicas": 5}});
    let patch = kube::api::Patch::Merge(&scale);
    world.api::<Memcached>().patch_scale(NAME, &kube::api::PatchParams::default(), &patch).await.expect("scales");

    let after = deployment(&world, NAME, 5).await;
    assert_eq!(world.get::<Memcached>(NAME).await.map(|it| it.spec.size), Some(5));
    assert_eq!(after.spec.as_ref().map(|it| &it.template), before.spec.as_ref().map(|it| &it.template));
    assert_eq!(world.until_event(NAME, "Normal", "Scaled").await, "Scaled from 3 to 5");
    let scale = world.api::<Memcached>().get_scale(NAME).await.expect("a scale");
    let selector = scale.status.and_then(|status| status.selector).expect("a selector");
    let pods = world.api::<Pod>().list(&kube::api::ListParams::default().labels(&selector)).await.expect("pods");
    assert_eq!(pods.items.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn t05_size_zero_removes_the_budget_and_keeps_the_service() {
    let Some(world) = world().await else { return };
    converged(&world).await;
    for pod in world.list::<Pod>().await {
        world.api::<Pod>().delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await.expect("deleted");
    }
    world.patch::<Memcached>(NAME, json!({"spec": {"size": 0}})).await;
    deployment(&world, NAME, 0).await;
    roll_out(&world, NAME, 0).await;
    until_condition(&world, NAME, "Ready", "True", "ScaledToZero").await;
    world.until("no budget", async || world.get::<PodDisruptionBudget>(NAME).await.is_none().then_some(())).await;
    world
        .until("no nodes, written as an empty list", async || {
            let raw = world.api::<Memcached>().get(NAME).await.ok()?;
            (serde_json::to_value(raw.status?).ok()?.get("nodes")? == &json!([])).then_some(())
        })
        .await;
    assert!(world.get::<Service>(NAME).await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn t06_drift_is_reverted_within_two_seconds() {
    let limit = Duration::from_secs(2);
    let Some(world) = world().await else { return };
    converged(&world).await;

    world.patch::<Deployment>(NAME, json!({"spec": {"replicas": 1}})).await;
    world
        .within(limit, "the operator restores the replicas", async || {
            (world.get::<Deployment>(NAME).await?.spec?.replicas? == 3).then_some(())
        })
        .await;
    let note = world.until_event(NAME, "Warning", "DriftReverted").await;
    assert_eq!(
        note,
        format!(
            "Reverted changes to Deployment \"{NAME}\" made by another-manager: spec.replicas; change the Memcached instead"
        )
    );
    let requests = world.requests();
    let sent = ["get deployments", "patch deployments"].map(|what| requests.count(what));
    assert_eq!(sent, [0, 1], "one request restores a plain field");

    let mut edited: Deployment = world.get(NAME).await.expect("a Deployment");
    let spec = edited.spec.as_mut().and_then(|spec| spec.template.spec.as_mut()).expect("a pod");
    spec.containers[0].args.as_mut().expect("arguments")[1] = "128".to_owned();
    world.api::<Deployment>().replace(NAME, &kube::api::PostParams::default(), &edited).await.expect("edited");
    world
        .within(limit, "the operator restores -m", async || {
            let deployment: Deployment = world.get(NAME).await?;
            (deployment.spec?.template.spec?.containers[0].args.as_ref()?[1] == "64").then_some(())
        })
        .await;

    let old = uid(&world.get::<Service>(NAME).await.expect("a Service"));
    world.delete::<Service>(NAME).await;
    world
        .within(limit, "the operator creates the Service again", async || {
            world.get::<Service>(NAME).await.filter(|service| uid(service) != old)
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t07_additions_of_other_clients_stay() {
    let Some(world) = world().await else { return };
    converged(&world).await;
    let patch = json!({"spec": {"template": {
        "metadata": {"labels": {"team": "x"}, "annotations": {"kubectl.kubernetes.io/restartedAt": "now"}},
    }}, "metadata": {"annotations": {"note": "mine"}}});
    world.patch::<Deployment>(NAME, patch).await;
    let mut edited: Deployment = world.get(NAME).await.expect("a Deployment");
    let spec = edited.spec.as_mut().and_then(|spec| spec.template.spec.as_mut()).expect("a pod");
    let sidecar = serde_json::from_value(json!({"name": "sidecar", "image": "s"})).expect("a container");
    spec.containers.insert(0, sidecar);
    world.api::<Deployment>().replace(NAME, &kube::api::PostParams::default(), &edited).await.expect("edited");

    for _ in 0..10 {
        reconcile_again(&world, NAME).await;
    }
    // This reconcile also writes: the additions of other clients must survive our own apply.
    world.patch::<Memcached>(NAME, json!({"spec": {"size": 4, "config": {"threads": 8}}})).await;
    let after = deployment(&world, NAME, 4).await;
    let template = after.spec.expect("a spec").template;
    let containers = template.spec.expect("a pod").containers;
    assert_eq!(containers.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["sidecar", "memcached"]);
    assert!(containers[1].args.as_ref().expect("arguments").contains(&"8".to_owned()));
    let metadata = template.metadata.expect("metadata");
    assert_eq!(metadata.labels.expect("labels").get("team").map(String::as_str), Some("x"));
    assert_eq!(
        metadata.annotations.expect("annotations").get("kubectl.kubernetes.io/restartedAt").map(String::as_str),
        Some("now")
    );
    assert_eq!(after.metadata.annotations.expect("annotations").get("note").map(String::as_str), Some("mine"));
}

#[tokio::test(flavor = "multi_thread")]
async fn t08_unowned_deployment_is_left_alone_and_polled() {
    let Some(world) = world().await else { return };
    let unowned: Deployment = world
        .create(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": NAME},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "other"}}, "template": {
                "metadata": {"labels": {"app": "other"}}, "spec": {"containers": [{"name": "x", "image": "x"}]}}},
        }))
        .await;
    world.apply(SAMPLE).await;
    let note = world.until_event(NAME, "Warning", "ErrResourceExists").await;
    assert_eq!(note, format!("Resource \"{NAME}\" already exists and is not managed by Memcached"));
    until_condition(&world, NAME, "Ready", "False", "ResourceConflict").await;
    world.until("the Service is created all the same", async || world.get::<Service>(NAME).await).await;
    let now: Deployment = world.get(NAME).await.expect("the unowned Deployment");
    assert_eq!(now.metadata.resource_version, unowned.metadata.resource_version);

    world.delete::<Deployment>(NAME).await;
    // The operator does not watch unlabelled objects. It polls the name conflict once a minute, without any event.
    world
        .within(Duration::from_secs(65), "our Deployment appears", async || {
            let deployment: Deployment = world.get(NAME).await?;
            (deployment.spec?.replicas? == 3).then_some(())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unlabelled_or_otherwise_owned_objects_are_left_alone() {
    let Some(world) = world().await else { return };
    // The operator could adopt both objects, except that one has no labels of ours and the other has another owner.
    let unlabelled: Service = world
        .create(json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": NAME},
            "spec": {"clusterIP": "None", "selector": {"app": "other"}},
        }))
        .await;
    let owner: ConfigMap =
        world.create(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}})).await;
    let taken: PodDisruptionBudget = world
        .create(json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
            "metadata": {
                "name": NAME,
                "labels": {
                    "app.kubernetes.io/name": "memcached", "app.kubernetes.io/instance": NAME,
                    "app.kubernetes.io/managed-by": "memcached-operator",
                },
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid(&owner), "controller": true},
                ],
            },
            "spec": {"maxUnavailable": 7},
        }))
        .await;
    world.apply(SAMPLE).await;
    deployment(&world, NAME, 3).await;
    reconcile_again(&world, NAME).await;
    let told = until_condition(&world, NAME, "Degraded", "True", "ResourceConflict").await;
    let message = &condition(&told, "Degraded").expect("Degraded").message;
    assert!(!message.contains("also"), "the operator sent no write that the API server refused: {message}");
    let service: Service = world.get(NAME).await.expect("the unowned Service");
    assert_eq!(service.metadata.resource_version, unlabelled.metadata.resource_version);
    let budget: PodDisruptionBudget = world.get(NAME).await.expect("the other owner's budget");
    assert_eq!(budget.spec, taken.spec);
    assert_eq!(budget.metadata.owner_references, taken.metadata.owner_references);
}

#[tokio::test(flavor = "multi_thread")]
async fn t09_orphans_are_adopted() {
    let Some(mut world) = world().await else { return };
    converged(&world).await;
    let before: Deployment = world.get(NAME).await.expect("a Deployment");
    world.operator = None; // so that the test controls the order of deletion and adoption
    let orphan = DeleteParams::orphan();
    drop(world.api::<Memcached>().delete(NAME, &orphan).await.expect("deleted"));
    world
        .until("the Deployment is an orphan", async || {
            let gone = world.get::<Memcached>(NAME).await.is_none();
            let deployment: Deployment = world.get(NAME).await?;
            (gone && deployment.metadata.owner_references.unwrap_or_default().is_empty()).then_some(())
        })
        .await;
    world.apply(SAMPLE).await;
    world.restart();
    let note = world.until_event(NAME, "Normal", "Adopted").await;
    assert!(note.contains("Deployment"), "{note}");
    let memcached: Memcached = world.get(NAME).await.expect("the sample");
    let after: Deployment = world.get(NAME).await.expect("a Deployment");
    assert_eq!(uid(&after), uid(&before));
    assert_eq!(after.metadata.generation, before.metadata.generation, "no pod restarts");
    assert_eq!(after.metadata.owner_references.expect("an owner")[0].uid, uid(&memcached));
}

#[tokio::test(flavor = "multi_thread")]
async fn t14_reserved_extra_args_are_rejected() {
    let Some(world) = world().await else { return };
    let refused = [json!(["-m", "1"]), json!(["-m64"]), json!(["--memory-limit=1"]), json!(["-U", "11211"])];
    for (index, arguments) in refused.iter().enumerate() {
        let name = format!("refused-{index}");
        world.apply(&memcached(&name, &json!({"config": {"extraArgs": arguments}}))).await;
        let invalid = until_condition(&world, &name, "Ready", "False", "InvalidSpec").await;
        let message = &condition(&invalid, "Ready").expect("Ready").message;
        assert!(message.starts_with("spec.config.extraArgs[0]: "), "{message}");
        assert!(world.get::<Deployment>(&name).await.is_none());
    }
    for (index, arguments) in [json!(["-o", "modern"]), json!(["--max-reqs-per-event=40"])].iter().enumerate() {
        let name = format!("accepted-{index}");
        world.apply(&memcached(&name, &json!({"config": {"extraArgs": arguments}}))).await;
        let live = deployment(&world, &name, 1).await;
        let args = live.spec.and_then(|spec| spec.template.spec).expect("a pod").containers[0]
            .args
            .clone()
            .expect("arguments");
        let last: Vec<String> = serde_json::from_value(arguments.clone()).expect("strings");
        assert!(args.ends_with(&last), "{args:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t15_only_template_changes_restart_pods() {
    let Some(world) = world().await else { return };
    converged(&world).await;
    let before = deployment(&world, NAME, 3).await;
    world.patch::<Memcached>(NAME, json!({"spec": {"podDisruptionBudget": {"maxUnavailable": 2}}})).await;
    world
        .until("the budget follows", async || {
            let budget: PodDisruptionBudget = world.get(NAME).await?;
            (serde_json::to_value(budget.spec?.max_unavailable?).ok()? == json!(2)).then_some(())
        })
        .await;
    assert_eq!(world.get::<Deployment>(NAME).await.and_then(|it| it.metadata.generation), before.metadata.generation);

    world.patch::<Memcached>(NAME, json!({"spec": {"config": {"memoryMB": 128}}})).await;
    world
        .until("the template follows", async || {
            let args = world.get::<Deployment>(NAME).await?.spec?.template.spec?.containers[0].args.clone()?;
            (args[1] == "128").then_some(())
        })
        .await;
    let note = world.until_event(NAME, "Normal", "RolloutStarted").await;
    assert!(
        note.starts_with("Rolling out ") && note.contains("spec.template.spec.containers[memcached].args"),
        "{note}"
    );
    roll_out(&world, NAME, 3).await;
    let note = world.until_event(NAME, "Normal", "RolloutFinished").await;
    assert!(note.starts_with("All 3 replicas updated in "), "{note}");

    // Here pods are ready at once, so the status may never have reported a rollout.
    let counted = async || {
        let text = world.operator.as_ref()?.metrics()?;
        let line = text.lines().find(|it| it.starts_with("memcached_operator_rollout_duration_seconds_count "))?;
        (line.rsplit(' ').next() == Some("2")).then_some(())
    };
    world.until("the metric counts the first rollout and this one", counted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t18_paused_object_is_not_reconciled() {
    let Some(world) = world().await else { return };
    converged(&world).await;
    let paused = "memcached.cache.example.com/paused";
    world.patch::<Memcached>(NAME, json!({"metadata": {"annotations": {paused: "true"}}, "spec": {"size": 5}})).await;
    let memcached = until_condition(&world, NAME, "Ready", "Unknown", "Paused").await;
    assert_eq!(condition(&memcached, "Progressing").map(|it| it.reason.as_str()), Some("Paused"));
    assert_eq!(world.get::<Deployment>(NAME).await.and_then(|it| it.spec?.replicas), Some(3));
    world.until_event(NAME, "Normal", "Paused").await;
    world.patch::<Memcached>(NAME, json!({"metadata": {"annotations": {paused: null}}})).await;
    deployment(&world, NAME, 5).await;
    world.until_event(NAME, "Normal", "Resumed").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t21_defaults_are_not_written_into_the_object() {
    let Some(world) = world().await else { return };
    world.apply(SAMPLE).await;
    children(&world).await;
    let sample = world.api::<Memcached>().get(NAME).await.expect("the sample");
    assert_eq!(serde_json::to_value(&sample.spec).expect("JSON"), json!({"size": 3}));

    let nothing =
        json!({"apiVersion": "memcached.cache.example.com/v1", "kind": "Memcached", "metadata": {"name": "nothing"}});
    world.apply(&nothing.to_string()).await;
    deployment(&world, "nothing", 1).await;
    let patch = kube::api::Patch::Merge(json!({"spec": {"replicas": 2}}));
    world.api::<Memcached>().patch_scale("nothing", &kube::api::PatchParams::default(), &patch).await.expect("scales");
    deployment(&world, "nothing", 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn schema_rejects_invalid_names_and_specs() {
    let Some(world) = quiet_world().await else { return };
    for name in [format!("a{}", "b".repeat(52)), "1abc".to_owned()] {
        let error = world.try_apply(&memcached(&name, &json!({}))).await.expect_err("is refused").to_string();
        assert!(error.contains("metadata.name must be a DNS-1035 label of at most 52 characters"), "{error}");
    }
    for (spec, says) in [
        (json!({"size": 65}), "spec.size"),
        // Kubernetes 1.31 shows the type of the value in place of the value.
        (json!({"image": "memcached: 1.6"}), ": image must not contain blanks"),
        (json!({"image": "memcached: 1.6"}), "spec.image: Invalid value: \""),
        (json!({"metrics": {"image": " exporter"}}), ": image must not"),
        (json!({"metrics": {"image": " exporter"}}), "spec.metrics.image: Invalid value: \""),
        (json!({"config": {"maxItemSizeKiB": 600}}), "maxItemSizeKiB"),
        (
            json!({"config": {"maxItemSizeKiB": 65536, "memoryMB": 64}}),
            "maxItemSizeKiB may be at most half of memoryMB",
        ),
        (json!({"rollout": {"maxSurge": 0, "maxUnavailable": "0%"}}), "maxSurge and maxUnavailable cannot both be 0"),
    ] {
        let error = world.try_apply(&memcached("x", &spec)).await.expect_err("is refused").to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn service_type_change_recreates_the_service() {
    let Some(world) = world().await else { return };
    converged(&world).await;
    let old = uid(&world.get::<Service>(NAME).await.expect("a Service"));
    world.patch::<Memcached>(NAME, json!({"spec": {"service": {"type": "ClusterIP"}}})).await;
    let new = world
        .until("another Service with an address", async || {
            let service: Service = world.get(NAME).await?;
            (uid(&service) != old && service.spec.as_ref()?.cluster_ip.as_deref()? != "None").then_some(service)
        })
        .await;
    assert_eq!(
        world.until_event(NAME, "Normal", "Recreated").await,
        format!("Recreated Service \"{NAME}\" to change its type")
    );
    reconcile_again(&world, NAME).await;
    assert_eq!(uid(&world.get::<Service>(NAME).await.expect("a Service")), uid(&new), "recreated only once");
}
