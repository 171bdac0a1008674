//! Takes the API server's answers about the reconciled object into the cache. No other module does this.
//!
//! An answer shows the object as it is now, including changes that other clients made since the reconcile began. Because the
//! answer is in the cache, the watch's copy of it causes no reconcile. So this module requeues the object if an answer
//! contains anything that the reconcile has not acted on.

use std::{sync::Arc, time::Duration};

use cache::{Decoded, Full, Head, ManagedFields};
use serde_json::Value;
use workqueue::Priority;

use super::{Context, Primary, Shared};
use crate::{
    error::Error,
    wake::{Cause, wake_after},
};

mod compare;

use compare::differs;

/// The requeue delay when the cache already holds a later version than the answer.
const STALE_CACHE_DELAY: Duration = Duration::from_secs(1);

/// The object as an answer shows it.
struct Taken<K> {
    object: Arc<K>,
    /// Whether the cache now holds this answer.
    is_known: bool,
}

impl<K: Primary, S: Shared> Context<K, S> {
    /// Takes in the object as it was just read; the reconcile goes on with it. Returns `None` if a different object has the
    /// name now: it is requeued, for a reconcile of its own.
    pub(super) fn cache_and_continue(&self, answer: &str) -> Result<Option<Arc<K>>, Error> {
        let object = self.cache_and_keep(answer)?;
        if let Some(object) = &object {
            *self.reconciliation.object.lock() = object.clone();
        }
        Ok(object)
    }

    /// Like [`cache_and_continue`](Self::cache_and_continue), but the reconcile goes on with the object that it acts on.
    pub(super) fn cache_and_keep(&self, answer: &str) -> Result<Option<Arc<K>>, Error> {
        let Taken { object, is_known } = self.take(answer)?;
        if object.meta().uid.as_deref() != Some(&*self.reconciliation.uid) {
            self.requeue(is_known);
            return Ok(None);
        }
        // The worker has checked the earlier version for a pause and a deletion, so the new one needs a reconcile.
        if self.readable(differs(&*self.object(), &Value::Null, &*object))? {
            self.requeue(is_known);
        }
        Ok(Some(object))
    }

    /// Takes in the answer to our patch. Returns the object that the reconcile acts on, with the patch applied.
    pub(super) fn cache_patched(&self, patch: &Value, answer: &str) -> Result<Arc<K>, Error> {
        let Taken { object, is_known } = self.take(answer)?;
        let acted_on = self.object();
        let has_changed = self.readable(differs(&*acted_on, patch, &*object))?
            || (shares_status(patch, answer) && status_differs(&self.json(&acted_on)?, patch, &self.json(&object)?));
        let object = if has_changed {
            let (before, after) = (self.json(&acted_on)?, self.json(&object)?);
            self.requeue(is_known);
            let known = self.readable(serde_json::from_value(patched(before, patch, &after)))?;
            Arc::new(known)
        } else {
            object
        };
        *self.reconciliation.object.lock() = object.clone();
        Ok(object)
    }

    fn take(&self, answer: &str) -> Result<Taken<K>, Error> {
        let decoded = self.readable(Decoded::read::<Full<K>>(answer))?;
        let is_known = self.controller.primary.observe(&decoded, self.writer());
        let object = decoded.item.map_err(|undecodable| Error::Other(String::from(undecodable.error).into()))?;
        Ok(Taken { object, is_known })
    }

    /// Removes the reconciled object from the cache: our patch has deleted it. The next reconcile forgets it.
    pub(super) fn forget_ended(&self) {
        self.controller.primary.observe_gone(&self.reconciliation.key, self.reconciliation.id, None, self.writer());
        self.requeue(true);
    }

    /// Requeues this object, at once if the cache holds the answer. If the cache holds a later version, the next reconcile
    /// would act on that and find the same difference again, in a tight loop. The delay gives the watch time: it is either
    /// ahead of the answer, or will find that the cluster went back in time.
    fn requeue(&self, is_known: bool) {
        let wait = if is_known { Duration::ZERO } else { STALE_CACHE_DELAY };
        let (queue, names) = (&self.controller.queue, &self.controller.names);
        wake_after(queue, &names.app, self.reconciliation.key.clone(), Priority::LIVE, wait, &Cause::Answer);
    }

    fn json(&self, object: &K) -> Result<Value, Error> {
        self.readable(serde_json::to_value(object))
    }

    fn readable<T>(&self, result: Result<T, serde_json::Error>) -> Result<T, Error> {
        let request = || self.reconciliation.requests.describe("read", &self.reconciliation.key);
        result.map_err(|source| Error::Decode { request: request(), source })
    }
}

/// Whether the patch sets the status, and another manager writes it too. False if admission rewrites ours: it would do so again each
/// time. This is rare, so only then the status is compared.
fn shares_status(patch: &Value, answer: &str) -> bool {
    let writes_status = |entry: &&ManagedFields<'_>| entry.subresource == "status";
    !patch["status"].is_null()
        && serde_json::from_str::<Head<'_>>(answer)
            .is_ok_and(|head| head.metadata.managed_fields.iter().filter(writes_status).count() > 1)
}

/// Whether the status differs from what we wrote. Both objects are the values of the type, like the patch: their texts may write a
/// number in another way.
fn status_differs(before: &Value, patch: &Value, after: &Value) -> bool {
    if before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"] {
        return false;
    }
    let mut expected = before["status"].clone();
    json_patch::merge(&mut expected, &patch["status"]);
    expected != after["status"]
}

/// Returns `before` with `patch` applied, and with the status and the version of `after`.
fn patched(mut before: Value, patch: &Value, after: &Value) -> Value {
    json_patch::merge(&mut before, patch);
    before["metadata"]["resourceVersion"] = after["metadata"]["resourceVersion"].clone();
    if let Some(status) = after.get("status") {
        before["status"] = status.clone();
    }
    before
}

#[cfg(test)]
mod tests {
    use cache::LAST_APPLIED;
    use serde_json::json;

    use super::*;

    fn differs(before: &Value, patch: &Value, after: &Value) -> bool {
        super::differs(before, patch, after).expect("JSON")
    }

    fn object() -> Value {
        json!({
            "metadata": {
                "name": "a", "uid": "u", "generation": 2, "resourceVersion": "7",
                "annotations": {"note": "x"}, "finalizers": ["theirs"],
            },
            "spec": {"size": 3},
            "status": {"replicas": 3},
        })
    }

    /// The object after a write, with one more change.
    fn after(change: &Value) -> Value {
        let mut object = object();
        object["metadata"]["resourceVersion"] = json!("8");
        json_patch::merge(&mut object, change);
        object
    }

    #[test]
    fn own_write_is_not_taken_for_another_clients_change() {
        let status = json!({"metadata": {"uid": "u"}, "status": {"replicas": 4}});
        assert!(!differs(&object(), &status, &after(&json!({"status": {"replicas": 4}}))));
        let metadata = json!({"metadata": {"annotations": {"ours": "1"}, "finalizers": ["theirs", "ours"]}});
        assert!(!differs(&object(), &metadata, &after(&metadata)));
        let annotation = json!({"metadata": {"annotations": {"note": null}}});
        assert!(!differs(&object(), &annotation, &after(&json!({"metadata": {"annotations": null}}))), "now empty");
        assert!(!differs(&object(), &annotation, &after(&json!({"metadata": {"annotations": {"note": "admitted"}}}))));
        let applied = json!({"metadata": {"annotations": {LAST_APPLIED: "{}"}}});
        assert!(!differs(&object(), &status, &after(&applied)), "the cache leaves it out");
    }

    #[test]
    fn change_by_another_client_is_detected() {
        let patch = json!({"metadata": {"uid": "u", "annotations": {"ours": "1"}}, "status": {"replicas": 4}});
        for change in [
            json!({"spec": {"size": 5}, "metadata": {"generation": 3}}),
            json!({"metadata": {"generation": 4}}),
            json!({"metadata": {"labels": {"team": "x"}}}),
            json!({"metadata": {"annotations": {"note": "y"}}}),
            json!({"metadata": {"annotations": {"note": null}}}),
            json!({"metadata": {"finalizers": null}}),
            json!({"metadata": {"deletionTimestamp": "2026-11-22T00:00:00Z"}}),
            json!({"metadata": {"ownerReferences": [{"uid": "o"}]}}),
        ] {
            assert!(differs(&object(), &patch, &after(&change)), "{change}");
        }
    }

    #[test]
    fn status_differs_only_if_another_manager_wrote_it() {
        let patch = json!({"status": {"replicas": 4}});
        let answer = |managers: &[&str]| {
            let entry = |manager: &&str| json!({"manager": manager, "subresource": "status"});
            let entries: Vec<Value> = managers.iter().map(entry).collect();
            json!({"metadata": {"name": "a", "managedFields": entries}}).to_string()
        };
        let (ours, both) = (answer(&["ours"]), answer(&["ours", "theirs"]));
        assert!(shares_status(&patch, &both));
        assert!(!shares_status(&patch, &ours));
        assert!(
            !shares_status(&json!({"metadata": {"annotations": {"ours": "1"}}}), &both),
            "it leaves the status alone"
        );
        assert!(!shares_status(&patch, "{}"), "unreadable");
        let status = |status: Value| after(&json!({"status": status}));
        assert!(!status_differs(&object(), &patch, &after(&patch)));
        assert!(status_differs(&object(), &patch, &status(json!({"replicas": 4, "nodes": 9}))));
        assert!(status_differs(&object(), &patch, &status(json!({"replicas": 4.0}))));
        assert!(status_differs(&object(), &patch, &status(Value::Null)));
        let mut unwritten = status(json!({"replicas": 5}));
        unwritten["metadata"]["resourceVersion"] = object()["metadata"]["resourceVersion"].clone();
        assert!(!status_differs(&object(), &patch, &unwritten), "the comparison of the rest finds it");
        // Why this compares values: the text of a 32-bit number is another number than the one in the patch.
        assert_eq!(serde_json::to_string(&0.1_f32).expect("JSON"), "0.1");
        assert_ne!(serde_json::to_value(0.1_f32).expect("JSON"), json!(0.1));
    }

    #[test]
    fn other_content_under_the_same_version_is_detected() {
        let patch = json!({"status": {"replicas": 4}, "metadata": {"annotations": {"ours": "1"}}});
        assert!(!differs(&object(), &patch, &object()), "it is as it was, and the patch changed nothing");
        for change in [json!({"status": {"replicas": 4}}), json!({"metadata": {"annotations": {"ours": "1"}}})] {
            let mut after = after(&change);
            after["metadata"]["resourceVersion"] = object()["metadata"]["resourceVersion"].clone();
            assert!(differs(&object(), &patch, &after), "{change}");
        }
    }

    #[test]
    fn patched_primary_keeps_the_spec_of_the_reconcile() {
        let patch = json!({"metadata": {"annotations": {"ours": "1"}}});
        let changed =
            json!({"spec": {"size": 5}, "metadata": {"annotations": {"ours": "1"}}, "status": {"replicas": 5}});
        let known = patched(object(), &patch, &after(&changed));
        assert_eq!((&known["spec"]["size"], &known["metadata"]["generation"]), (&json!(3), &json!(2)));
        assert_eq!((&known["status"]["replicas"], &known["metadata"]["resourceVersion"]), (&json!(5), &json!("8")));
        assert_eq!(known["metadata"]["annotations"], json!({"note": "x", "ours": "1"}));
    }
}
