//! Compares the object before and after a request of ours, in the JSON that its type writes. The parts of both borrow from these texts,
//! so that neither a tree of values nor a copy of it is made: this happens at each write of a status.

use std::{borrow::Cow, collections::BTreeMap};

use cache::LAST_APPLIED;
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

/// The name of a member. It borrows from the text, unless the text has escaped it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

type Members<'a> = BTreeMap<Name<'a>, &'a RawValue>;

/// An object in parts.
struct Parts<'a> {
    /// Its resource version.
    version: Option<&'a RawValue>,
    status: Option<&'a RawValue>,
    annotations: Members<'a>,
    /// The rest of the metadata, without `managedFields`.
    metadata: Members<'a>,
    /// The rest of the object.
    others: Members<'a>,
}

/// Whether `after` differs from `before` plus `patch` outside of the status, because another client changed the object.
///
/// Values that the patch sets are ignored, even if admission changed them: a reconcile would only set them again.
///
/// If the resource version is the same, nothing was written. If the content differs all the same, it comes from another
/// history: the cluster was restored from a backup.
pub(super) fn differs<K: Serialize>(before: &K, patch: &Value, after: &K) -> Result<bool, serde_json::Error> {
    let (before, after) = (serde_json::to_string(before)?, serde_json::to_string(after)?);
    Ok(parts_differ(&Parts::of(&before)?, patch, &Parts::of(&after)?))
}

fn parts_differ(before: &Parts<'_>, patch: &Value, after: &Parts<'_>) -> bool {
    let is_unwritten = is_same(before.version, after.version);
    if is_unwritten && !is_same(before.status, after.status) {
        return true;
    }
    let patch = if is_unwritten { &Value::Null } else { patch };
    let (finalizers, ours) = (&patch["metadata"]["finalizers"], patch["metadata"]["annotations"].as_object());
    // The API server drops fields that have become empty.
    let in_metadata = |name: &str, value: &RawValue| !is_empty(value) && (name != "finalizers" || finalizers.is_null());
    let in_annotations =
        |name: &str, _: &RawValue| name != LAST_APPLIED && ours.is_none_or(|ours| !ours.contains_key(name));
    !(are_same(&before.metadata, &after.metadata, in_metadata)
        && are_same(&before.annotations, &after.annotations, in_annotations)
        && are_same(&before.others, &after.others, |_, _| true))
}

impl<'a> Parts<'a> {
    fn of(json: &'a str) -> Result<Self, serde_json::Error> {
        let mut others: Members<'a> = serde_json::from_str(json)?;
        let status = others.remove("status");
        let mut metadata = members(others.remove("metadata"))?;
        let version = metadata.remove("resourceVersion");
        metadata.remove("managedFields");
        let annotations = members(metadata.remove("annotations"))?;
        Ok(Self { version, status, annotations, metadata, others })
    }
}

impl std::borrow::Borrow<str> for Name<'_> {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// The members of an object; none if it is missing or null.
fn members(object: Option<&RawValue>) -> Result<Members<'_>, serde_json::Error> {
    let Some(object) = object else { return Ok(Members::new()) };
    Ok(serde_json::from_str::<Option<Members<'_>>>(object.get())?.unwrap_or_default())
}

/// Whether both have the same of those members that count.
fn are_same(before: &Members<'_>, after: &Members<'_>, counts: impl Fn(&str, &RawValue) -> bool) -> bool {
    let mut before = before.iter().filter(|(name, value)| counts(&name.0, value));
    let mut after = after.iter().filter(|(name, value)| counts(&name.0, value));
    loop {
        match (before.next(), after.next()) {
            (None, None) => return true,
            (Some((name, old)), Some((other, new))) if name == other && is_same(Some(*old), Some(*new)) => {}
            _ => return false,
        }
    }
}

/// Whether both are the same JSON value. A missing one is the same as null.
fn is_same(before: Option<&RawValue>, after: Option<&RawValue>) -> bool {
    let [before, after] = [before, after].map(|value| value.map_or("null", RawValue::get));
    // Equal texts are equal values. Other texts may be, too: a hash map is written in any order, and zero has two signs.
    before == after || {
        let [before, after] = [before, after].map(serde_json::from_str::<Value>);
        before.ok().zip(after.ok()).is_some_and(|(before, after)| before == after)
    }
}

/// Whether the value, as a type has written it without spaces, is empty.
fn is_empty(value: &RawValue) -> bool {
    matches!(value.get(), "null" | "{}" | "[]")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde::Serializer;
    use serde_json::{Map, json};

    use super::*;

    fn changed<K: Serialize>(before: &K, after: &K) -> bool {
        differs(before, &Value::Null, after).expect("JSON")
    }

    /// A primary whose spec is `S`.
    #[derive(Serialize)]
    struct Typed<S> {
        metadata: Value,
        spec: S,
    }

    /// Whether two objects count as different that have these specs and different versions.
    fn specs_differ<S: Serialize>(before: S, after: S) -> bool {
        let of = |version: &str, spec: S| Typed { metadata: json!({"name": "a", "resourceVersion": version}), spec };
        changed(&of("7", before), &of("8", after))
    }

    #[test]
    fn missing_is_the_same_as_null_only_where_the_api_server_drops_fields() {
        let version = |version: &str, mut object: Value| {
            object["metadata"]["resourceVersion"] = version.into();
            object
        };
        for (with_null, without, expected) in [
            (json!({"metadata": {"labels": null}}), json!({"metadata": {}}), false),
            (json!({"metadata": {"labels": {}}}), json!({"metadata": {}}), false),
            (json!({"metadata": {"finalizers": []}}), json!({"metadata": {}}), false),
            (json!({"metadata": {"annotations": null}}), json!({"metadata": {"annotations": {}}}), false),
            (json!({"metadata": {"generation": 0}}), json!({"metadata": {}}), true),
            (json!({"metadata": {"labels": {"a": null}}}), json!({"metadata": {"labels": {}}}), true),
            (json!({"metadata": {}, "spec": null}), json!({"metadata": {}}), true),
            (json!({"metadata": {}, "spec": {"a": null}}), json!({"metadata": {}, "spec": {}}), true),
        ] {
            for (before, after) in [(&with_null, &without), (&without, &with_null)] {
                let (before, after) = (version("7", before.clone()), version("8", after.clone()));
                assert_eq!(changed(&before, &after), expected, "{before} {after}");
            }
        }
        // Nothing was written.
        let (null, missing) = (json!({"metadata": {}, "status": null}), json!({"metadata": {}}));
        assert!(!changed(&null, &missing) && !changed(&missing, &null));
        assert!(changed(&json!({"metadata": {}, "status": {}}), &missing));
        assert!(!changed(&json!({"metadata": {"resourceVersion": null}, "status": null}), &missing));
    }

    #[test]
    fn field_that_the_type_fills_in_is_no_change() {
        #[derive(Deserialize, Serialize)]
        struct Spec {
            #[serde(default)]
            size: i32,
            image: Option<String>,
        }
        let spec = |json: Value| -> Spec { serde_json::from_value(json).expect("a spec") };
        assert!(!specs_differ(spec(json!({})), spec(json!({"size": 0, "image": null, "unknown": 1}))));
        assert!(specs_differ(spec(json!({})), spec(json!({"size": 1}))));
        assert!(specs_differ(spec(json!({})), spec(json!({"image": ""}))));
    }

    #[test]
    fn number_is_compared_as_the_type_holds_it() {
        assert!(!specs_differ(0.1_f32, 0.1_f32));
        assert!(specs_differ(0.1_f32, 0.100_000_01_f32));
        assert!(!specs_differ(0.0_f64, -0.0_f64), "zero has two signs");
        assert!(!specs_differ(f64::NAN, f64::NAN), "both are written as null");
        assert!(specs_differ(u64::MAX, u64::MAX - 1));
        assert!(!specs_differ(1e300, 1e300));
        let raw = |text: &str| RawValue::from_string(text.to_owned()).expect("JSON");
        for (before, after, expected) in
            [("1.0", "1.00", false), ("1.0", "10e-1", false), ("1", "1.0", true), ("[1,2]", "[ 1, 2 ]", false)]
        {
            assert_eq!(specs_differ(raw(before), raw(after)), expected, "{before} {after}");
        }
    }

    #[test]
    fn order_of_members_does_not_count() {
        struct InOrder(Vec<(&'static str, i32)>);

        impl Serialize for InOrder {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_map(self.0.iter().copied())
            }
        }

        let [forwards, backwards] = [vec![("a", 1), ("b", 2)], vec![("b", 2), ("a", 1)]];
        assert!(!specs_differ(InOrder(forwards.clone()), InOrder(backwards)));
        assert!(specs_differ(InOrder(forwards), InOrder(vec![("b", 1), ("a", 2)])));
    }

    #[test]
    fn escaped_names_are_compared_like_others() {
        let object = |version: &str, value: &str| {
            let metadata = json!({"resourceVersion": version, "annotations": {"a\"b\u{1}": value}});
            json!({"metadata": metadata, "c\\d": value})
        };
        assert!(!changed(&object("7", "x"), &object("8", "x")));
        assert!(changed(&object("7", "x"), &object("8", "y")));
        let [mut before, mut after] = [object("7", "x"), object("8", "y")];
        for object in [&mut before, &mut after] {
            object["c\\d"] = Value::Null;
        }
        let patch = json!({"metadata": {"annotations": {"a\"b\u{1}": "z"}}});
        assert!(!differs(&before, &patch, &after).expect("JSON"), "the patch sets it");
    }

    /// The same by copies of both objects, as trees of values.
    fn differs_by_copies(before: &Value, patch: &Value, after: &Value) -> bool {
        let is_unwritten = before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"];
        if is_unwritten && before["status"] != after["status"] {
            return true;
        }
        let patch = if is_unwritten { &Value::Null } else { patch };
        let of_others = |object: &Value| {
            let mut object = object.clone();
            let members = object.as_object_mut().expect("an object");
            members.remove("status");
            let metadata = members.get_mut("metadata").and_then(Value::as_object_mut).expect("metadata");
            metadata.remove("resourceVersion");
            metadata.remove("managedFields");
            if !patch["metadata"]["finalizers"].is_null() {
                metadata.remove("finalizers");
            }
            if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
                let ours = patch["metadata"]["annotations"].as_object();
                annotations.retain(|name, _| name != LAST_APPLIED && ours.is_none_or(|ours| !ours.contains_key(name)));
            }
            let empty = [json!(null), json!({}), json!([])];
            metadata.retain(|_, value| !empty.contains(value));
            object
        };
        of_others(before) != of_others(after)
    }

    /// Members with some of these names, which have some of these values.
    fn some(random: &mut fastrand::Rng, names: &[&str], values: &[Value]) -> Value {
        let mut members = Map::new();
        for name in names {
            if let Some(value) = values.get(random.usize(0..=values.len())) {
                members.insert((*name).to_owned(), value.clone());
            }
        }
        members.into()
    }

    fn random_object(random: &mut fastrand::Rng) -> Value {
        let values = [
            json!(null),
            json!({}),
            json!([]),
            json!(1),
            json!(1.0),
            json!("1"),
            json!({"a": null}),
            json!({"a": [1, {}]}),
        ];
        let mut object = some(random, &["kind", "spec", "status"], &values);
        let names = ["deletionTimestamp", "finalizers", "generation", "labels", "managedFields"];
        object["metadata"] = some(random, &names, &values);
        if random.bool() {
            object["metadata"]["resourceVersion"] = random.u8(7..9).to_string().into();
        }
        if random.u8(0..4) > 0 {
            let names = ["note", "ours", LAST_APPLIED];
            object["metadata"]["annotations"] = some(random, &names, &[json!("x"), json!("y")]);
        } else if random.bool() {
            object["metadata"]["annotations"] = Value::Null;
        }
        object
    }

    /// Takes over a few members of the other object.
    fn mix(random: &mut fastrand::Rng, object: &mut Value, other: &Value) {
        let (Some(object), Some(other)) = (object.as_object_mut(), other.as_object()) else { return };
        let names: BTreeSet<String> = object.keys().chain(other.keys()).cloned().collect();
        for name in names {
            let theirs = other.get(&name);
            if random.u8(0..12) > 0 {
                if let (Some(ours), Some(theirs)) = (object.get_mut(&name), theirs) {
                    mix(random, ours, theirs);
                }
                continue;
            }
            match theirs {
                Some(theirs) => object.insert(name, theirs.clone()),
                None => object.remove(&name),
            };
        }
    }

    #[test]
    fn comparison_of_parts_agrees_with_that_of_copies() {
        let patches = [
            Value::Null,
            json!({"status": {"replicas": 1}}),
            json!({"metadata": {"finalizers": null, "annotations": null}}),
            json!({"metadata": {"finalizers": []}}),
            json!({"metadata": {"annotations": {"ours": "x"}}}),
            json!({"metadata": {"finalizers": ["ours"], "annotations": {"ours": null, "note": "y"}}}),
        ];
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let mut found = [0, 0];
        for _ in 0..20_000 {
            let before = random_object(&mut random);
            let (mut after, other) = (before.clone(), random_object(&mut random));
            mix(&mut random, &mut after, &other);
            if random.bool() {
                after["metadata"]["resourceVersion"] = random.u8(7..9).to_string().into();
            }
            let patch = &patches[random.usize(0..patches.len())];
            let expected = differs_by_copies(&before, patch, &after);
            assert_eq!(differs(&before, patch, &after).expect("JSON"), expected, "{before} {patch} {after}");
            found[usize::from(expected)] += 1;
        }
        assert!(found.iter().all(|&found| found > 500), "{found:?}");
    }
}
