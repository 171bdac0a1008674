//! Elements of our lists that nobody holds: what is left of an earlier desired object when `managedFields` were cleared.

use serde_json::{Map, Value, json};

use super::{Elements, Path, Step};
use crate::object::ManagedFields;

/// The elements in `live` of lists that `desired` has too, as far as none of `entries` holds them, as a field set. An apply by
/// whoever holds this set takes out those that it does not have: this one, or a later one if this one fails.
///
/// Without it they would stay for ever, and exclude ours: the API server refuses a Service with two ports of one name. Fields
/// that are no elements of a list are let be, because many of them are defaults or belong to a controller that writes to the
/// child (the replicas of an autoscaler).
pub(crate) fn unclaimed(live: &Value, desired: &Value, entries: &[ManagedFields<'_>]) -> Value {
    let held = |raw: &ManagedFields<'_>| serde_json::from_str(raw.fields?.get()).ok();
    let held: Vec<Value> = entries.iter().filter_map(held).collect();
    let mut fields = Value::Object(Map::new());
    below(live, desired, &Path::default(), &mut |path| {
        if !held.iter().any(|held| path.is_in(held)) {
            add(&mut fields, &path);
        }
    });
    fields
}

fn below(live: &Value, desired: &Value, at: &Path, found: &mut impl FnMut(Path)) {
    match (live, desired) {
        (Value::Object(live), Value::Object(desired)) => {
            for (name, wanted) in desired {
                // Metadata has lists of its own, in which everybody has elements.
                let value = live.get(name).filter(|_| !(at.0.is_empty() && name == "metadata"));
                if let Some(value) = value {
                    below(value, wanted, &at.field(name), found);
                }
            }
        }
        (Value::Array(live), Value::Array(desired)) => {
            let Some(elements) = Elements::at(at, live) else { return };
            for item in live {
                let path = elements.path(at, item);
                if let Some(wanted) = elements.find(desired, item) {
                    below(item, wanted, &path, found);
                }
                found(path);
            }
        }
        _ => {}
    }
}

fn add(fields: &mut Value, path: &Path) {
    let place = path.0.iter().fold(fields, |at, step| {
        let selector = match step {
            Step::Field(name) => format!("f:{name}"),
            Step::Element(identity) => format!("k:{}", json!(identity)),
            Step::Member(value) => format!("v:{value}"),
        };
        &mut at[selector]
    });
    place["."] = json!({});
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Head;

    #[test]
    fn elements_of_our_lists_that_nobody_holds_are_unclaimed() {
        let live = json!({
            "metadata": {"name": "a", "ownerReferences": [{"name": "o", "uid": "x"}], "managedFields": [
                {"manager": "kubectl", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {
                    "f:spec": {"f:containers": {"k:{\"name\":\"sidecar\"}": {".": {}, "f:name": {}}}},
                }},
            ]},
            "spec": {
                "replicas": 7,
                "containers": [
                    {"name": "sidecar", "env": [{"name": "THEIRS"}]},
                    {"name": "main", "args": ["-v"], "env": [{"name": "OLD"}, {"name": "A"}]},
                ],
                "volumes": [{"name": "v"}],
                "ports": [{"port": 1, "protocol": "TCP"}, {"port": 2, "protocol": "TCP"}],
            },
        });
        let desired = json!({
            "metadata": {"ownerReferences": [{"uid": "y"}]},
            "spec": {
                "containers": [{"name": "main", "env": [{"name": "A"}, {"name": "B"}]}],
                "ports": [{"port": 2}],
            },
        });
        let text = live.to_string();
        let head: Head<'_> = serde_json::from_str(&text).expect("a head");
        let element = || json!({".": {}});
        let expected = json!({"f:spec": {
            "f:containers": {"k:{\"name\":\"main\"}": {".": {}, "f:env": {
                "k:{\"name\":\"A\"}": element(), "k:{\"name\":\"OLD\"}": element(),
            }}},
            "f:ports": {
                "k:{\"port\":1,\"protocol\":\"TCP\"}": element(), "k:{\"port\":2,\"protocol\":\"TCP\"}": element(),
            },
        }});
        assert_eq!(unclaimed(&live, &desired, &head.metadata.managed_fields), expected);
        assert_eq!(unclaimed(&live, &json!({}), &[]), json!({}));
    }
}
