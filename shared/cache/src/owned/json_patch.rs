//! Changes as a JSON patch: one cheap request, used where it has the same effect as a server-side apply.
//!
//! Our entry on a child that we created has operation `Update`. A patch by the same manager that only *sets* fields keeps
//! that entry correct: a field that another manager had taken over is ours again. The rest needs an apply: removed fields
//! (other managers may own a part of them), and lists and whole objects (other managers may have values in them, or add
//! some meanwhile).

use serde_json::{Value, json};

use super::{Change, Path, Step, holder, is_held_by};
use crate::object::ManagedFields;

/// The JSON patch that makes `changes` in `live`. Its tests guard that it changes only this object, as long as we own it, and
/// only the intended list elements. `None` when only an apply is exact.
pub fn json_patch(live: &Value, uid: &str, owner: &str, changes: &[Change]) -> Option<Value> {
    let mut tests = guards(live, uid, owner)?;
    let mut edits = Vec::new();
    for Change { path, live: now, desired } in changes {
        let is_plain = |value: &Value| !value.is_array() && !value.is_object();
        let desired = desired.as_ref()?;
        if !now.as_ref().is_none_or(is_plain) || !is_plain(desired) {
            return None;
        }
        let place = path.pointer(live, &mut tests)?;
        let op = if now.is_some() { "replace" } else { "add" };
        edits.push(json!({"op": op, "path": place, "value": desired}));
    }
    tests.dedup();
    tests.append(&mut edits);
    (!changes.is_empty()).then_some(Value::Array(tests))
}

/// The JSON patch of `changes` for a dry run, where it does not matter what it would take from other managers. `None`
/// when list elements are added or removed.
pub fn dry_run_operations(live: &Value, uid: &str, changes: &[Change]) -> Option<Value> {
    carried_out(live, vec![test("/metadata/uid", uid)], changes.iter())
}

/// The JSON patch that replaces alternatives by ours, such as the source of a volume; `None` when there is none to replace. An apply
/// would only add ours beside the other, and the API server refuses both at once. An alternative that belongs to `manager` alone,
/// according to the `managedFields` in `entries`, needs no patch: an apply removes it.
pub fn exchange_alternatives(
    live: &Value,
    uid: &str,
    owner: &str,
    changes: &[Change],
    (manager, entries): (&str, &[ManagedFields<'_>]),
) -> Option<Value> {
    let is_ours = |path: &Path| is_held_by(path, manager, entries) && holder(path, manager, entries).is_none();
    let in_the_way =
        |change: &&Change| change.desired.is_none() && change.path.is_alternative() && !is_ours(&change.path);
    let in_the_way: Vec<&Change> = changes.iter().filter(in_the_way).collect();
    let there = |change: &&Change| in_the_way.iter().any(|other| other.path.is_beside(&change.path));
    if in_the_way.is_empty() {
        return None;
    }
    carried_out(live, guards(live, uid, owner)?, changes.iter().filter(there))
}

fn carried_out<'a>(
    live: &Value,
    mut operations: Vec<Value>,
    changes: impl Iterator<Item = &'a Change>,
) -> Option<Value> {
    for Change { path, desired, .. } in changes {
        let place = path.pointer(live, &mut operations)?;
        operations.push(match desired {
            Some(desired) => json!({"op": "add", "path": place, "value": desired}),
            None => json!({"op": "remove", "path": place}),
        });
    }
    Some(Value::Array(operations))
}

/// Tests that the object has this uid and this controller owner; `None` if `live` does not have this owner.
fn guards(live: &Value, uid: &str, owner: &str) -> Option<Vec<Value>> {
    let owners = live.pointer("/metadata/ownerReferences")?.as_array()?;
    let ours = owners.iter().position(|reference| reference["uid"] == owner)?;
    Some(vec![
        test("/metadata/uid", uid),
        test(&format!("/metadata/ownerReferences/{ours}/uid"), owner),
        test(&format!("/metadata/ownerReferences/{ours}/controller"), true),
    ])
}

fn test(path: &str, value: impl Into<Value>) -> Value {
    json!({"op": "test", "path": path, "value": value.into()})
}

impl Path {
    /// The JSON pointer of this field in `live`. Adds a test for the identity of each list element on the way. `None` if the path
    /// ends in an element, or if its parent is absent.
    fn pointer(&self, live: &Value, tests: &mut Vec<Value>) -> Option<String> {
        let (last, way) = self.0.split_last()?;
        let Step::Field(last) = last else { return None };
        let (mut at, mut pointer) = (live, String::new());
        for step in way {
            match step {
                Step::Field(name) => {
                    at = at.get(name)?;
                    push(&mut pointer, name);
                }
                Step::Element(identity) => {
                    let is_it = |item: &Value| identity.iter().all(|(key, value)| item.get(key) == Some(value));
                    let index = at.as_array()?.iter().position(is_it)?;
                    at = at.get(index)?;
                    push(&mut pointer, &index.to_string());
                    for (key, value) in identity {
                        let mut place = pointer.clone();
                        push(&mut place, key);
                        tests.push(test(&place, value.clone()));
                    }
                }
                Step::Member(_) => return None,
            }
        }
        at.as_object()?;
        push(&mut pointer, last);
        Some(pointer)
    }
}

/// Appends a segment with the escapes of RFC 6901.
fn push(pointer: &mut String, segment: &str) {
    pointer.push('/');
    pointer.push_str(&segment.replace('~', "~0").replace('/', "~1"));
}

#[cfg(test)]
mod tests {
    use super::{super::compare, *};
    use crate::object::Head;

    fn live() -> Value {
        json!({
            "metadata": {
                "uid": "u", "labels": {"app.kubernetes.io/name": "x"},
                "ownerReferences": [{"uid": "a"}, {"uid": "o", "controller": true}],
            },
            "spec": {"replicas": 3, "containers": [
                {"name": "mesh", "image": "m"},
                {"name": "main", "image": "a", "args": ["-v"], "env": [{"name": "A", "value": "1"}]},
            ]},
        })
    }

    fn edits(desired: &Value, owned: &Value) -> Option<Value> {
        let live = live();
        json_patch(&live, "u", "o", &compare(&live, owned, desired, desired))
    }

    #[test]
    fn plain_fields_become_json_patch_operations() {
        let desired = json!({
            "metadata": {"labels": {"app.kubernetes.io/name": "y"}},
            "spec": {"replicas": 5, "paused": true, "containers": [{"name": "main", "image": "b", "env": [{"name": "A", "value": "2"}]}]},
        });
        let expected = json!([
            {"op": "test", "path": "/metadata/uid", "value": "u"},
            {"op": "test", "path": "/metadata/ownerReferences/1/uid", "value": "o"},
            {"op": "test", "path": "/metadata/ownerReferences/1/controller", "value": true},
            {"op": "test", "path": "/spec/containers/1/name", "value": "main"},
            {"op": "test", "path": "/spec/containers/1/env/0/name", "value": "A"},
            {"op": "test", "path": "/spec/containers/1/name", "value": "main"},
            {"op": "add", "path": "/spec/paused", "value": true},
            {"op": "replace", "path": "/metadata/labels/app.kubernetes.io~1name", "value": "y"},
            {"op": "replace", "path": "/spec/containers/1/env/0/value", "value": "2"},
            {"op": "replace", "path": "/spec/containers/1/image", "value": "b"},
            {"op": "replace", "path": "/spec/replicas", "value": 5},
        ]);
        let sorted = |edits: Value| {
            let mut lines: Vec<String> = edits.as_array().expect("a list").iter().map(Value::to_string).collect();
            lines.sort_unstable();
            lines.dedup();
            lines
        };
        assert_eq!(sorted(edits(&desired, &Value::Null).expect("an edit")), sorted(expected));
    }

    #[test]
    fn other_changes_than_plain_fields_are_left_to_an_apply() {
        let container = |fields: Value| json!({"spec": {"containers": [fields]}});
        for (what, desired) in [
            ("an object", json!({"metadata": {"annotations": {"note": "x"}}})),
            ("a list", container(json!({"name": "main", "args": ["-x"]}))),
            ("a new element", container(json!({"name": "other"}))),
            ("another kind of value", json!({"spec": {"replicas": {"count": 3}}})),
            ("nothing", json!({"spec": {"replicas": 3}})),
        ] {
            assert_eq!(edits(&desired, &Value::Null), None, "{what}");
        }
        assert_eq!(edits(&json!({"spec": {}}), &json!({"spec": {"replicas": 3}})), None, "a field that goes");
        let live = live();
        let changes = compare(&live, &Value::Null, &json!({"spec": {"replicas": 5}}), &json!({}));
        assert!(json_patch(&live, "u", "o", &changes).is_some());
        assert_eq!(json_patch(&live, "u", "another-manager", &changes), None);
    }

    /// An apply would only add our alternative beside the other one, unless it removes the other one as ours.
    #[test]
    fn alternative_that_is_not_ours_alone_is_exchanged_for_ours() {
        let owner = json!([{"uid": "o", "controller": true}]);
        let live = json!({
            "metadata": {"uid": "u", "ownerReferences": owner},
            "spec": {"replicas": 1, "volumes": [{"name": "data", "emptyDir": {}}]},
        });
        let exchanged = |source: &str, managers: &[&str]| -> Option<Vec<String>> {
            let desired = json!({"spec": {"replicas": 2, "volumes": [{"name": "data", source: {}}]}});
            let fields = json!({"f:spec": {"f:volumes": {"k:{\"name\":\"data\"}": {"f:emptyDir": {}}}}});
            let entry = |manager: &&str| json!({"manager": manager, "operation": "Update", "fieldsV1": fields});
            let entries: Vec<Value> = managers.iter().map(entry).collect();
            let text = json!({"metadata": {"name": "a", "managedFields": entries}}).to_string();
            let head: Head<'_> = serde_json::from_str(&text).expect("metadata");
            let changes = compare(&live, &Value::Null, &desired, &desired);
            let patch = exchange_alternatives(&live, "u", "o", &changes, ("ours", &head.metadata.managed_fields))?;
            let edits = patch.as_array().expect("a list").iter().filter(|it| it["op"] != "test");
            let mut edits: Vec<String> = edits.map(|it| format!("{} {}", it["op"], it["path"])).collect();
            edits.sort_unstable();
            Some(edits)
        };
        let both =
            [r#""add" "/spec/volumes/0/configMap""#, r#""remove" "/spec/volumes/0/emptyDir""#].map(str::to_owned);
        for managers in [&["kubectl"][..], &["kubectl", "ours"], &[]] {
            assert_eq!(exchanged("configMap", managers).as_deref(), Some(&both[..]), "{managers:?}");
        }
        assert_eq!(exchanged("configMap", &["ours"]), None, "an apply removes it");
        assert_eq!(exchanged("emptyDir", &["kubectl"]), None, "none is in the way");
    }

    #[test]
    fn dry_run_also_removes_plain_fields() {
        let live = live();
        let dry_run =
            |owned: &Value, desired: &Value| dry_run_operations(&live, "u", &compare(&live, owned, desired, desired));
        let expected = json!([
            {"op": "test", "path": "/metadata/uid", "value": "u"},
            {"op": "add", "path": "/spec/paused", "value": true},
            {"op": "remove", "path": "/spec/replicas"},
        ]);
        let (owned, desired) = (json!({"spec": {"replicas": 3}}), json!({"spec": {"paused": true}}));
        assert_eq!(dry_run(&owned, &desired), Some(expected));
        let another = json!({"spec": {"containers": [{"name": "other"}]}});
        assert_eq!(dry_run(&Value::Null, &another), None, "a new element");
    }
}
