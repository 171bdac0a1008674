//! What must hold at the end of a world, when all has come to rest.

use model_apiserver::Model;
use serde_json::Value;

use super::condition;
use crate::{subject::Subject, subjects::Cast};

/// Judges a primary at the end of a world: first the requirements of all kinds, then those of its own kind.
pub(crate) fn judge(subject: &dyn Subject, model: &Model, group: &str, object: &Value) -> Result<(), String> {
    let (metadata, status) = (&object["metadata"], &object["status"]);
    if !metadata["deletionTimestamp"].is_null() {
        return Err("it is still being deleted".to_owned());
    }
    if status["observedGeneration"] != metadata["generation"] {
        return Err(format!("observedGeneration is {}, not {}", status["observedGeneration"], metadata["generation"]));
    }
    let asked = &metadata["annotations"][format!("{group}/reconcile-requested-at")];
    if status["lastHandledReconcileAt"] != *asked {
        return Err(format!("lastHandledReconcileAt is {}, not {asked}", status["lastHandledReconcileAt"]));
    }
    let ready = condition(status, "Ready");
    let is_paused = metadata["annotations"][format!("{group}/paused")] == "true";
    if is_paused != (ready["reason"] == "Paused") {
        return Err(format!("paused is {is_paused}, and the reason of Ready is {}", ready["reason"]));
    }
    if is_paused { Ok(()) } else { subject.judge(object, model) }
}

/// Checks that no child has outlived its owner.
pub(crate) fn no_orphans(cast: &Cast, model: &Model) -> Result<(), String> {
    let live: Vec<Value> = cast.objects(model).iter().map(|(_, it)| it["metadata"]["uid"].clone()).collect();
    for resource in cast.owned() {
        for child in model.objects(resource) {
            for owner in child["metadata"]["ownerReferences"].as_array().into_iter().flatten() {
                if !live.contains(&owner["uid"]) {
                    return Err(format!("{resource} {} has outlived its owner", child["metadata"]["name"]));
                }
            }
        }
    }
    Ok(())
}
