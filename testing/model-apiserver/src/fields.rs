//! Sets of field paths, as in `metadata.managedFields`. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::{
    shape::Shape,
    step::{Step, keyed},
};

/// A set of paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldSet {
    members: BTreeSet<Step>,
    children: BTreeMap<Step, Self>,
}

impl FieldSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.is_empty()
    }

    /// Adds a path. The empty path is never a member.
    pub(crate) fn insert(&mut self, path: &[Step]) {
        match path {
            [] => {}
            [last] => {
                self.members.insert(last.clone());
            }
            [first, rest @ ..] => self.children.entry(first.clone()).or_default().insert(rest),
        }
    }

    pub(crate) fn insert_member(&mut self, step: Step) {
        self.members.insert(step);
    }

    pub(crate) fn insert_child(&mut self, step: Step, child: Self) {
        if !child.is_empty() {
            self.children.insert(step, child);
        }
    }

    pub(crate) fn has(&self, step: &str) -> bool {
        self.members.contains(step)
    }

    pub(crate) fn child(&self, step: &str) -> Option<&Self> {
        self.children.get(step)
    }

    pub(crate) fn union(&self, other: &Self) -> Self {
        let mut out = self.clone();
        out.members.extend(other.members.iter().cloned());
        for (step, child) in &other.children {
            let mine = out.children.entry(step.clone()).or_default();
            *mine = mine.union(child);
        }
        out
    }

    pub(crate) fn intersection(&self, other: &Self) -> Self {
        let members = self.members.intersection(&other.members).cloned().collect();
        let mut out = Self { members, children: BTreeMap::new() };
        for (step, child) in &self.children {
            if let Some(theirs) = other.children.get(step) {
                out.insert_child(step.clone(), child.intersection(theirs));
            }
        }
        out
    }

    /// The paths that are not in `other`. Each path is separate: removing `a` keeps `a.b`.
    pub(crate) fn difference(&self, other: &Self) -> Self {
        self.without(other, false)
    }

    /// The paths that are neither in `other` nor below one of its paths.
    pub(crate) fn recursive_difference(&self, other: &Self) -> Self {
        self.without(other, true)
    }

    fn without(&self, other: &Self, below: bool) -> Self {
        let members = self.members.difference(&other.members).cloned().collect();
        let mut out = Self { members, children: BTreeMap::new() };
        for (step, child) in &self.children {
            if below && other.members.contains(step) {
                continue;
            }
            match other.children.get(step) {
                Some(theirs) => out.insert_child(step.clone(), child.without(theirs, below)),
                None => out.insert_child(step.clone(), child.clone()),
            }
        }
        out
    }

    /// The paths at or below the field `name`.
    pub(crate) fn only(&self, name: &str) -> Self {
        let step = field(name);
        let mut out = Self::default();
        if self.members.contains(&step) {
            out.members.insert(step.clone());
        }
        if let Some(child) = self.children.get(&step) {
            out.children.insert(step, child.clone());
        }
        out
    }

    /// The set, and every named field on the path to one of its members.
    pub(crate) fn with_named_fields(&self, shape: &Shape) -> Self {
        let mut out = Self { members: self.members.clone(), children: BTreeMap::new() };
        for (step, child) in &self.children {
            let below = match step.strip_prefix("f:") {
                Some(name) => {
                    let (below, named) = shape.field(name);
                    if named {
                        out.members.insert(step.clone());
                    }
                    below
                }
                None => shape.element(),
            };
            out.children.insert(step.clone(), child.with_named_fields(below));
        }
        out
    }

    /// All paths; the members of a level come before deeper ones.
    pub(crate) fn paths(&self) -> Vec<Vec<Step>> {
        let mut out = Vec::new();
        self.walk(&mut Vec::new(), &mut out);
        out
    }

    fn walk(&self, at: &mut Vec<Step>, out: &mut Vec<Vec<Step>>) {
        for step in &self.members {
            let mut path = at.clone();
            path.push(step.clone());
            out.push(path);
        }
        for (step, child) in &self.children {
            at.push(step.clone());
            child.walk(at, out);
            at.pop();
        }
    }

    /// Reads `fieldsV1`.
    pub(crate) fn read(fields: &Value) -> Self {
        let mut out = Self::default();
        for (name, inner) in fields.as_object().into_iter().flatten().filter(|(name, _)| *name != ".") {
            let step = canonical(name);
            let child = Self::read(inner);
            if child.is_empty() || inner.get(".").is_some() {
                out.members.insert(step.clone());
            }
            out.insert_child(step, child);
        }
        out
    }

    /// Writes `fieldsV1`.
    pub(crate) fn write(&self) -> Value {
        let mut out = Map::new();
        for step in &self.members {
            out.insert(step.to_string(), Value::Object(Map::new()));
        }
        for (step, child) in &self.children {
            let mut inner = child.write();
            if self.members.contains(step) {
                inner["."] = Value::Object(Map::new());
            }
            out.insert(step.to_string(), inner);
        }
        Value::Object(out)
    }
}

/// The step to a field.
pub(crate) fn field(name: &str) -> Step {
    format!("f:{name}").into()
}

fn canonical(step: &str) -> Step {
    match step.strip_prefix("k:").map(serde_json::from_str::<Map<String, Value>>) {
        Some(Ok(keys)) => keyed(keys),
        _ => step.into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn field_set_round_trips() {
        let fields = json!({
            "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
            "f:spec": {"f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}}}},
            "f:finalizers": {"v:\"x\"": {}},
        });
        assert_eq!(FieldSet::read(&fields).write(), fields);
    }

    #[test]
    fn paths_are_displayed_like_the_api_server() {
        let set = FieldSet::read(&json!({
            "f:spec": {"f:ports": {"k:{\"protocol\":\"TCP\",\"containerPort\":80}": {"f:name": {}}}, "f:set": {"v:\"x\"": {}}},
        }));
        let paths: Vec<String> = set.paths().iter().map(|path| crate::step::display(path)).collect();
        assert_eq!(paths, [".spec.ports[containerPort=80,protocol=\"TCP\"].name", ".spec.set[=\"x\"]"]);
    }

    #[test]
    fn difference_keeps_nested_paths_unless_recursive() {
        let all = FieldSet::read(&json!({"f:a": {".": {}, "f:b": {}}, "f:c": {}}));
        let a = FieldSet::read(&json!({"f:a": {}}));
        assert_eq!(all.difference(&a).write(), json!({"f:a": {"f:b": {}}, "f:c": {}}));
        assert_eq!(all.recursive_difference(&a).write(), json!({"f:c": {}}));
    }
}
