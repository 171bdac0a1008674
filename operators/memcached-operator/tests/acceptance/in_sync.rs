//! When a child counts as in sync on a real API server: empty values, cleared `managedFields`, mutating admission policies.

use std::time::Duration;

use k8s_openapi::api::{
    apps::v1::Deployment, core::v1::Service, networking::v1::NetworkPolicy, policy::v1::PodDisruptionBudget,
};
use kube::{
    Api,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use manager_testing::World;
use serde_json::{Value, json};

use crate::kit::{NAME, converged, deployment, memcached, quiet_world, reconcile_again, world};

const LIMIT: Duration = Duration::from_secs(2);
const FALSE: &str = "/spec/template/spec/automountServiceAccountToken";
const CONTAINER_FALSE: &str = "/spec/template/spec/containers/0/securityContext/allowPrivilegeEscalation";

/// Returns the Deployment as JSON, as another client would read it.
async fn child(world: &World) -> Value {
    serde_json::to_value(world.get::<Deployment>(NAME).await.expect("a Deployment")).expect("JSON")
}

async fn remove(world: &World, pointer: &str) {
    let mut edited = child(world).await;
    let (parent, field) = pointer.rsplit_once('/').expect("a pointer");
    edited.pointer_mut(parent).and_then(Value::as_object_mut).expect("it is there").remove(field);
    let edited = serde_json::from_value(edited).expect("a Deployment");
    let parameters = PostParams { field_manager: Some("kubectl-patch".to_owned()), ..PostParams::default() };
    world.api::<Deployment>().replace(NAME, &parameters, &edited).await.expect("edited");
}

/// Returns how many writes of children the operator has sent, including writes without effect, and its warning events.
async fn done(world: &World) -> (usize, Vec<String>) {
    let requests = world.requests();
    let kinds = ["deployments", "services", "poddisruptionbudgets"];
    let writes = kinds.iter().map(|kind| requests.count(&format!("patch {kind}"))).sum();
    let events = world.events(NAME).await.into_iter();
    (writes, events.filter(|(type_, ..)| type_ == "Warning").map(|(_, reason, note)| reason + &note).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_false_field_is_restored() {
    let Some(world) = world().await else { return };
    converged(&world).await;
    for pointer in [FALSE, CONTAINER_FALSE] {
        assert_eq!(child(&world).await.pointer(pointer), Some(&json!(false)));
        remove(&world, pointer).await;
        world
            .within(LIMIT, &format!("the operator restores {pointer}"), async || {
                (child(&world).await.pointer(pointer) == Some(&json!(false))).then_some(())
            })
            .await;
    }
    let note = world.until_event(NAME, "Warning", "DriftReverted").await;
    assert!(note.contains("automountServiceAccountToken"), "{note}");
}

#[tokio::test(flavor = "multi_thread")]
async fn probe_of_another_kind_is_replaced() {
    let Some(world) = world().await else { return };
    converged(&world).await;
    let probe = "/spec/template/spec/containers/0/readinessProbe";
    let mut edited = child(&world).await;
    let ours = edited.pointer(probe).cloned().expect("a probe");
    *edited.pointer_mut(probe).expect("a probe") = json!({"exec": {"command": ["true"]}, "timeoutSeconds": 3});
    let edited = serde_json::from_value(edited).expect("a Deployment");
    let parameters = PostParams { field_manager: Some("kubectl-edit".to_owned()), ..PostParams::default() };
    world.api::<Deployment>().replace(NAME, &parameters, &edited).await.expect("edited");
    world
        .within(LIMIT, "the operator restores its probe", async || {
            (child(&world).await.pointer(probe) == Some(&ours)).then_some(())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drift_is_detected_after_managed_fields_are_cleared() {
    let Some(world) = world().await else { return };
    converged(&world).await;
    let cleared = json!({"metadata": {"managedFields": [{}]}});
    world.patch::<Deployment>(NAME, cleared).await;
    world
        .within(LIMIT, "the operator restores its entry", async || {
            let entries = child(&world).await["metadata"]["managedFields"].as_array()?.clone();
            (entries.len() == 1 && entries[0]["manager"] == "memcached-controller").then_some(())
        })
        .await;
    world.patch::<Deployment>(NAME, json!({"spec": {"replicas": 1}})).await;
    world
        .within(LIMIT, "replicas are restored", async || (child(&world).await["spec"]["replicas"] == 3).then_some(()))
        .await;
    remove(&world, FALSE).await;
    world
        .within(LIMIT, "the operator restores the field", async || {
            (child(&world).await.pointer(FALSE) == Some(&json!(false))).then_some(())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_selectors_cause_no_write() {
    let Some(mut world) = world().await else { return };
    let spec = json!({"size": 1, "networkPolicy": {"enabled": true}});
    world.apply(&memcached("open", &spec)).await;
    world.until("the Service", async || world.get::<Service>("open").await).await;
    let policy = world.until("the policy", async || world.get::<NetworkPolicy>("open").await).await;
    world.restart();
    reconcile_again(&world, "open").await;
    let again = world.get::<NetworkPolicy>("open").await.expect("the policy");
    assert_eq!(again.metadata.resource_version, policy.metadata.resource_version);
}

/// Creates a mutating admission policy that sets these fields in each write of a Deployment of this namespace. Returns false if the
/// API server does not have this kind.
async fn make_policy(world: &World, fields: &[(&str, Value)]) -> bool {
    let name = format!("rewrite-{}", world.namespace);
    let patches: Vec<String> = fields
        .iter()
        .map(|(path, value)| format!("JSONPatch{{op: \"add\", path: \"{path}\", value: {value}}}"))
        .collect();
    let spec = json!({
        "failurePolicy": "Fail", "reinvocationPolicy": "IfNeeded",
        "matchConstraints": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}},
            "resourceRules": [{"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["deployments"]}],
        },
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": format!("[{}]", patches.join(", "))}}],
    });
    for (kind, spec) in
        [("MutatingAdmissionPolicy", spec), ("MutatingAdmissionPolicyBinding", json!({"policyName": name}))]
    {
        let gvk = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
        let api: Api<DynamicObject> = Api::all_with(world.client.clone(), &ApiResource::from_gvk(&gvk));
        let body = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec,
        });
        match api.patch(&name, &PatchParams::apply("test").force(), &Patch::Apply(&body)).await {
            Err(kube::Error::Api(error)) if error.code == 404 => return false,
            answer => drop(answer.expect("accepted")),
        }
    }
    let probe: Deployment = serde_json::from_value(json!({
        "metadata": {"name": "probe"},
        "spec": {"selector": {"matchLabels": {"app": "probe"}}, "template": {
            "metadata": {"labels": {"app": "probe"}},
            "spec": {"containers": [{"name": "x", "image": "x", "securityContext": {}}]},
        }},
    }))
    .expect("a Deployment");
    world
        .until("the policy is in force", async || {
            let parameters = PostParams { dry_run: true, ..PostParams::default() };
            let answer = world.api::<Deployment>().create(&parameters, &probe).await.ok()?;
            let answer = serde_json::to_value(answer).expect("JSON");
            fields.iter().all(|(path, value)| answer.pointer(path) == Some(value)).then_some(())
        })
        .await;
    true
}

async fn end_policy(world: &World) {
    let name = format!("rewrite-{}", world.namespace);
    for kind in ["MutatingAdmissionPolicyBinding", "MutatingAdmissionPolicy"] {
        let gvk = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
        let api: Api<DynamicObject> = Api::all_with(world.client.clone(), &ApiResource::from_gvk(&gvk));
        drop(api.delete(&name, &DeleteParams::default()).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_set_by_an_admission_policy_are_not_drift() {
    let Some(mut world) = quiet_world().await else { return };
    let fields = [(FALSE, json!(true)), (CONTAINER_FALSE, json!(true)), ("/spec/progressDeadlineSeconds", json!(77))];
    if !make_policy(&world, &fields).await {
        return skip::unasked("this Kubernetes has no MutatingAdmissionPolicy; the kind is in v1 since 1.36");
    }
    world.run(&[]);
    converged(&world).await;

    for life in ["created", "changed"] {
        let before = (done(&world).await, child(&world).await["metadata"]["resourceVersion"].clone());
        for _ in 0..2 {
            world.restart();
            reconcile_again(&world, NAME).await;
            let after = (done(&world).await, child(&world).await["metadata"]["resourceVersion"].clone());
            assert_eq!(before, after, "a child that was {life}");
        }
        if life == "created" {
            // A change in a list makes the operator send an apply.
            world.patch::<memcached_operator::Memcached>(NAME, json!({"spec": {"config": {"memoryMB": 128}}})).await;
            world
                .until("the child changes", async || {
                    let args = child(&world).await.pointer("/spec/template/spec/containers/0/args")?.to_string();
                    args.contains("128").then_some(())
                })
                .await;
            reconcile_again(&world, NAME).await;
        }
    }
    for (path, value) in &fields {
        assert_eq!(child(&world).await.pointer(path), Some(value), "the value of the policy");
    }
    assert_eq!(done(&world).await.1, [""; 0], "the operator reports no drift");

    // The operator still detects real drift, and its event names only that.
    world.patch::<Deployment>(NAME, json!({"spec": {"replicas": 1}})).await;
    deployment(&world, NAME, 3).await;
    let note = world.until_event(NAME, "Warning", "DriftReverted").await;
    assert!(note.contains(": spec.replicas; "), "{note}");

    // Without the policy, a new process restores the fields.
    end_policy(&world).await;
    let mut is_back = false;
    for _ in 0..20 {
        world.restart(); // the API server may still apply the policy for a moment
        reconcile_again(&world, NAME).await;
        is_back = child(&world).await.pointer(FALSE) == Some(&json!(false));
        if is_back {
            break;
        }
    }
    assert!(is_back, "the operator restores its values");
    assert!(world.get::<PodDisruptionBudget>(NAME).await.is_some());
}
