//! Helpers of [`World`] and [`InMemory`] that play the other controllers of a cluster, and that wait for the operator's reaction.

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec},
        core::v1::Pod,
    },
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::core::object::HasStatus;
use manager::Status;
use serde_json::{Value, json};

use crate::{
    in_memory::InMemory,
    world::{Namespaced, World, run_id},
};

/// A custom resource of this project.
pub trait Ours: Namespaced + HasStatus<Status: Status> {}

impl<K: Namespaced + HasStatus<Status: Status>> Ours for K {}

impl World {
    /// Waits for a Deployment with this number of replicas.
    pub async fn until_deployment(&self, name: &str, replicas: i32) -> Deployment {
        self.until(&format!("Deployment {name} with {replicas} replicas"), async || {
            let deployment: Deployment = self.get(name).await?;
            (spec(&deployment)?.replicas == Some(replicas)).then_some(deployment)
        })
        .await
    }

    /// Waits until the condition has this status and reason for the present generation.
    pub async fn until_condition<K: Ours>(&self, name: &str, type_: &str, status: &str, reason: &str) -> K {
        self.until(&format!("{name} is {type_}={status}/{reason}"), async || {
            let object: K = self.get(name).await?;
            let found = condition(&object, type_)?;
            let current = found.observed_generation == object.meta().generation;
            (current && found.status == status && found.reason == reason).then_some(object)
        })
        .await
    }

    /// Requests a reconcile of the object, and waits until the operator has done it.
    pub async fn reconcile_again<K: Ours>(&self, name: &str) {
        let (token, annotation) = (run_id(), format!("{}/reconcile-requested-at", K::group(&())));
        self.patch::<K>(name, json!({"metadata": {"annotations": {annotation: token}}})).await;
        self.until("the request to reconcile is answered", async || {
            let object: K = self.get(name).await?;
            let mut status = object.status()?.clone();
            (status.last_handled_reconcile_at_mut().as_deref() == Some(&*token)).then_some(())
        })
        .await;
    }

    /// Plays the Deployment controller: writes `status` for the present generation.
    pub async fn deployment_status(&self, name: &str, mut status: Value) {
        let deployment: Deployment = self.get(name).await.expect("a Deployment");
        status["observedGeneration"] = json!(deployment.metadata.generation);
        self.patch_status::<Deployment>(name, status).await;
    }

    /// Plays the Deployment controller: `ready` pods of the present template exist and are available.
    pub async fn roll_out(&self, name: &str, ready: i32) {
        let status = json!({
            "replicas": ready, "updatedReplicas": ready, "readyReplicas": ready, "availableReplicas": ready,
            "conditions": [{"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable", "message": ""}],
        });
        self.deployment_status(name, status).await;
    }

    /// Plays the `ReplicaSet` controller: creates a pod from the Deployment's template.
    pub async fn make_pod(&self, deployment: &Deployment, name: &str) {
        let template = &spec(deployment).expect("a spec").template;
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": template.metadata, "spec": template.spec});
        pod["metadata"]["name"] = json!(name);
        self.create::<Pod>(pod).await;
    }

    /// Plays the kubelet: sets the state of the pod's only container. The container is ready if it runs.
    pub async fn container_state(&self, pod: &str, state: Value) {
        let live: Pod = self.get(pod).await.expect("a Pod");
        let container = &live.spec.as_ref().expect("a spec").containers[0];
        let ready = state.get("running").is_some();
        let status = json!({
            "phase": if ready { "Running" } else { "Pending" },
            "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}],
            "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}],
            "containerStatuses": [{
                "name": container.name, "image": container.image, "imageID": "", "ready": ready, "restartCount": 0,
                "state": state,
            }],
        });
        self.patch_status::<Pod>(pod, status).await;
    }
}

impl InMemory {
    /// Plays the Deployment controller and the scheduler in the namespace `default`: replaces all pods by `pod`, made from the
    /// template of this Deployment. It is pending and has had these conditions (type, status, message) since now.
    pub fn replace_pod(&self, deployment: &str, pod: &str, conditions: &[(&str, &str, &str)]) {
        const NAMESPACE: &str = "default";
        for former in self.model.objects("pods") {
            self.model.take("pods", NAMESPACE, former["metadata"]["name"].as_str().expect("a name"));
        }
        let deployment = self.model.object("deployments.apps", NAMESPACE, deployment).expect("a Deployment");
        let template = &deployment["spec"]["template"];
        let now = self.model.now().to_string();
        let condition = |(type_, status, message): &(&str, &str, &str)| {
            let mut condition = json!({"type": type_, "status": status, "message": message});
            condition["lastTransitionTime"] = json!(now);
            condition
        };
        self.model.put(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": pod, "namespace": NAMESPACE, "labels": template["metadata"]["labels"]},
            "spec": template["spec"],
            "status": {"phase": "Pending", "conditions": conditions.iter().map(condition).collect::<Vec<_>>()},
        }));
    }
}

/// The spec of a Deployment. It is optional in k8s-openapi up to 1.36. The conversion serves both forms.
fn spec(deployment: &Deployment) -> Option<&DeploymentSpec> {
    (&deployment.spec).into()
}

/// The condition of this type in the object's status.
pub fn condition<'a>(object: &'a impl Ours, type_: &str) -> Option<&'a Condition> {
    object.status()?.conditions().iter().find(|condition| condition.type_ == type_)
}

/// Asserts that every field of `desired` is in `live` with the same value. Elements of lists are compared in order.
pub fn contains(live: &Value, desired: &Value, path: &str) {
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
