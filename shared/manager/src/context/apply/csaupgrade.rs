//! Prepares the `managedFields` of a child for its first server-side apply. client-go's package `csaupgrade` has the same task.

use cache::{
    MANAGED_BY, Metadata,
    owned::{Change, OwnedFields, Writers, merge, unclaimed},
};
use serde_json::{Value, json};
use workloads::Child;

use super::target::{Target, defaulted};

/// The field manager to which the API server gives all fields of an object without `managedFields` on its first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Returns the fields to put into our `managedFields` entry before the apply, if the entry is missing or incomplete because
/// `managedFields` were cleared. `None` if our entry is complete, or if the apply alone is enough.
///
/// If the apply found no entry at all, the API server would give all fields to [`BEFORE_FIRST_APPLY`], and fields that we drop
/// later would stay in the object. The same holds if it has already done so for an apply of another client.
pub(super) fn unclaimed_fields<C: Child>(
    live: &Value,
    manager: &str,
    target: &Target,
    metadata: &Metadata<'_>,
) -> Option<Value> {
    let label = format!("f:{MANAGED_BY}");
    let share = OwnedFields::of(manager, &metadata.managed_fields);
    // Each complete entry of ours holds our label. An entry that an edit made after the others were cleared does not.
    if share.is_some_and(|share| !share.into_fields()["f:metadata"]["f:labels"][&label].is_null()) {
        return None;
    }
    let entries: Vec<_> = metadata.managed_fields.iter().filter(|entry| entry.manager != BEFORE_FIRST_APPLY).collect();
    let unclaimed = unclaimed(live, &defaulted::<C>(&target.fields), Writers::of::<C>(), entries.iter().copied());
    let is_all_held = !entries.is_empty() && entries.len() == metadata.managed_fields.len();
    if is_all_held && unclaimed == json!({}) {
        return None;
    }
    let mut fields = json!({"f:metadata": {"f:labels": {label: {}}}}); // an entry must not be empty
    merge(&mut fields, unclaimed);
    Some(fields)
}

/// Returns a merge patch that turns our create entry into an apply entry, or makes a new one; either also gets the fields in
/// `left`. The patch carries uid and version, because it replaces the list `managedFields` as a whole.
pub(super) fn upgraded(
    live: &Value,
    manager: &str,
    api_version: &str,
    metadata: &Metadata<'_>,
    left: Option<Value>,
) -> Value {
    // The API server would keep only one of two entries with the same identity, so they are united first.
    let mut fields = owned(manager, metadata);
    merge(&mut fields, left.unwrap_or_else(|| json!({})));
    with_apply_entry(live, manager, api_version, metadata, fields)
}

/// Returns a merge patch that turns our create entry into an apply entry without the fields of `defaults`. So an apply of the
/// desired object would leave the entry as it is. Returns `None` if the entry does not name one of them.
pub(super) fn without_defaults(
    live: &Value,
    manager: &str,
    api_version: &str,
    metadata: &Metadata<'_>,
    defaults: &[Change],
) -> Option<Value> {
    let mut fields = owned(manager, metadata);
    for change in defaults {
        change.path.remove_from(&mut fields)?;
    }
    Some(with_apply_entry(live, manager, api_version, metadata, fields))
}

fn owned(manager: &str, metadata: &Metadata<'_>) -> Value {
    OwnedFields::of(manager, &metadata.managed_fields).map_or_else(|| json!({}), OwnedFields::into_fields)
}

fn with_apply_entry(live: &Value, manager: &str, api_version: &str, metadata: &Metadata<'_>, fields: Value) -> Value {
    let mut entries = live.pointer("/metadata/managedFields").and_then(Value::as_array).cloned().unwrap_or_default();
    let ours = |entry: &Value| entry["manager"] == manager && entry.get("subresource").is_none();
    let mut kept = entries
        .iter()
        .find(|entry| ours(entry))
        .cloned()
        .unwrap_or_else(|| json!({"manager": manager, "apiVersion": api_version, "fieldsType": "FieldsV1"}));
    kept["operation"] = json!("Apply");
    kept["fieldsV1"] = fields;
    entries.retain(|entry| !ours(entry) && entry["manager"] != BEFORE_FIRST_APPLY);
    entries.push(kept);
    json!({"metadata": {
        "uid": &*metadata.uid, "resourceVersion": &*metadata.resource_version, "managedFields": entries,
    }})
}
