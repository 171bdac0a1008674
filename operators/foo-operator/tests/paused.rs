//! A paused Foo, against a model of the API server in memory and in paused time.

use foo_operator::{Foo, FooOperator};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use manager_testing::InMemory;
use serde_json::{Value, json};

const NAME: &str = "example-foo";

fn foos(memory: &InMemory) -> Api<Foo> {
    Api::namespaced(memory.model.client(), "default")
}

fn status(memory: &InMemory) -> Value {
    let object = memory.model.object("foos.samplecontroller.k8s.io", "default", NAME).expect("a Foo");
    object["status"].clone()
}

fn deployment(memory: &InMemory) -> Value {
    memory.model.object("deployments.apps", "default", NAME).expect("a Deployment")
}

/// Plays the Deployment controller: reports this number of available pods.
fn roll_out(memory: &InMemory, available: u8) {
    let mut live = deployment(memory);
    live["status"] = json!({
        "observedGeneration": live["metadata"]["generation"], "replicas": 2, "updatedReplicas": 2,
        "readyReplicas": available, "availableReplicas": available,
    });
    memory.model.put(live);
}

#[tokio::test(start_paused = true)]
async fn paused_foo_still_counts_its_pods_and_keeps_its_deployment() {
    let mut memory = InMemory::new(&FooOperator, &[]);
    let object = json!({
        "apiVersion": "samplecontroller.k8s.io/v1alpha1", "kind": "Foo", "metadata": {"name": NAME},
        "spec": {"deploymentName": NAME, "replicas": 2},
    });
    let params = PatchParams::apply("kubectl").force();
    foos(&memory).patch(NAME, &params, &Patch::Apply(&object)).await.expect("applied");
    memory.start();
    memory.until_quiet().await;
    roll_out(&memory, 2);
    memory.until_quiet().await;
    assert_eq!(status(&memory)["availableReplicas"], 2);

    let paused = json!({
        "metadata": {"annotations": {"samplecontroller.k8s.io/paused": "true"}}, "spec": {"replicas": 3},
    });
    foos(&memory).patch(NAME, &PatchParams::default(), &Patch::Merge(paused)).await.expect("paused");
    memory.until_quiet().await;
    roll_out(&memory, 1);
    memory.until_quiet().await;
    let status = status(&memory);
    assert_eq!(status["availableReplicas"], 1, "{status}");
    let ready = status["conditions"].as_array().into_iter().flatten().find(|it| it["type"] == "Ready");
    assert_eq!(ready.map(|it| &it["reason"]), Some(&json!("Paused")), "{status}");
    assert_eq!(deployment(&memory)["spec"]["replicas"], 2, "a paused Foo changes nothing");
}
