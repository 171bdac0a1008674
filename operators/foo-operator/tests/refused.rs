//! A Foo whose Deployment the API server refuses to change, against a model of the API server in memory and in paused time.

use std::time::Duration;

use foo_operator::{Foo, FooOperator};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use manager_testing::InMemory;
use serde_json::{Value, json};

const NAME: &str = "example-foo";

async fn apply(memory: &InMemory, replicas: u8) {
    let object = json!({
        "apiVersion": "samplecontroller.k8s.io/v1alpha1", "kind": "Foo", "metadata": {"name": NAME},
        "spec": {"deploymentName": NAME, "replicas": replicas},
    });
    let foos: Api<Foo> = Api::namespaced(memory.model.client(), "default");
    foos.patch(NAME, &PatchParams::apply("kubectl").force(), &Patch::Apply(&object)).await.expect("applied");
}

/// How many times the operator has reported that the Foo is in sync.
fn synced(memory: &InMemory) -> u64 {
    let events = memory.model.objects("events.events.k8s.io");
    let synced = events.iter().filter(|event| event["reason"] == "Synced");
    synced.map(|event| event["series"]["count"].as_u64().unwrap_or(1)).sum()
}

fn status(memory: &InMemory) -> Value {
    memory.model.object("foos.samplecontroller.k8s.io", "default", NAME).expect("a Foo")["status"].clone()
}

#[tokio::test(start_paused = true)]
async fn refused_deployment_keeps_its_count_and_is_not_called_synced() {
    let mut memory = InMemory::new(&FooOperator, &[]);
    apply(&memory, 2).await;
    memory.start();
    memory.until_quiet().await;
    let mut live = memory.model.object("deployments.apps", "default", NAME).expect("a Deployment");
    live["status"] = json!({
        "observedGeneration": live["metadata"]["generation"], "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2,
        "availableReplicas": 2,
    });
    memory.model.put(live);
    memory.until_quiet().await;
    let before = synced(&memory);
    assert!(before > 0, "{}", status(&memory));

    let faults = memory.plan(&"before patch deployments.apps -> answer 422".parse().expect("a plan"));
    apply(&memory, 3).await;
    memory.pass(Duration::from_mins(1)).await;
    assert!(faults.unused().is_empty(), "a write was refused");
    let status = status(&memory);
    assert_eq!(status["availableReplicas"], 2, "{status}");
    let degraded = status["conditions"].as_array().into_iter().flatten().find(|it| it["type"] == "Degraded");
    assert_eq!(degraded.map(|it| &it["reason"]), Some(&json!("ChildRejected")), "{status}");
    assert_eq!(synced(&memory), before);
}
