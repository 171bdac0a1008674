//! Steady state, restarts, broken objects, and many objects at once.

use std::time::Duration;

use k8s_openapi::api::{
    admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    apps::v1::Deployment,
    core::v1::Service,
    policy::v1::PodDisruptionBudget,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use memcached_operator::Memcached;
use serde_json::json;

use crate::kit::{
    NAME, SAMPLE, children, condition, converged, deployment, memcached, pod, quiet_world, reconcile_again, roll_out,
    uid, until_condition, world,
};

#[tokio::test(flavor = "multi_thread")]
async fn t03_converged_object_causes_no_writes_after_a_restart() {
    let Some(mut world) = quiet_world().await else { return };
    world.run(&["--resync-interval", "1s"]);
    converged(&world).await;
    reconcile_again(&world, NAME).await;
    // With a named namespace, the operator regularly looks for a kind that is not installed, independent of everything else.
    let requests = |world: &manager_testing::World| world.requests().without("list servicemonitors");
    let settled = requests(&world);
    let resyncs = || {
        let log = world.operator.as_ref().map(manager_testing::Process::log).unwrap_or_default();
        log.matches("\"msg\":\"Resync\"").count()
    };
    let before = resyncs();
    world.until("three resyncs", async || (resyncs() >= before + 3).then_some(())).await;
    assert_eq!(requests(&world), settled, "a resync sends nothing to the API server");

    // A new process knows only what it reads.
    world.run(&["--resync-interval", "1s"]);
    world
        .until("resyncs of the new process", async || {
            let log = world.operator.as_ref().map(manager_testing::Process::log).unwrap_or_default();
            (log.matches("\"msg\":\"Resync\"").count() >= before + 6).then_some(())
        })
        .await;
    let after = requests(&world);
    assert_eq!(after.writes(), settled.writes(), "{after:?}\n{settled:?}");
    for kind in ["deployments", "services", "poddisruptionbudgets"] {
        assert_eq!(
            after.count(&format!("get {kind}")),
            settled.count(&format!("get {kind}")),
            "the operator does not read {kind} either"
        );
    }
    assert!(after.forbidden().is_empty(), "{after:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn t17_killed_operator_creates_nothing_twice() {
    let Some(mut world) = world().await else { return };
    world.apply(SAMPLE).await;
    // Kill the operator repeatedly while it works: each run gets a little further.
    for _ in 0..5 {
        world.restart();
        tokio::task::yield_now().await;
    }
    children(&world).await;
    let uids = [
        uid(&world.get::<Deployment>(NAME).await.expect("a Deployment")),
        uid(&world.get::<Service>(NAME).await.expect("a Service")),
        uid(&world.get::<PodDisruptionBudget>(NAME).await.expect("a budget")),
    ];
    world.restart();
    for name in ["a", "b", "c"] {
        pod(&world, NAME, &format!("{NAME}-{name}"), true).await;
    }
    roll_out(&world, NAME, 3).await;
    until_condition(&world, NAME, "Ready", "True", "Ready").await;
    let after = [
        uid(&world.get::<Deployment>(NAME).await.expect("a Deployment")),
        uid(&world.get::<Service>(NAME).await.expect("a Service")),
        uid(&world.get::<PodDisruptionBudget>(NAME).await.expect("a budget")),
    ];
    assert_eq!(after, uids, "the operator creates nothing twice");
    let warnings: Vec<_> = world.events(NAME).await.into_iter().filter(|event| event.0 == "Warning").collect();
    assert!(warnings.is_empty(), "{warnings:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_survives_an_etcd_outage() {
    let fresh = || cluster::Cluster::fresh(cluster::Nodes::None);
    let binary = env!("CARGO_BIN_EXE_memcached-operator");
    let Some(mut world) = manager_testing::World::prepare(&memcached_operator::MemcachedOperator, binary, fresh).await
    else {
        return;
    };
    world.run(&[]);
    converged(&world).await;
    let before = uid(&world.get::<Deployment>(NAME).await.expect("a Deployment"));

    let part = |stop: bool| {
        let cluster = world.cluster.clone();
        let work = move || if stop { cluster.stop_part("etcd") } else { cluster.start_part("etcd") };
        async { tokio::task::spawn_blocking(work).await.expect("no panic").expect("the supervisor obeys") }
    };
    part(true).await;
    tokio::time::sleep(Duration::from_secs(20)).await; // the fault itself
    part(false).await;

    world
        .until("the API server accepts a size again", async || {
            let patch = Patch::Merge(json!({"spec": {"size": 5}}));
            world.api::<Memcached>().patch(NAME, &PatchParams::default(), &patch).await.ok()
        })
        .await;
    let after = deployment(&world, NAME, 5).await;
    assert_eq!(uid(&after), before);
    assert_eq!(world.list::<Deployment>().await.len(), 1, "the operator creates nothing twice");
    assert!(world.operator.as_mut().is_some_and(|operator| operator.ended().is_none()), "the process still runs");
    reconcile_again(&world, NAME).await;
    let settled = world.requests();
    reconcile_again(&world, NAME).await;
    let more = world.requests().since(&settled);
    assert_eq!(more.written(), ["patch memcacheds/status"], "the only write answers the reconcile request");
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_crd_is_reported_until_it_is_installed() {
    let fresh = || cluster::Cluster::fresh(cluster::Nodes::None);
    let binary = env!("CARGO_BIN_EXE_memcached-operator");
    let operator: &'static dyn manager::Operator = &memcached_operator::MemcachedOperator;
    let Some(mut world) = manager_testing::World::prepare(operator, binary, fresh).await else { return };
    let crds: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    let name = "memcacheds.memcached.cache.example.com";
    drop(crds.delete(name, &kube::api::DeleteParams::default()).await.expect("deleted"));
    // Only the API server acts here: no operator runs yet. On a busy machine this once took more than a minute.
    let gone = async || crds.get_opt(name).await.ok()?.is_none().then_some(());
    world.within(Duration::from_mins(3), "the CRD is gone", gone).await;

    world.run(&[]);
    let line = format!("[+]cache-{name} ok: crd {name} not installed\n");
    world
        .until("the operator is ready all the same, and reports the missing CRD", async || {
            let (code, body) = world.operator.as_ref()?.probe("/readyz?verbose")?;
            (code == 200 && body.contains(&line)).then_some(())
        })
        .await;
    world.install(operator).await;
    world.apply(SAMPLE).await;
    children(&world).await;
    let (code, body) = world.operator.as_ref().expect("it runs").probe("/readyz?verbose").expect("an answer");
    assert!(code == 200 && body.contains(&format!("[+]cache-{name} ok\n")), "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn t22_undecodable_object_blocks_no_other() {
    // A CRD without types lets the test store an object as an older release may have left it. It needs a cluster of its own.
    let fresh = || cluster::Cluster::fresh(cluster::Nodes::None);
    let binary = env!("CARGO_BIN_EXE_memcached-operator");
    let Some(mut world) = manager_testing::World::prepare(&memcached_operator::MemcachedOperator, binary, fresh).await
    else {
        return;
    };
    let crds: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    let name = "memcacheds.memcached.cache.example.com";
    let good = crds.get(name).await.expect("the definition");
    let open = json!({"spec": {"versions": [{
        "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
    }]}});
    crds.patch(name, &PatchParams::default(), &Patch::Merge(&open)).await.expect("an open schema");
    world
        .until("the API server accepts the string", async || {
            world.try_apply(&memcached("broken", &json!({"size": "three"}))).await.ok()
        })
        .await;
    let strict = json!({"spec": {"versions": good.spec.versions}});
    crds.patch(name, &PatchParams::default(), &Patch::Merge(&strict)).await.expect("the strict schema");

    world.run(&[]);
    world.until("the API server accepts the valid object", async || world.try_apply(SAMPLE).await.ok()).await;
    children(&world).await;
    let note = world.until_event("broken", "Warning", "Undecodable").await;
    assert!(note.starts_with("The object does not match its schema and is skipped: "), "{note}");
}

#[tokio::test(flavor = "multi_thread")]
async fn t23_fields_removed_from_spec_leave_the_children() {
    let Some(world) = world().await else { return };
    let spec = json!({
        "size": 2, "config": {"extraArgs": ["-o", "modern"]}, "nodeSelector": {"disk": "ssd"},
        "service": {"annotations": {"note": "x"}},
    });
    world.apply(&memcached("dropping", &spec)).await;
    let before = deployment(&world, "dropping", 2).await;
    let pod_spec = before.spec.and_then(|spec| spec.template.spec).expect("a pod");
    assert!(pod_spec.node_selector.is_some());
    world.apply(&memcached("dropping", &json!({"size": 3}))).await;
    let after = deployment(&world, "dropping", 3).await;
    let pod_spec = after.spec.and_then(|spec| spec.template.spec).expect("a pod");
    assert_eq!(pod_spec.node_selector, None);
    assert!(!pod_spec.containers[0].args.as_ref().expect("arguments").contains(&"modern".to_owned()));
    world
        .until("the operator removes the annotation", async || {
            let service: Service = world.get("dropping").await?;
            service.annotations().is_empty().then_some(())
        })
        .await;
    let entries = after.metadata.managed_fields.unwrap_or_default();
    let ours: Vec<_> =
        entries.iter().filter(|entry| entry.manager.as_deref() == Some("memcached-controller")).collect();
    let operations: Vec<_> = ours.iter().filter_map(|entry| entry.operation.as_deref()).collect();
    assert_eq!(operations, ["Apply"], "the entry of the create is merged into it");
}

#[tokio::test(flavor = "multi_thread")]
async fn t24_poisoned_object_delays_none_of_two_hundred() {
    let Some(world) = world().await else { return };
    refuse_deployments_called("m0", &world).await;
    let begun = tokio::time::Instant::now();
    for index in 0..200 {
        world.apply(&memcached(&format!("m{index}"), &json!({"size": 1}))).await;
    }
    let left = Duration::from_mins(1).saturating_sub(begun.elapsed());
    world
        .within(left, "all objects have a status, and all but the poisoned one a Deployment", async || {
            let deployments = world.list::<Deployment>().await.len();
            let told = world.list::<Memcached>().await.iter().filter(|memcached| memcached.status.is_some()).count();
            (deployments == 199 && told == 200).then_some(())
        })
        .await;
    let poisoned = until_condition(&world, "m0", "Degraded", "True", "ChildRejected").await;
    let message = &condition(&poisoned, "Degraded").expect("Degraded").message;
    assert!(message.contains("not this one"), "{message}");
    assert!(world.get::<Service>("m0").await.is_some(), "its other children exist");
}

/// Creates an admission policy, as an administrator would.
async fn refuse_deployments_called(name: &str, world: &manager_testing::World) {
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": world.namespace},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}},
                "resourceRules": [{
                    "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"], "operations": ["CREATE", "UPDATE"],
                }],
            },
            "validations": [{"expression": format!("object.metadata.name != '{name}'"), "message": "not this one"}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": world.namespace},
        "spec": {"policyName": world.namespace, "validationActions": ["Deny"]},
    });
    let parameters = PatchParams::apply("test").force();
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(world.client.clone());
    policies.patch(&world.namespace, &parameters, &Patch::Apply(&policy)).await.expect("the policy is accepted");
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(world.client.clone());
    bindings.patch(&world.namespace, &parameters, &Patch::Apply(&binding)).await.expect("the binding is accepted");
    world
        .until("the policy is in force", async || {
            let probe = json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
                "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "probe"}}, "template": {
                    "metadata": {"labels": {"app": "probe"}}, "spec": {"containers": [{"name": "x", "image": "x"}]}}},
            });
            let probe: Deployment = serde_json::from_value(probe).expect("a Deployment");
            let dry = kube::api::PostParams { dry_run: true, ..kube::api::PostParams::default() };
            world.api::<Deployment>().create(&dry, &probe).await.is_err().then_some(())
        })
        .await;
}
