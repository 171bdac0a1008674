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
//!
//! An absent field is never taken for an empty one: behind `automountServiceAccountToken: false` stands another default.
//! What this API server does not keep of the desired object, and what admission makes of it, only the API server knows:
//! it is asked by a dry run (`context::apply`).

use std::{cell::OnceCell, fmt::Write};

use serde_json::{Map, Value, value::RawValue};
use xxhash_rust::xxh3::Xxh3;

use crate::object::ManagedFields;

mod edit;

pub(crate) use edit::{edit, make_room, rehearsal};

/// What our entries in `managedFields` say about one live object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Fingerprint {
    /// Hash of the live object projected onto the fields that we own; 0 when we own none.
    pub(crate) hash: u64,
    /// One of our entries stems from a create and owns defaulted fields too.
    pub(crate) from_create: bool,
}

impl Fingerprint {
    /// Whether anything in the object is ours.
    pub(crate) fn is_some(self) -> bool {
        self.hash != 0
    }
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
    /// An element of a set.
    Member(Value),
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

/// What one field manager owns of an object.
#[derive(Debug)]
pub(crate) struct Share<'a> {
    /// In the format of `fieldsV1`.
    fields: Value,
    /// One entry stems from a create (or another update) and owns defaulted fields too.
    pub(crate) from_create: bool,
    /// What the others own. Read only if it matters: most of the time it does not.
    others: Vec<&'a RawValue>,
    others_read: OnceCell<Vec<Value>>,
}

impl<'a> Share<'a> {
    /// The entries of `manager` on the main resource, merged into one field set. `None` when there are none: then
    /// nothing that is in the object counts as ours.
    pub(crate) fn of(manager: &str, entries: &[ManagedFields<'a>]) -> Option<Self> {
        let mut merged: Option<Value> = None;
        let (mut from_create, mut others) = (false, Vec::new());
        for entry in entries {
            let Some(raw) = entry.fields else { continue };
            if entry.manager != manager {
                others.extend((entry.subresource != "status").then_some(raw));
                continue;
            }
            let fields = serde_json::from_str::<Value>(raw.get()).ok();
            let Some(fields) = fields.filter(|_| entry.subresource.is_empty()) else { continue };
            from_create |= entry.operation == "Update";
            match &mut merged {
                None => merged = Some(fields),
                Some(all) => unite(all, fields),
            }
        }
        merged.map(|fields| Self { fields, from_create, others, others_read: OnceCell::new() })
    }

    /// The field set.
    pub(crate) fn into_fields(self) -> Value {
        self.fields
    }

    /// The part of `live` that is in this share.
    pub(crate) fn project(&self, live: &Value) -> Value {
        self.project_below(live, &self.fields, &mut Vec::new())
    }

    fn project_below<'b>(&'b self, live: &Value, fields: &'b Value, way: &mut Vec<&'b str>) -> Value {
        let Some(fields) = fields.as_object().filter(|fields| !fields.is_empty()) else { return self.leaf(live, way) };
        match live {
            Value::Object(map) => {
                let mut out = Map::new();
                for (name, inner) in fields {
                    let Some(field) = name.strip_prefix("f:") else { continue };
                    if let Some(value) = map.get(field) {
                        way.push(name);
                        out.insert(field.to_owned(), self.project_below(value, inner, way));
                        way.pop();
                    }
                }
                Value::Object(out)
            }
            Value::Array(items) => {
                let mut out = Vec::new();
                for (index, item) in items.iter().enumerate() {
                    let found = fields.iter().find(|(selector, _)| selects(selector, index, item));
                    if let Some((selector, inner)) = found {
                        way.push(selector);
                        out.push(self.project_below(item, inner, way));
                        way.pop();
                    }
                }
                Value::Array(out)
            }
            scalar => scalar.clone(),
        }
    }

    /// A value that our set names without anything below: all of it, if the value is atomic. If others own something
    /// below, then it is a map or list that we left empty, and what they put there is theirs.
    fn leaf(&self, live: &Value, way: &[&str]) -> Value {
        let mut kept = live.clone();
        let holds_something = match live {
            Value::Object(map) => !map.is_empty(),
            Value::Array(items) => !items.is_empty(),
            _ => false,
        };
        if holds_something {
            let read = || self.others.iter().filter_map(|raw| serde_json::from_str(raw.get()).ok()).collect();
            for other in self.others_read.get_or_init(read) {
                let below = way.iter().try_fold(other, |at, step| at.get(*step)).and_then(Value::as_object);
                if let Some(below) = below {
                    take_out(&mut kept, below);
                }
            }
        }
        kept
    }
}

/// Takes the fields and elements that `fields` names out of `value`.
fn take_out(value: &mut Value, fields: &Map<String, Value>) {
    match value {
        Value::Object(map) => map.retain(|name, _| !fields.contains_key(&format!("f:{name}"))),
        Value::Array(items) => {
            let mut index = 0..;
            items.retain(|item| {
                let index = index.next().unwrap_or_default();
                !fields.keys().any(|selector| selects(selector, index, item))
            });
        }
        _ => {}
    }
}

/// The fingerprint of `live` for `manager`.
pub(crate) fn fingerprint(live: &Value, manager: &str, entries: &[ManagedFields<'_>]) -> Fingerprint {
    match Share::of(manager, entries) {
        None => Fingerprint::default(),
        Some(share) => Fingerprint { hash: hash(&share.project(live)), from_create: share.from_create },
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
    let mut more = Vec::new();
    dropped(owned, defaulted, &Path::default(), &mut more);
    more.retain(|change| !changes.contains(change));
    changes.append(&mut more);
    changes
}

/// Whether every field of `desired` that is in `live` is among `owned`, our part of it.
///
/// A field that another manager holds has to be taken back even when it has the right value: the next change of it
/// would leave our part as it is, and so go unnoticed.
pub(crate) fn covers(live: &Value, owned: &Value, desired: &Value) -> bool {
    covered(live, owned, desired, &Path::default())
}

fn covered(live: &Value, owned: &Value, desired: &Value, at: &Path) -> bool {
    match (live, owned, desired) {
        (Value::Object(live), Value::Object(have), Value::Object(want)) => {
            want.iter().all(|(name, wanted)| match (live.get(name), have.get(name)) {
                (None, _) => true, // compared elsewhere
                (Some(live), Some(value)) => covered(live, value, wanted, &at.field(name)),
                (Some(_), None) => false,
            })
        }
        (Value::Array(live), Value::Array(have), Value::Array(want)) => match Elements::at(at, want) {
            None => true,
            Some(elements) => {
                want.iter().all(|wanted| match (elements.find(live, wanted), elements.find(have, wanted)) {
                    (None, _) => true,
                    (Some(live), Some(item)) => covered(live, item, wanted, &elements.path(at, wanted)),
                    (Some(_), None) => false,
                })
            }
        },
        (_, Value::Null, wanted) => wanted.is_null(),
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
                    None if wanted.is_null() => {}
                    None => changes.push(Change { path, live: None, desired: Some(wanted.clone()) }),
                }
            }
            if want.keys().any(|name| at.field(name).is_alternative()) {
                let others = have.iter().filter(|(name, _)| !want.contains_key(*name));
                for (name, value) in others.filter(|(name, _)| at.field(name).is_alternative()) {
                    changes.push(Change { path: at.field(name), live: Some(value.clone()), desired: None });
                }
            }
        }
        (Value::Array(have), Value::Array(want)) if Elements::at(at, want).is_some() => {
            let elements = Elements::at(at, want).unwrap_or(Elements::Scalars);
            for wanted in want {
                let path = elements.path(at, wanted);
                match elements.find(have, wanted) {
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
                    None => changes.push(Change { path, live: Some(value.clone()), desired: None }),
                }
            }
        }
        (Value::Array(have), Value::Array(want)) => {
            let Some(elements) = Elements::at(at, have) else { return };
            for item in have {
                let path = elements.path(at, item);
                match elements.find(want, item) {
                    Some(wanted) => dropped(item, wanted, &path, changes),
                    None => changes.push(Change { path, live: Some(item.clone()), desired: None }),
                }
            }
        }
        _ => {}
    }
}

/// How the elements of a list that is not one value are told apart.
#[derive(Debug, Clone, Copy)]
enum Elements {
    /// By the values of these fields.
    Keyed(&'static [&'static str]),
    /// They are what they are: a set of texts.
    Scalars,
}

impl Elements {
    fn at(at: &Path, items: &[Value]) -> Option<Self> {
        let Some(Step::Field(name)) = at.0.last() else { return None };
        if name == "finalizers" && at.0.len() == 2 {
            return Some(Self::Scalars);
        }
        let named = KEYED_LISTS.iter().filter(|(list, _)| list == name).map(|(_, keys)| *keys);
        let fits = |keys: &&[&str]| items.iter().all(|item| keys.first().is_some_and(|key| item.get(key).is_some()));
        named.into_iter().find(fits).map(Self::Keyed)
    }

    /// The element of `items` that is the same as `item`.
    fn find<'a>(self, items: &'a [Value], item: &Value) -> Option<&'a Value> {
        items.iter().find(|it| match self {
            Self::Scalars => *it == item,
            Self::Keyed(keys) => keys.iter().all(|key| key_of(it, key) == key_of(item, key)),
        })
    }

    fn path(self, at: &Path, item: &Value) -> Path {
        let mut steps = at.0.clone();
        steps.push(match self {
            Self::Scalars => Step::Member(item.clone()),
            Self::Keyed(keys) => {
                let identity = keys.iter().filter_map(|key| Some(((*key).to_owned(), key_of(item, key)?)));
                Step::Element(identity.collect())
            }
        });
        Path(steps)
    }
}

/// The value of a key of an element, which for a protocol has a default.
fn key_of(item: &Value, key: &str) -> Option<Value> {
    item.get(key).cloned().or_else(|| (key == "protocol").then(|| "TCP".into()))
}

/// Quantities are normalised by the API server: `1000m` is stored as `1`.
fn same_quantity(live: &Value, desired: &Value) -> bool {
    match (quantity(live), quantity(desired)) {
        (Some(a), Some(b)) => (a - b).abs() <= f64::EPSILON * a.abs().max(b.abs()),
        _ => false,
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

    /// Whether a field stands here of which an object may have only one: the sources of a volume, the value of a
    /// variable, the handlers of a probe. With two of them the API server refuses the object.
    fn is_alternative(&self) -> bool {
        match self.0.as_slice() {
            [.., Step::Field(list), Step::Element(_), Step::Field(name)] => match &**list {
                "volumes" => name != "name",
                "env" => matches!(&**name, "value" | "valueFrom"),
                _ => false,
            },
            [.., Step::Field(of), Step::Field(name)] => {
                matches!(&**of, "livenessProbe" | "readinessProbe" | "startupProbe" | "preStop" | "postStart")
                    && matches!(&**name, "exec" | "grpc" | "httpGet" | "sleep" | "tcpSocket")
            }
            _ => false,
        }
    }

    /// Whether both are fields of the same object.
    fn is_beside(&self, other: &Self) -> bool {
        let parent = |path: &Self| path.0.split_last().map(|(_, parent)| parent.to_vec());
        parent(self) == parent(other)
    }

    /// Only where a quantity stands may `1000m` equal `1`: in an argument or an image tag they differ.
    fn is_quantity(&self) -> bool {
        match self.0.as_slice() {
            [.., Step::Field(of), Step::Field(list), Step::Field(_)] if of == "resources" => {
                matches!(&**list, "limits" | "requests")
            }
            [.., Step::Field(of), Step::Field(last)] => of == "emptyDir" && last == "sizeLimit",
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
                Step::Member(value) => map.get(&format!("v:{value}")),
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
                Step::Member(Value::String(text)) => write!(f, "[{text}]")?,
                Step::Member(other) => write!(f, "[{other}]")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
