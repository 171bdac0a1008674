//! The part of a live object that is ours, and how it differs from what we want. Pure.
//!
//! The API server keeps, per field manager, the set of fields that manager owns (`metadata.managedFields`). When
//! somebody else changes or removes a field of ours it takes the field out of our set. So the live object *projected
//! onto our set* says exactly whether our fields still hold what we wrote, and a hash of that projection, the
//! [`fingerprint`], is all that has to be kept: 8 bytes instead of an object.
//!
//! - A child created by POST has one entry of ours, operation `Update`, with the fields that we sent **and** those that
//!   the API server defaulted: its projection equals our desired object with defaults filled in.
//! - A child that was changed by server-side apply has one entry, operation `Apply`, with the fields that we sent: its
//!   projection equals our desired object.
//!
//! Where the hashes are equal nothing has to be done. Where they differ the live object is read once and [`compare`]d
//! field by field, which also settles values that are written in two ways (`1000m` and `1`).

use std::fmt::Write;

use serde_json::{Map, Value};
use xxhash_rust::xxh3::Xxh3;

use crate::object::ManagedFields;

mod edit;

pub(crate) use edit::edit;

/// What our entries in `managedFields` say about one live object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Fingerprint {
    /// Hash of the live object projected onto the fields that we own; 0 when we own none.
    pub(crate) hash: u64,
    /// One of our entries stems from a create and owns defaulted fields too.
    pub(crate) from_create: bool,
}

/// One difference between the live object and the desired one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    /// Where, from the root of the object.
    pub(crate) path: Path,
    /// What is there now.
    pub(crate) live: Option<Value>,
    /// What we want there; `None` when the field is ours and no longer wanted.
    pub(crate) desired: Option<Value>,
}

/// A place in an object. Displayed as people write it: `spec.template.spec.containers[memcached].args`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Path(Vec<Step>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Field(String),
    /// An element of a keyed list, by the values of its keys.
    Element(Map<String, Value>),
}

/// Lists whose elements have an identity, by field name, with the keys that make it. Lists that are not named here
/// are compared as a whole, which is exact, only less telling.
const KEYED_LISTS: &[(&str, &[&str])] = &[
    ("containers", &["name"]),
    ("initContainers", &["name"]),
    ("ephemeralContainers", &["name"]),
    ("volumes", &["name"]),
    ("env", &["name"]),
    ("imagePullSecrets", &["name"]),
    ("volumeMounts", &["mountPath"]),
    ("ownerReferences", &["uid"]),
    ("topologySpreadConstraints", &["topologyKey", "whenUnsatisfiable"]),
    ("ports", &["containerPort", "protocol"]),
    ("ports", &["port", "protocol"]),
];

/// The entries of `manager` on the main resource, merged into one field set.
pub(crate) fn fields_of(manager: &str, entries: &[ManagedFields<'_>]) -> Option<(Value, bool)> {
    let mut merged: Option<Value> = None;
    let mut from_create = false;
    for entry in entries.iter().filter(|entry| entry.manager == manager && entry.subresource.is_empty()) {
        let Some(fields) = entry.fields.and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok()) else {
            continue;
        };
        from_create |= entry.operation == "Update";
        match &mut merged {
            None => merged = Some(fields),
            Some(all) => unite(all, fields),
        }
    }
    merged.map(|fields| (fields, from_create))
}

/// The fingerprint of `live` for `manager`.
pub(crate) fn fingerprint(live: &Value, manager: &str, entries: &[ManagedFields<'_>]) -> Fingerprint {
    match fields_of(manager, entries) {
        None => Fingerprint::default(),
        Some((fields, from_create)) => Fingerprint { hash: hash(&project(live, &fields)), from_create },
    }
}

/// A hash of a JSON value that does not depend on the order of its keys.
pub(crate) fn hash(value: &Value) -> u64 {
    let mut hasher = Xxh3::new();
    feed(&mut hasher, value);
    hasher.digest()
}

fn feed(hasher: &mut Xxh3, value: &Value) {
    match value {
        Value::Null => hasher.update(b"n"),
        Value::Bool(flag) => hasher.update(if *flag { b"t" } else { b"f" }),
        Value::Number(number) => {
            hasher.update(b"#");
            hasher.update(number.to_string().as_bytes());
        }
        Value::String(text) => {
            hasher.update(b"\"");
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        }
        Value::Array(items) => {
            hasher.update(b"[");
            for item in items {
                feed(hasher, item);
            }
            hasher.update(b"]");
        }
        Value::Object(map) => {
            hasher.update(b"{");
            let mut keys: Vec<&String> = map.keys().collect();
            keys.sort_unstable();
            for key in keys {
                hasher.update(&(key.len() as u64).to_le_bytes());
                hasher.update(key.as_bytes());
                feed(hasher, &map[key]);
            }
            hasher.update(b"}");
        }
    }
}

/// The part of `live` that the field set `fields` (the format of `fieldsV1`) names.
pub(crate) fn project(live: &Value, fields: &Value) -> Value {
    let Some(fields) = fields.as_object().filter(|fields| !fields.is_empty()) else { return live.clone() };
    match live {
        Value::Object(map) => {
            let mut out = Map::new();
            for (name, inner) in fields {
                let Some(field) = name.strip_prefix("f:") else { continue };
                if let Some(value) = map.get(field) {
                    out.insert(field.to_owned(), project(value, inner));
                }
            }
            Value::Object(out)
        }
        Value::Array(items) => {
            let out = items.iter().enumerate().filter_map(|(index, item)| {
                let (_, inner) = fields.iter().find(|(selector, _)| selects(selector, index, item))?;
                Some(project(item, inner))
            });
            Value::Array(out.collect())
        }
        scalar => scalar.clone(),
    }
}

/// Whether `k:{…}`, `v:…` or `i:…` of a field set means this element.
fn selects(selector: &str, index: usize, item: &Value) -> bool {
    let Some((kind, text)) = selector.split_once(':') else { return false };
    match kind {
        "k" => match serde_json::from_str::<Map<String, Value>>(text) {
            Ok(keys) => keys.iter().all(|(key, value)| item.get(key) == Some(value)),
            Err(_) => false,
        },
        "v" => serde_json::from_str::<Value>(text).is_ok_and(|value| value == *item),
        "i" => text.parse() == Ok(index),
        _ => false,
    }
}

fn unite(all: &mut Value, more: Value) {
    let (Value::Object(all), Value::Object(more)) = (all, more) else { return };
    for (key, value) in more {
        match all.get_mut(&key) {
            Some(existing) => unite(existing, value),
            None => {
                all.insert(key, value);
            }
        }
    }
}

/// Everything in which `live` differs from `desired`, plus what is ours (`owned`, a projection of `live`) and appears
/// neither in `desired` nor in `defaulted`, which is `desired` with the API server's defaults.
pub(crate) fn compare(live: &Value, owned: &Value, desired: &Value, defaulted: &Value) -> Vec<Change> {
    let mut changes = Vec::new();
    missing(live, desired, &Path::default(), &mut changes);
    dropped(owned, defaulted, &Path::default(), &mut changes);
    changes
}

/// Whether every field of `desired` is among `owned`, our part of the live object.
///
/// A field that somebody else holds has to be taken back even when it has the right value: his next change of it would
/// leave our part as it is, and so go unnoticed.
pub(crate) fn covers(owned: &Value, desired: &Value) -> bool {
    covered(owned, desired, &Path::default())
}

fn covered(owned: &Value, desired: &Value, at: &Path) -> bool {
    match (owned, desired) {
        (Value::Object(have), Value::Object(want)) => want.iter().all(|(name, wanted)| match have.get(name) {
            Some(value) => covered(value, wanted, &at.field(name)),
            None => is_empty(wanted),
        }),
        (Value::Array(have), Value::Array(want)) => match keys_of(at, want) {
            None => true,
            Some(keys) => want.iter().all(|wanted| {
                let ours = have.iter().find(|item| keys.iter().all(|key| item.get(key) == wanted.get(key)));
                ours.is_some_and(|item| covered(item, wanted, &at.element(wanted, keys)))
            }),
        },
        _ => true,
    }
}

fn missing(live: &Value, desired: &Value, at: &Path, changes: &mut Vec<Change>) {
    if live == desired || (at.is_quantity() && same_quantity(live, desired)) {
        return;
    }
    match (live, desired) {
        (Value::Object(have), Value::Object(want)) => {
            for (name, wanted) in want {
                let path = at.field(name);
                match have.get(name) {
                    Some(value) => missing(value, wanted, &path, changes),
                    None if is_empty(wanted) => {}
                    None => changes.push(Change { path, live: None, desired: Some(wanted.clone()) }),
                }
            }
        }
        (Value::Array(have), Value::Array(want)) if keys_of(at, want).is_some() => {
            let keys = keys_of(at, want).unwrap_or_default();
            for wanted in want {
                let path = at.element(wanted, keys);
                match have.iter().find(|item| keys.iter().all(|key| item.get(key) == wanted.get(key))) {
                    Some(item) => missing(item, wanted, &path, changes),
                    None => changes.push(Change { path, live: None, desired: Some(wanted.clone()) }),
                }
            }
        }
        _ => changes.push(Change { path: at.clone(), live: Some(live.clone()), desired: Some(desired.clone()) }),
    }
}

fn dropped(owned: &Value, defaulted: &Value, at: &Path, changes: &mut Vec<Change>) {
    match (owned, defaulted) {
        (Value::Object(have), Value::Object(want)) => {
            for (name, value) in have {
                let path = at.field(name);
                match want.get(name) {
                    Some(wanted) => dropped(value, wanted, &path, changes),
                    None if is_empty(value) => {}
                    None => changes.push(Change { path, live: Some(value.clone()), desired: None }),
                }
            }
        }
        (Value::Array(have), Value::Array(want)) => {
            let Some(keys) = keys_of(at, have) else { return };
            for item in have {
                let path = at.element(item, keys);
                match want.iter().find(|wanted| keys.iter().all(|key| item.get(key) == wanted.get(key))) {
                    Some(wanted) => dropped(item, wanted, &path, changes),
                    None => changes.push(Change { path, live: Some(item.clone()), desired: None }),
                }
            }
        }
        _ => {}
    }
}

fn keys_of(at: &Path, items: &[Value]) -> Option<&'static [&'static str]> {
    let Some(Step::Field(name)) = at.0.last() else { return None };
    KEYED_LISTS
        .iter()
        .filter(|(list, _)| list == name)
        .map(|(_, keys)| *keys)
        .find(|keys| items.iter().all(|item| keys.first().is_some_and(|key| item.get(key).is_some())))
}

/// Quantities are normalised by the API server: `1000m` is stored as `1`.
fn same_quantity(live: &Value, desired: &Value) -> bool {
    match (quantity(live), quantity(desired)) {
        (Some(a), Some(b)) => (a - b).abs() <= f64::EPSILON * a.abs().max(b.abs()),
        _ => false,
    }
}

/// Absent in Go's `omitempty` encoding.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// The number that a Kubernetes quantity such as `1500m` or `64Mi` stands for; `None` for any other text.
fn quantity(value: &Value) -> Option<f64> {
    let text = match value {
        Value::Number(number) => return number.as_f64(),
        Value::String(text) => text,
        _ => return None,
    };
    let digits = text.find(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let number: f64 = number.parse().ok()?;
    let factor = match suffix {
        "" => 1.0,
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => 1024.0,
        "Mi" => 1024.0 * 1024.0,
        "Gi" => 1024.0 * 1024.0 * 1024.0,
        "Ti" => 1024.0_f64.powi(4),
        "Pi" => 1024.0_f64.powi(5),
        "Ei" => 1024.0_f64.powi(6),
        _ => return None,
    };
    Some(number * factor)
}

/// The manager, other than `ours`, that holds the field at `path`: who changed it.
pub(crate) fn holder<'a>(path: &Path, ours: &str, entries: &'a [ManagedFields<'_>]) -> Option<&'a str> {
    entries.iter().filter(|entry| entry.manager != ours).find_map(|entry| {
        let fields: Value = serde_json::from_str(entry.fields?.get()).ok()?;
        path.is_in(&fields).then_some(&*entry.manager)
    })
}

impl Path {
    /// A path of plain fields, for tests and comparisons: `spec.replicas`.
    pub(crate) fn starts_with(&self, fields: &[&str]) -> bool {
        self.0.len() >= fields.len()
            && self.0.iter().zip(fields).all(|(step, field)| matches!(step, Step::Field(name) if name == field))
    }

    fn field(&self, name: &str) -> Self {
        let mut steps = self.0.clone();
        steps.push(Step::Field(name.to_owned()));
        Self(steps)
    }

    fn element(&self, item: &Value, keys: &[&str]) -> Self {
        let mut steps = self.0.clone();
        let identity = keys.iter().filter_map(|key| Some(((*key).to_owned(), item.get(key)?.clone())));
        steps.push(Step::Element(identity.collect()));
        Self(steps)
    }

    /// Only where a quantity stands may `1000m` equal `1`: in an argument or an image tag they differ.
    fn is_quantity(&self) -> bool {
        match self.0.as_slice() {
            [.., Step::Field(parent), Step::Field(_)] if matches!(&**parent, "limits" | "requests") => true,
            [.., Step::Field(last)] => last == "sizeLimit",
            _ => false,
        }
    }

    fn is_in(&self, fields: &Value) -> bool {
        let mut at = fields;
        for step in &self.0 {
            let Some(map) = at.as_object() else { return false };
            if map.is_empty() {
                return true; // an atomic value above us: whoever holds it holds us too
            }
            let next = match step {
                Step::Field(name) => map.get(&format!("f:{name}")),
                Step::Element(identity) => map.iter().find_map(|(selector, inner)| {
                    let keys: Map<String, Value> = serde_json::from_str(selector.strip_prefix("k:")?).ok()?;
                    (keys == *identity).then_some(inner)
                }),
            };
            match next {
                Some(inner) => at = inner,
                None => return false,
            }
        }
        true
    }
}

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, step) in self.0.iter().enumerate() {
            match step {
                Step::Field(name) if index == 0 => f.write_str(name)?,
                Step::Field(name) => write!(f, ".{name}")?,
                Step::Element(identity) => {
                    f.write_char('[')?;
                    for (position, value) in identity.values().enumerate() {
                        if position > 0 {
                            f.write_char(',')?;
                        }
                        match value {
                            Value::String(text) => f.write_str(text)?,
                            other => write!(f, "{other}")?,
                        }
                    }
                    f.write_char(']')?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
