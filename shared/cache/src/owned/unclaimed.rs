//! Fields without an owner that must be ours. They remain of an earlier desired object after a client has cleared
//! `managedFields`.

use serde_json::{Map, Value, json};
use workloads::Child;

use super::{Elements, Path, Step};
use crate::object::ManagedFields;

/// The paths at which other clients write in objects of a kind, and those at which they do not.
#[derive(Debug, Clone, Copy)]
pub struct Writers {
    /// See [`Child::EXCLUSIVE_FIELDS`](workloads::Child::EXCLUSIVE_FIELDS).
    pub exclusive: &'static [&'static [&'static str]],
    /// See [`Child::SHARED_FIELDS`](workloads::Child::SHARED_FIELDS).
    pub shared: &'static [&'static [&'static str]],
}

impl Writers {
    /// The paths of the kind `C`.
    pub fn of<C: Child>() -> Self {
        Self { exclusive: C::EXCLUSIVE_FIELDS, shared: C::SHARED_FIELDS }
    }

    fn is_exclusive(self, path: &Path) -> bool {
        let is_below = |places: &[&[&str]]| places.iter().any(|place| path.starts_with(place));
        is_below(self.exclusive) && !is_below(self.shared)
    }
}

/// The fields that none of `entries` owns and that only we can have written, as a field set. These are the elements of lists
/// that are in `defaulted` too, and fields that are not in `defaulted`, at paths where only the author writes. `defaulted` is
/// the desired object with the API server's defaults.
///
/// We claim this set. Then our next apply removes those of its fields that are not desired, and a later apply does so if that one
/// fails. Otherwise they would stay for ever and exclude ours: the API server refuses a Service with two ports of one name.
pub fn unclaimed<'a>(
    live: &Value,
    defaulted: &Value,
    writers: Writers,
    entries: impl IntoIterator<Item = &'a ManagedFields<'a>>,
) -> Value {
    let held = |raw: &ManagedFields<'_>| serde_json::from_str(raw.fields?.get()).ok();
    let held: Vec<Value> = entries.into_iter().filter_map(held).collect();
    let mut fields = Value::Object(Map::new());
    below(live, defaulted, writers, &Path::default(), &mut |path| {
        if !held.iter().any(|held| path.is_in(held)) {
            add(&mut fields, &path);
        }
    });
    fields
}

fn below(live: &Value, desired: &Value, writers: Writers, at: &Path, found: &mut impl FnMut(Path)) {
    match (live, desired) {
        (Value::Object(live), Value::Object(desired)) => {
            // Skip the child's own metadata: other clients add elements to its lists, such as owner references and finalizers.
            for (name, value) in live.iter().filter(|(name, _)| !(at.0.is_empty() && *name == "metadata")) {
                let path = at.field(name);
                match desired.get(name) {
                    Some(wanted) => below(value, wanted, writers, &path, found),
                    None if writers.is_exclusive(&path) => found(path),
                    None => {}
                }
            }
        }
        (Value::Array(live), Value::Array(desired)) => {
            let Some(elements) = Elements::at(at, live) else { return };
            for item in live {
                let path = elements.path(at, item);
                if let Some(wanted) = elements.find(desired, item) {
                    below(item, wanted, writers, &path, found);
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
    use k8s_openapi::api::apps::v1::Deployment;

    use super::*;
    use crate::object::Head;

    #[test]
    fn exclusive_fields_without_a_manager_are_unclaimed() {
        let live = json!({
            "metadata": {"name": "a", "ownerReferences": [{"name": "o", "uid": "x"}], "managedFields": [
                {"manager": "kubectl", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {
                    "f:spec": {"f:containers": {"k:{\"name\":\"sidecar\"}": {".": {}, "f:name": {}}}},
                }},
            ]},
            "spec": {
                "replicas": 7,
                "template": {
                    "metadata": {"labels": {"app": "x", "team": "old"}, "annotations": {"restartedAt": "now"}},
                    "spec": {"containers": [{"name": "main", "image": "a", "command": ["old"]}]},
                },
                "containers": [
                    {"name": "sidecar", "env": [{"name": "THEIRS"}]},
                    {"name": "main", "env": [{"name": "OLD"}, {"name": "A"}]},
                ],
                "minReadySeconds": 31,
                "ports": [{"port": 1, "protocol": "TCP"}, {"port": 2, "protocol": "TCP"}],
            },
        });
        let desired = json!({
            "metadata": {"ownerReferences": [{"uid": "y"}]},
            "spec": {
                "template": {
                    "metadata": {"labels": {"app": "x"}, "annotations": {"ours": "a"}},
                    "spec": {"containers": [{"name": "main", "image": "b"}]},
                },
                "containers": [{"name": "main", "env": [{"name": "A"}, {"name": "B"}]}],
                "ports": [{"port": 2, "protocol": "TCP"}],
            },
        });
        let text = live.to_string();
        let head: Head<'_> = serde_json::from_str(&text).expect("a head");
        let writers = Writers::of::<Deployment>();
        let element = || json!({".": {}});
        let expected = json!({"f:spec": {
            "f:template": {
                "f:metadata": {"f:labels": {"f:team": element()}},
                "f:spec": {"f:containers": {"k:{\"name\":\"main\"}": {".": {}, "f:command": element()}}},
            },
            "f:containers": {"k:{\"name\":\"main\"}": {".": {}, "f:env": {
                "k:{\"name\":\"A\"}": element(), "k:{\"name\":\"OLD\"}": element(),
            }}},
            "f:minReadySeconds": element(),
            "f:ports": {
                "k:{\"port\":1,\"protocol\":\"TCP\"}": element(), "k:{\"port\":2,\"protocol\":\"TCP\"}": element(),
            },
        }});
        assert_eq!(unclaimed(&live, &desired, writers, &head.metadata.managed_fields), expected);
        assert_eq!(unclaimed(&live, &json!({}), Writers { exclusive: &[], shared: &[] }, &[]), json!({}));
    }
}
