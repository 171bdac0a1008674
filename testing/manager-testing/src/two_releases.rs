//! Two releases of an operator that watch the same namespace, by mistake. Each elects its own leader, so both act.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use manager::harness::Harness;
use serde_json::{Value, json};

use crate::interference::{Run, Story};

/// Time for the two to come to an arrangement.
const ARRANGE: Duration = Duration::from_mins(10);
/// How long their writes are counted.
const COUNTED: Duration = Duration::from_mins(10);
/// Each of the two may write a child once a minute.
const WRITES_A_MINUTE: u64 = 2;
/// The status of both may follow each change of a child, with what begins and what ends.
const STATUSES_A_WRITE: u64 = 3;

/// Runs the story's object under two releases with these flags for twenty minutes. The user changes the object in between.
/// Returns the object.
///
/// # Panics
///
/// No release has handled the last change, or the two write a child more than twice a minute in the last ten minutes.
pub async fn two_releases(story: impl Story + Send + Sync + 'static, one: &[&str], other: &[&str]) -> Value {
    let story: Arc<dyn Story + Send + Sync> = Arc::new(story);
    let run = Run::begin(&story);
    let model = run.memory.model.clone();
    let start = |name: &str, flags: &[&str]| {
        model.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
        let lease = format!("--leader-election-namespace={name}");
        let flags = [&["--leader-elect", &*lease], flags].concat();
        let clock = model.clone();
        Harness::start(story.operator(), &flags, model.client_named(name), move || clock.now())
    };
    run.user.create().await;
    let _releases = [start("one", one), start("other", other)];
    for change in [story.other_change()].into_iter().chain(story.changes()) {
        tokio::time::sleep(Duration::from_mins(1)).await;
        story.play(&model);
        run.user.patch(&change).await;
    }
    tokio::time::sleep(ARRANGE).await;
    story.play(&model);
    let before = model.requests().len();
    tokio::time::sleep(COUNTED).await;
    let mut writes = model.requests().split_off(before);
    writes.retain(|it| it.verb.writes() && !it.resource.starts_with("leases") && !it.resource.starts_with("events"));
    let object = run.user.object().unwrap_or_default();
    assert_eq!(object["status"]["observedGeneration"], object["metadata"]["generation"], "no release acts");
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for it in &writes {
        *counts.entry(&it.resource).or_default() += 1;
    }
    let most = WRITES_A_MINUTE * COUNTED.as_secs() / 60;
    let allowed = |resource: &str| if story.children().contains(&resource) { most } else { most * STATUSES_A_WRITE };
    assert!(counts.iter().all(|(resource, count)| *count <= allowed(resource)), "more than {most} writes: {counts:?}");
    object
}
