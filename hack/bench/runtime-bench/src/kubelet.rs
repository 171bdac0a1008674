//! Simulates the Deployment controller and the kubelet: Deployments become ready at once.

use std::{pin::pin, time::Duration};

use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::json;

/// The pause between two attempts while the API server does not answer.
const AGAIN: Duration = Duration::from_millis(500);

/// Runs for ever, for every Deployment. It recovers soon after an outage, so that its own delay does not distort the measurement.
pub(crate) async fn run(api: Api<Deployment>) {
    let mut events = pin!(watcher(api.clone(), watcher::Config::default()).applied_objects());
    while let Some(event) = events.next().await {
        match event {
            Ok(deployment) => roll_out(&api, &deployment),
            Err(_) => tokio::time::sleep(AGAIN).await,
        }
    }
}

/// Writes into the status of a Deployment that all its pods are ready, unless it says so already.
pub(crate) fn roll_out(api: &Api<Deployment>, deployment: &Deployment) {
    let generation = deployment.metadata.generation;
    if deployment.status.as_ref().and_then(|status| status.observed_generation) == generation {
        return;
    }
    let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let status = json!({"metadata": {"uid": deployment.uid()}, "status": {
        "observedGeneration": generation, "replicas": replicas, "updatedReplicas": replicas,
        "readyReplicas": replicas, "availableReplicas": replicas,
        "conditions": [{"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}],
    }});
    let (api, name) = (api.clone(), deployment.name_any());
    tokio::spawn(async move {
        while let Err(error) =
            api.patch_status(&name, &PatchParams::apply("bench-kubelet"), &Patch::Merge(&status)).await
        {
            // A Deployment that was deleted or replaced needs no status.
            if matches!(&error, kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429) {
                return;
            }
            tokio::time::sleep(AGAIN).await;
        }
    });
}
