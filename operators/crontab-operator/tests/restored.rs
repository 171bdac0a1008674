//! A cluster is restored from a backup: the objects show an earlier state, and the lease an earlier term.

use std::{collections::BTreeSet, time::Duration};

use crontab_operator::{CronTab, CronTabOperator};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use manager_testing::InMemory;
use serde_json::{Value, json};

const NAME: &str = "report";
const MINUTE: Duration = Duration::from_mins(1);
const CRONTABS: &str = "crontabs.stable.example.com";

/// Returns a running operator at 10:30:30, with an object that runs each minute.
async fn begun(flags: &[&str], more: &Value) -> InMemory {
    let mut memory = InMemory::new(&CronTabOperator, flags);
    memory.model.set_time("2026-11-20T10:30:30Z".parse().expect("a time"));
    let mut spec = json!({"cronSpec": "* * * * *", "image": "localhost/report:1", "concurrencyPolicy": "Allow"});
    spec.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    let object = json!({
        "apiVersion": "stable.example.com/v1", "kind": "CronTab", "metadata": {"name": NAME}, "spec": spec,
    });
    let api: Api<CronTab> = Api::namespaced(memory.model.client(), "default");
    api.patch(NAME, &PatchParams::apply("kubectl").force(), &Patch::Apply(&object)).await.expect("it is accepted");
    memory.start();
    memory
}

fn object(memory: &InMemory) -> Value {
    memory.model.object(CRONTABS, "default", NAME).expect("it exists")
}

/// Returns the scheduled times of all Jobs that the operator has created, in seconds since 1970.
fn created(memory: &InMemory) -> Vec<i64> {
    let writes = memory.writes().into_iter();
    let jobs = writes.filter(|it| it.changed && it.verb.as_str() == "create" && it.resource == "jobs.batch");
    jobs.map(|it| it.name.rsplit('-').next().and_then(|time| time.parse().ok()).expect("a time")).collect()
}

/// Of the runs whose Jobs the backup does not contain, only the last may be repeated, as after an outage. Whether it is depends
/// on which list the operator reads first: the restored objects, or the Jobs, some of which are gone.
#[tokio::test(start_paused = true)]
async fn restore_repeats_at_most_the_last_lost_run() {
    let mut memory = begun(&[], &json!({})).await;
    memory.pass(2 * MINUTE).await;
    let backup = memory.model.snapshot();
    memory.pass(5 * MINUTE).await;
    let before = created(&memory);
    assert_eq!(before.len(), 7);

    memory.plan(&"before * * -> drop".parse().expect("a plan"));
    memory.model.restore(&backup);
    memory.pass(Duration::from_secs(5)).await;
    memory.no_plan();
    memory.pass(Duration::from_secs(15)).await;
    let repeated = created(&memory)[before.len()..].to_vec();
    assert!(repeated.is_empty() || repeated == before[before.len() - 1..], "{repeated:?}");
    memory.pass(3 * MINUTE).await;
    let all: BTreeSet<i64> = created(&memory).into_iter().collect();
    assert_eq!((all.len(), created(&memory).len()), (10, 10 + repeated.len()), "each later run starts once");
}

/// The status has a later term than the restored lease.
#[tokio::test(start_paused = true)]
async fn fence_newer_than_a_restored_lease_blocks_no_leader() {
    let elect = ["--leader-elect", "--leader-election-namespace", "default"];
    let mut memory = begun(&elect, &json!({})).await;
    memory.pass(MINUTE).await;
    let mut restored = object(&memory);
    let lease = restored["status"]["fence"]["lease"].clone();
    assert!(lease.is_string(), "{restored}");
    restored["status"]["fence"] = json!({"lease": lease, "epoch": 9});
    memory.model.put(restored);
    let before = created(&memory).len();
    memory.pass(3 * MINUTE).await;
    assert_eq!(created(&memory).len(), before + 3, "no run is skipped");
    assert_eq!(object(&memory)["status"]["fence"], json!({"lease": lease, "epoch": 10}), "under a still later term");
}
