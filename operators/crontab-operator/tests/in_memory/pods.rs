//! What the pods of a run tell about it.

use serde_json::json;

use crate::kit::{MINUTE, begun, events, job, status};

/// For a run, it does not matter why its pod does not start: there is one reason for all of them.
#[tokio::test(start_paused = true)]
async fn pod_that_finds_no_node_is_reported_by_an_event() {
    let mut memory = begun("2026-11-20T09:59:30Z", &json!({"cronSpec": "0 * * * *"})).await;
    memory.start();
    memory.pass(MINUTE).await;
    let run = job("2026-11-20T10:00:00Z");
    let mut pod = memory.model.object("jobs.batch", "default", &run).expect("a Job")["spec"]["template"].take();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!(format!("{run}-x"));
    pod["metadata"]["namespace"] = json!("default");
    let scheduled = json!({
        "type": "PodScheduled", "status": "False", "message": "0/1 nodes are available",
        "lastTransitionTime": memory.model.now().to_string(),
    });
    pod["status"] = json!({"phase": "Pending", "conditions": [scheduled]});
    memory.model.put(pod);
    memory.pass(MINUTE / 2).await;
    assert_eq!(events(&memory, "PodsNotStarting"), 0, "it has not waited for too long yet");
    memory.pass(MINUTE * 2).await;
    assert_eq!((events(&memory, "PodsNotStarting"), events(&memory, "Unschedulable")), (1, 0));
    let degraded = status(&memory)["conditions"].as_array().cloned().unwrap_or_default();
    let degraded = degraded.iter().find(|it| it["type"] == "Degraded").expect("a condition");
    assert_eq!(degraded["message"], json!(format!("Pod {run}-x: 0/1 nodes are available")));
}
