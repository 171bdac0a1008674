//! Reads objects of the simulated cluster.

use model_apiserver::Change;
use serde_json::Value;

/// The text of a field; empty if it is absent or no text.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Whether the change concerns leader election: a Lease, or an Event about one.
pub(crate) fn is_about_leadership(change: &Change) -> bool {
    let tells = |event: &Value| event["regarding"]["kind"] == "Lease";
    change.resource.starts_with("leases") || change.after.as_deref().is_some_and(tells)
}
