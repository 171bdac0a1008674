//! Compares, merges and prunes objects by their shape, as structured-merge-diff does. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::{
    fields::{FieldSet, field},
    shape::{Class, Shape},
    step::Step,
};

/// The paths of everything in a value.
pub(crate) fn field_set(value: &Value, shape: &Shape) -> FieldSet {
    let mut out = FieldSet::default();
    match (value, shape.class(value)) {
        (Value::Object(map), Class::Object) => {
            for (name, value) in map {
                let (below, named) = shape.field(name);
                let step = field(name);
                let leaf = below.class(value) == Class::Leaf;
                let empty = value.as_object().is_some_and(Map::is_empty);
                if leaf || empty || !named {
                    out.insert_member(step.clone());
                }
                if !leaf {
                    out.insert_child(step, field_set(value, below));
                }
            }
        }
        (Value::Array(items), Class::List) => {
            let steps: Vec<Option<Step>> = items.iter().map(|item| shape.step(item).ok()).collect();
            for (index, (item, step)) in items.iter().zip(&steps).enumerate() {
                let Some(step) = step else { continue };
                out.insert_member(step.clone());
                let twice = steps.iter().enumerate().any(|(other, it)| other != index && it.as_ref() == Some(step));
                if !twice && shape.element().class(item) != Class::Leaf {
                    out.insert_child(step.clone(), field_set(item, shape.element()));
                }
            }
        }
        _ => {}
    }
    out
}

/// The differences between two values.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    pub(crate) removed: FieldSet,
    pub(crate) modified: FieldSet,
    pub(crate) added: FieldSet,
}

impl Comparison {
    pub(crate) fn of(old: &Value, new: &Value, shape: &Shape) -> Self {
        let mut out = Self::default();
        out.compare(Some(old), Some(new), shape, &mut Vec::new());
        out
    }

    pub(crate) fn filter(self, keep: impl Fn(&FieldSet) -> FieldSet) -> Self {
        Self { removed: keep(&self.removed), modified: keep(&self.modified), added: keep(&self.added) }
    }

    fn compare(&mut self, old: Option<&Value>, new: Option<&Value>, shape: &Shape, at: &mut Vec<Step>) {
        let class = |value: Option<&Value>| value.filter(|value| !value.is_null()).map(|value| shape.class(value));
        let same = match (class(old), class(new)) {
            (Some(a), Some(b)) if a != b => Class::Leaf,
            (Some(a), _) | (None, Some(a)) => a,
            (None, None) => Class::Leaf,
        };
        let empty = |value: Option<&Value>| match value {
            Some(Value::Object(map)) => map.is_empty(),
            Some(Value::Array(items)) => items.is_empty(),
            _ => true,
        };
        if same == Class::Leaf || (empty(old) && empty(new)) {
            match (old, new) {
                (None, _) => self.added.insert(at),
                (_, None) => self.removed.insert(at),
                (Some(old), Some(new)) if old != new => self.modified.insert(at),
                _ => {}
            }
            return;
        }
        if same == Class::Object {
            let (old, new) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
            let names: BTreeSet<&String> = old.into_iter().chain(new).flat_map(Map::keys).collect();
            for name in names {
                at.push(field(name));
                let value = |map: Option<&'_ Map<String, Value>>| map.and_then(|map| map.get(name)).cloned();
                self.compare(value(old).as_ref(), value(new).as_ref(), shape.field(name).0, at);
                at.pop();
            }
        } else {
            self.compare_lists(items(old), items(new), shape, at);
        }
        match (old, new) {
            (None, _) => self.added.insert(at),
            (_, None) => self.removed.insert(at),
            _ => {}
        }
    }

    fn compare_lists(&mut self, old: &[Value], new: &[Value], shape: &Shape, at: &mut Vec<Step>) {
        let mut by_step: BTreeMap<Step, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
        for item in old {
            if let Ok(step) = shape.step(item) {
                by_step.entry(step).or_default().0.push(item);
            }
        }
        for item in new {
            if let Ok(step) = shape.step(item) {
                by_step.entry(step).or_default().1.push(item);
            }
        }
        for (step, (old, new)) in by_step {
            at.push(step);
            match (&*old, &*new) {
                ([] | [_], [] | [_]) => {
                    self.compare(old.first().copied(), new.first().copied(), shape.element(), at);
                }
                ([_, _, ..], [_, _, ..]) => {
                    if old != new {
                        self.modified.insert(at);
                    }
                }
                ([_, _, ..], _) => {
                    if let [only] = &*new {
                        self.compare(None, Some(only), shape.element(), at);
                    }
                    self.removed.insert(at);
                }
                _ => {
                    if let [only] = &*old {
                        self.compare(Some(only), None, shape.element(), at);
                    }
                    self.added.insert(at);
                }
            }
            at.pop();
        }
    }
}

fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Merges `config` into `live`.
///
/// # Errors
///
/// A list has an item without its keys, or twice. The error names the list.
pub(crate) fn merge(live: &Value, config: &Value, shape: &Shape) -> Result<Value, String> {
    Ok(merged(Some(live), Some(config), shape, "")?.unwrap_or(Value::Null))
}

fn merged(live: Option<&Value>, config: Option<&Value>, shape: &Shape, at: &str) -> Result<Option<Value>, String> {
    let class = |value: Option<&Value>| value.filter(|value| !value.is_null()).map(|value| shape.class(value));
    let leaf = || Ok(config.or(live).cloned());
    match (class(live), class(config)) {
        (Some(Class::Object), Some(Class::Object) | None) | (None, Some(Class::Object)) => {
            let empty = Map::new();
            let object = |value: Option<&Value>| value.and_then(Value::as_object).cloned().unwrap_or_default();
            let (old, new) = (object(live), object(config));
            if old == empty && new == empty {
                return leaf();
            }
            let mut out = Map::new();
            let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            for name in names {
                let below = shape.field(name).0;
                if let Some(value) = merged(old.get(name), new.get(name), below, &format!("{at}.{name}"))? {
                    out.insert(name.clone(), value);
                }
            }
            Ok((!out.is_empty()).then_some(Value::Object(out)))
        }
        (Some(Class::List), Some(Class::List) | None) | (None, Some(Class::List)) => {
            let (old, new) = (items(live), items(config));
            if old.is_empty() && new.is_empty() {
                return leaf();
            }
            merged_lists(old, new, shape, at)
        }
        _ => leaf(),
    }
}

/// Merges the items of both lists. The result keeps the order of `new` and, as far as possible, that of `old`.
fn merged_lists(old: &[Value], new: &[Value], shape: &Shape, at: &str) -> Result<Option<Value>, String> {
    let steps = |list: &[Value]| -> Result<Vec<Step>, String> {
        let step = |(index, item)| shape.step(item).map_err(|error| format!("{at}: element {index}: {error}"));
        list.iter().enumerate().map(step).collect()
    };
    let (left, right) = (steps(old)?, steps(new)?);
    for (index, step) in right.iter().enumerate() {
        if right[..index].contains(step) {
            return Err(format!(
                "{at}: duplicate entries for key {}",
                crate::step::display(std::slice::from_ref(step))
            ));
        }
    }
    let in_left = |step: &Step| {
        let mut found = left.iter().zip(old).filter(|(it, _)| *it == step).map(|(_, item)| item);
        let first = found.next();
        if found.next().is_some() { None } else { first }
    };
    let item = |old: Option<&Value>, new: Option<&Value>| merged(old, new, shape.element(), at);
    let mut shared = right.iter().filter(|step| left.contains(step));
    let mut next_shared = shared.next();
    let mut done: BTreeSet<&Step> = BTreeSet::new();
    let (mut l, mut r) = (0, 0);
    let mut out = Vec::new();
    while l < left.len() || r < right.len() {
        if l < left.len() && r < right.len() {
            if left[l] == right[r] {
                done.insert(&left[l]);
                out.extend(item(in_left(&left[l]), Some(&new[r]))?);
                l += 1;
                r += 1;
                next_shared = shared.next();
                continue;
            }
            if right.contains(&left[l]) && next_shared.is_some_and(|step| *step != left[l]) {
                l += 1;
                continue;
            }
        }
        if l < left.len() {
            if !right.contains(&left[l]) {
                out.extend(item(Some(&old[l]), None)?);
                l += 1;
                continue;
            } else if done.contains(&left[l]) {
                l += 1;
            }
        }
        if r < right.len() {
            done.insert(&right[r]);
            out.extend(item(in_left(&right[r]), Some(&new[r]))?);
            if next_shared == Some(&right[r]) {
                next_shared = shared.next();
            }
            r += 1;
        }
    }
    Ok((!out.is_empty()).then_some(Value::Array(out)))
}

/// The value without the paths of a set. Objects and lists that become empty become null.
pub(crate) fn remove(value: &Value, gone: &FieldSet, shape: &Shape) -> Value {
    match (value, shape.class(value)) {
        (Value::Object(map), Class::Object) => {
            let mut out = Map::new();
            for (name, value) in map {
                let step = field(name);
                if gone.has(&step) {
                    continue;
                }
                let value = match gone.child(&step) {
                    Some(below) => remove(value, below, shape.field(name).0),
                    None => value.clone(),
                };
                out.insert(name.clone(), value);
            }
            if out.is_empty() { Value::Null } else { Value::Object(out) }
        }
        (Value::Array(items), Class::List) => {
            let mut out = Vec::new();
            for item in items {
                match shape.step(item) {
                    Ok(step) if gone.has(&step) => {}
                    Ok(step) if gone.child(&step).is_some() => {
                        let below = gone.child(&step).cloned().unwrap_or_default();
                        out.push(remove(item, &below, shape.element()));
                    }
                    _ => out.push(item.clone()),
                }
            }
            if out.is_empty() { Value::Null } else { Value::Array(out) }
        }
        (Value::Object(_) | Value::Array(_), _) => Value::Null,
        (scalar, _) => scalar.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn order(old: &[&str], new: &[&str]) -> Value {
        let value = |list: &[&str]| Value::from(list.to_vec());
        merge(&value(old), &value(new), &Shape::Set).expect("no duplicates")
    }

    #[test]
    fn merged_list_keeps_the_order_of_the_applied_list() {
        assert_eq!(order(&["a", "b"], &["b", "a"]), json!(["b", "a"]));
        assert_eq!(order(&["a", "x", "b"], &["b"]), json!(["a", "x", "b"]));
        assert_eq!(order(&["a", "b", "c"], &["c", "d", "a"]), json!(["b", "c", "d", "a"]));
        assert_eq!(order(&[], &["b", "a"]), json!(["b", "a"]));
    }

    #[test]
    fn duplicate_set_item_is_rejected() {
        assert!(merge(&json!(["a"]), &json!(["b", "b"]), &Shape::Set).is_err());
    }

    #[test]
    fn field_set_contains_leaves_and_list_items() {
        let object = json!({
            "metadata": {"labels": {"a": "b"}, "finalizers": ["x"], "ownerReferences": [{"uid": "1", "name": "n"}]},
            "spec": {"template": {"spec": {"containers": [{"name": "app", "args": ["-v"], "resources": {}}]}}},
        });
        assert_eq!(
            field_set(&object, &Shape::builtin("Deployment")).write(),
            json!({
                "f:metadata": {
                    "f:labels": {"f:a": {}}, "f:finalizers": {"v:\"x\"": {}}, "f:ownerReferences": {"k:{\"uid\":\"1\"}": {}},
                },
                "f:spec": {"f:template": {"f:spec": {"f:containers": {
                    "k:{\"name\":\"app\"}": {".": {}, "f:name": {}, "f:args": {}, "f:resources": {}},
                }}}},
            })
        );
    }

    #[test]
    fn removing_all_of_an_object_leaves_null() {
        let gone = FieldSet::read(&json!({"f:a": {"f:b": {}}}));
        assert_eq!(remove(&json!({"a": {"b": 1}, "c": 2}), &gone, &Shape::Free), json!({"a": null, "c": 2}));
    }
}
