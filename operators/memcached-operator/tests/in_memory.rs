//! The life of a Memcached against a model of the API server in memory, with paused time: an hour takes no time, so the test can
//! kill the operator at each of its requests in turn.

use std::{collections::BTreeMap, time::Duration};

use fault_plan::{Plan, enumerate};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use manager_testing::{EndState, InMemory, check};
use memcached_operator::{Memcached, MemcachedOperator};
use serde_json::{Value, json};

const NAME: &str = "cache";
const HOUR: Duration = Duration::from_hours(1);
/// The number of plans in a usual run, chosen at random with `SEED`; `FAULT_PLANS=all` runs all plans.
const SAMPLE: usize = 24;
/// The resources that the end state consists of.
const RESOURCES: &[&str] =
    &["memcacheds.memcached.cache.example.com", "deployments.apps", "services", "poddisruptionbudgets.policy"];

/// Applies the user's object, as `kubectl apply` would.
async fn apply(memory: &InMemory, size: i32, memory_mb: i32) {
    let api: Api<Memcached> = Api::namespaced(memory.model.client(), "default");
    let object = json!({
        "apiVersion": "memcached.cache.example.com/v1", "kind": "Memcached", "metadata": {"name": NAME},
        "spec": {"size": size, "config": {"memoryMB": memory_mb}},
    });
    api.patch(NAME, &PatchParams::apply("kubectl").force(), &Patch::Apply(&object)).await.expect("applied");
}

/// Plays the other controllers: creates `ready` pods, all of them ready.
async fn roll_out(memory: &InMemory, ready: i32) {
    for pod in memory.model.objects("pods") {
        memory.model.take("pods", "default", pod["metadata"]["name"].as_str().expect("a name"));
    }
    for number in 0..ready {
        memory.model.put(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("{NAME}-{number}"), "namespace": "default", "labels": {
                "app.kubernetes.io/name": "memcached", "app.kubernetes.io/instance": NAME,
                "app.kubernetes.io/managed-by": "memcached-operator",
            }},
            "spec": {"containers": [{"name": "memcached", "image": "memcached"}]},
            "status": {
                "phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}],
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }));
    }
    let generation = deployment(memory)["metadata"]["generation"].clone();
    let status = json!({"status": {
        "observedGeneration": generation, "replicas": ready, "updatedReplicas": ready, "readyReplicas": ready,
        "availableReplicas": ready,
        "conditions": [{"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable", "message": ""}],
    }});
    let api: Api<Deployment> = Api::namespaced(memory.model.client(), "default");
    api.patch_status(NAME, &PatchParams::default(), &Patch::Merge(status)).await.expect("patched");
}

fn deployment(memory: &InMemory) -> Value {
    memory.model.object("deployments.apps", "default", NAME).expect("a Deployment")
}

/// Returns the reason of the condition, if it is true.
fn reason(memory: &InMemory, type_: &str) -> Option<String> {
    let object = memory.model.object(RESOURCES[0], "default", NAME)?;
    let conditions = object["status"]["conditions"].as_array()?;
    let found = conditions.iter().find(|it| it["type"] == type_ && it["status"] == "True")?;
    Some(found["reason"].as_str().unwrap_or_default().to_owned())
}

/// The life of an object: create, roll out, change, delete a child, scale to zero.
async fn live(memory: &mut InMemory) {
    apply(memory, 3, 64).await;
    memory.start();
    memory.until_quiet().await;
    roll_out(memory, 3).await;
    memory.until_quiet().await;
    assert_eq!(reason(memory, "Ready").as_deref(), Some("Ready"));

    apply(memory, 4, 128).await;
    memory.until_quiet().await;
    assert_eq!(deployment(memory)["spec"]["replicas"], 4);
    roll_out(memory, 4).await;
    memory.until_quiet().await;
    let services: Api<Service> = Api::namespaced(memory.model.client(), "default");
    services.delete(NAME, &DeleteParams::default()).await.expect("deleted");
    memory.until_quiet().await;
    assert_eq!(memory.model.objects("services").len(), 1);

    apply(memory, 0, 128).await;
    memory.until_quiet().await;
    assert_eq!(deployment(memory)["spec"]["replicas"], 0);
    roll_out(memory, 0).await;
    memory.until_quiet().await;
    assert_eq!(reason(memory, "Ready").as_deref(), Some("ScaledToZero"));
    assert!(memory.model.objects("poddisruptionbudgets.policy").is_empty());
}

/// Counts the creations of each object, and the warning events.
fn told(memory: &InMemory) -> BTreeMap<String, usize> {
    let created = memory.writes().into_iter().filter(|it| it.changed && it.verb.as_str() == "create");
    let created =
        created.filter(|it| !it.resource.starts_with("events")).map(|it| format!("{} {}", it.resource, it.name));
    let events = memory.model.objects("events.events.k8s.io").into_iter();
    let warnings = events.filter(|it| it["type"] == "Warning").map(|it| format!("warning {}", it["reason"]));
    let mut counts = BTreeMap::new();
    for what in created.chain(warnings) {
        *counts.entry(what).or_default() += 1;
    }
    counts
}

#[tokio::test(start_paused = true)]
async fn converged_operator_sends_only_watch_requests() {
    let mut memory = InMemory::new(&MemcachedOperator, &[]);
    apply(&memory, 3, 64).await;
    memory.start();
    let writes = memory.until_quiet().await;
    let created: Vec<&str> = writes
        .iter()
        .filter(|it| it.verb.as_str() == "create" && !it.resource.starts_with("events"))
        .map(|it| &*it.resource)
        .collect();
    assert_eq!(created.len(), 3, "{created:?}");
    roll_out(&memory, 3).await;
    memory.until_quiet().await;
    assert_eq!(reason(&memory, "Ready").as_deref(), Some("Ready"));

    let before = memory.requests().len();
    memory.pass(24 * HOUR).await; // with resyncs, and watches that end
    let after = memory.requests().split_off(before).into_iter().filter(|it| it.verb.as_str() != "watch");
    let after: Vec<_> = after.collect(); // no list of ServiceMonitors either, a kind that this cluster lacks
    assert!(after.is_empty(), "{after:#?}");
    memory.restart().await;
    assert!(memory.until_quiet().await.is_empty(), "a new process finds nothing to do");
    let model = memory.model.clone();
    drop(memory);
    assert!(check(&MemcachedOperator, &model).await.is_empty());
}

/// Autoscalers and users read the counts. To observe is not to act.
#[tokio::test(start_paused = true)]
async fn counts_of_a_paused_object_stay_true() {
    let mut memory = InMemory::new(&MemcachedOperator, &[]);
    apply(&memory, 3, 64).await;
    memory.start();
    memory.until_quiet().await;
    roll_out(&memory, 3).await;
    memory.until_quiet().await;
    let api: Api<Memcached> = Api::namespaced(memory.model.client(), "default");
    let pause =
        json!({"metadata": {"annotations": {"memcached.cache.example.com/paused": "true"}}, "spec": {"size": 5}});
    api.patch(NAME, &PatchParams::default(), &Patch::Merge(pause)).await.expect("patched");
    memory.until_quiet().await;
    for (ready, size) in [(1, 5), (0, 0), (2, 0)] {
        let sized = Patch::Merge(json!({"spec": {"size": size}}));
        api.patch(NAME, &PatchParams::default(), &sized).await.expect("patched");
        roll_out(&memory, ready).await;
        memory.until_quiet().await;
        let status = memory.model.object(RESOURCES[0], "default", NAME).expect("a Memcached")["status"].clone();
        let counts = ["replicas", "readyReplicas", "updatedReplicas"].map(|it| status[it].as_i64());
        assert_eq!(counts, [Some(i64::from(ready)); 3], "{status}");
        for list in ["nodes", "endpoints"] {
            assert_eq!(status[list].as_array().map(Vec::len), usize::try_from(ready).ok(), "{list} {status}");
        }
        let conditions = status["conditions"].as_array().expect("conditions");
        let shown = ["Available", "Progressing", "Ready"].map(|type_| {
            let found = conditions.iter().find(|it| it["type"] == type_).expect("a condition");
            format!("{}/{}", found["status"].as_str().unwrap_or_default(), found["reason"].as_str().unwrap_or_default())
        });
        let available = if ready > 0 { "True/MinimumNodesAvailable" } else { "False/NoReadyNodes" };
        assert_eq!(shown, [available, "False/Paused", "Unknown/Paused"], "{status}");
        assert_eq!(deployment(&memory)["spec"]["replicas"], 3);
    }
}

/// A Memcached whose three nodes are ready.
async fn rolled_out() -> InMemory {
    let mut memory = InMemory::new(&MemcachedOperator, &[]);
    apply(&memory, 3, 64).await;
    memory.start();
    memory.until_quiet().await;
    roll_out(&memory, 3).await;
    memory.until_quiet().await;
    memory
}

/// Applies this size while the API server refuses a request, and waits until the status reports the refusal.
async fn apply_refused(memory: &mut InMemory, size: i32, plan: &str) {
    let faults = memory.plan(&plan.parse().expect("a plan"));
    apply(memory, size, 64).await;
    memory.pass(Duration::from_mins(1)).await;
    assert!(faults.unused().is_empty(), "the API server has refused no request");
    assert_eq!(reason(memory, "Degraded").as_deref(), Some("ChildRejected"));
}

/// Ends the refusals, and waits until the operator has tried again.
async fn end_refusals(memory: &mut InMemory) {
    memory.no_plan();
    memory.pass(Duration::from_mins(3)).await;
    assert_ne!(reason(memory, "Degraded").as_deref(), Some("ChildRejected"));
}

/// The status tells what is: autoscalers must not take a refused change for the loss of all pods.
#[tokio::test(start_paused = true)]
async fn refused_change_leaves_the_counts_of_the_nodes_that_exist() {
    let mut memory = rolled_out().await;
    apply_refused(&mut memory, 5, "before patch deployments.apps -> answer 422").await;
    let status = memory.model.object(RESOURCES[0], "default", NAME).expect("a Memcached")["status"].clone();
    let counts = ["replicas", "readyReplicas", "updatedReplicas"].map(|it| status[it].as_i64());
    assert_eq!(counts, [Some(3); 3], "{status}");
    end_refusals(&mut memory).await;
    assert_eq!(deployment(&memory)["spec"]["replicas"], 5);
}

/// One node needs no disruption budget, so the operator deletes it.
#[tokio::test(start_paused = true)]
async fn refused_deletion_of_a_child_is_reported_in_the_status() {
    let mut memory = rolled_out().await;
    apply_refused(&mut memory, 1, "before delete poddisruptionbudgets.policy -> answer 403").await;
    assert_eq!(deployment(&memory)["spec"]["replicas"], 1, "the other children follow the spec");
    end_refusals(&mut memory).await;
    assert!(memory.model.objects("poddisruptionbudgets.policy").is_empty());
}

#[tokio::test(start_paused = true)]
async fn pods_that_wait_for_too_long_are_reported_by_an_event() {
    let mut memory = InMemory::new(&MemcachedOperator, &[]);
    apply(&memory, 1, 64).await;
    memory.start();
    memory.until_quiet().await;
    let notes = |memory: &InMemory, reason: &str| {
        let events = memory.model.objects("events.events.k8s.io").into_iter();
        let of_reason = events.filter(|event| event["type"] == "Warning" && event["reason"] == reason);
        of_reason.filter_map(|event| event["note"].as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    let no_room = "0/1 nodes are available: 1 Insufficient memory.";
    memory.replace_pod(NAME, "cache-a", &[("PodScheduled", "False", no_room)]);
    memory.pass(Duration::from_secs(29)).await;
    assert_eq!(notes(&memory, "Unschedulable"), [""; 0], "it has not waited for too long yet");
    memory.pass(Duration::from_mins(1)).await;
    assert_eq!(notes(&memory, "Unschedulable"), [format!("Pod cache-a: {no_room}")]);

    memory.replace_pod(NAME, "cache-b", &[("PodScheduled", "True", ""), ("PodReadyToStartContainers", "False", "")]);
    memory.pass(Duration::from_mins(1)).await;
    let [note]: [String; 1] = notes(&memory, "PodsNotStarting").try_into().expect("one event");
    assert!(note.starts_with("Pod cache-b: its volumes or its network are not ready"), "{note}");
}

/// Runs the life with this plan of faults. The end must be that of the life without faults.
async fn live_with_plan(plan: &Plan, end: &EndState, counts: &BTreeMap<String, usize>) -> Result<(), String> {
    eprintln!("{plan}"); // the last line in the output of a failed test is the plan that failed
    let mut memory = InMemory::new(&MemcachedOperator, &[]);
    let faults = memory.plan(plan);
    live(&mut memory).await;
    if !faults.unused().is_empty() {
        return Err("the fault did not happen".to_owned());
    }
    memory.no_plan();
    memory.restart().await;
    let late = memory.until_quiet().await;
    if !late.is_empty() {
        return Err(format!("a new process writes: {late:#?}"));
    }
    if let Some(difference) = memory.end_state(RESOURCES).differs_from(end) {
        return Err(difference);
    }
    let told = told(&memory);
    if told == *counts { Ok(()) } else { Err(format!("{told:?} and not {counts:?}")) }
}

#[tokio::test(start_paused = true)]
async fn t17_crash_at_any_request_reaches_the_same_end_state() {
    let mut memory = InMemory::new(&MemcachedOperator, &[]);
    live(&mut memory).await;
    let (end, counts) = (memory.end_state(RESOURCES), told(&memory));
    let requests = memory.requests();
    assert!(counts.values().all(|count| *count <= 2), "only the Service is created twice: {counts:?}");

    // For each write: never sent; done, but without an answer; answered. And a kill after each request of any verb.
    let writes: Vec<_> = requests
        .iter()
        .filter(|it| it.verb.writes() && !it.resource.starts_with("events"))
        .map(fault_plan::Request::from)
        .collect();
    let turns = (1..=requests.len())
        .map(|turn| format!("after * * as operator #{turn} -> signal kill + drop").parse().expect("a plan"));
    let plans: Vec<Plan> = enumerate::crashes(&writes).into_iter().chain(turns).collect();
    let everything = std::env::var("FAULT_PLANS").is_ok_and(|asked| asked == "all");
    let (total, begun) = (plans.len(), std::time::Instant::now());
    let plans = if everything { plans } else { enumerate::sample(plans, SAMPLE, manager_testing::seed()) };
    let mut failed = Vec::new();
    for plan in &plans {
        if let Err(why) = live_with_plan(plan, &end, &counts).await {
            failed.push(format!("{plan}: {why}"));
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    eprintln!("{} of {total} lives in {seconds:.1} s, {} failed", plans.len(), failed.len());
    assert!(failed.is_empty(), "{} of {} failed:\n{}", failed.len(), plans.len(), failed.join("\n"));
}
