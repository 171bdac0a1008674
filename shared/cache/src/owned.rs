//! Drift detection: which part of a live object is ours, and how it differs from the desired object. Pure functions.
//!
//! For each field manager, the API server keeps the set of fields that it owns (`metadata.managedFields`). When another
//! manager changes or removes a field of ours, the API server takes the field out of our set. So the live object *projected
//! onto our set* shows exactly whether our fields still have the values that we wrote. The cache keeps only a hash of that
//! projection, the [`fingerprint`]: 8 bytes instead of an object.
//!
//! - A child that we created by POST has one entry of ours, operation `Update`, with the fields that we sent **and** those
//!   that the API server defaulted. Its projection equals the desired object with defaults filled in.
//! - A child that we changed by server-side apply has one entry, operation `Apply`, with the fields that we sent. Its
//!   projection equals the desired object.
//!
//! If the hashes are equal, the child is in sync. If they differ, the live object is read once and [`compare`]d field by
//! field. That comparison also recognises different notations of one value (`1000m` and `1`).
//!
//! An absent field never counts as an empty one: a removed `automountServiceAccountToken: false` would default to true. Only
//! the API server knows which fields of the desired object it drops, and what admission changes in it. A dry run finds that
//! out (`context::apply`).

use serde_json::Value;
use xxhash_rust::xxh3::Xxh3;

use crate::object::ManagedFields;

mod json_patch;
mod owned_fields;
mod path;
mod unclaimed;

pub use json_patch::{dry_run_operations, exchange_alternatives, json_patch};
pub use owned_fields::{OwnedFields, merge};
pub use path::Path;
pub use unclaimed::{Writers, unclaimed};

use path::Step;

/// The result of our entries in `managedFields` for one live object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fingerprint {
    /// Hash of the live object projected onto the fields that we own; 0 when we own none.
    pub hash: u64,
    /// One of our entries stems from a create and also owns defaulted fields.
    pub from_create: bool,
}

impl Fingerprint {
    /// Whether any field of the object is ours.
    pub fn is_some(self) -> bool {
        self.hash != 0
    }
}

/// One difference between the live object and the desired one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The path from the root of the object.
    pub path: Path,
    /// The live value; `None` when the field is absent.
    pub live: Option<Value>,
    /// The desired value; `None` when the field has to go: it is ours and no longer wanted, or excludes one that we want.
    pub desired: Option<Value>,
}

/// Lists whose elements have an identity: the name of the list, and the keys that identify an element. Other lists are
/// compared as a whole. That is exact too, but reports the list instead of the element.
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

/// The fingerprint of `live` for the field manager `manager`. `entries` are the object's `managedFields`.
pub fn fingerprint(live: &Value, manager: &str, entries: &[ManagedFields<'_>]) -> Fingerprint {
    match OwnedFields::of(manager, entries) {
        None => Fingerprint::default(),
        Some(fields) => Fingerprint { hash: hash(&fields.project(live)), from_create: fields.from_create },
    }
}

/// A hash of a JSON value. It does not depend on the order of keys.
pub fn hash(value: &Value) -> u64 {
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

/// All differences between `live` and `desired`. Also those fields of ours that are in neither `desired` nor `defaulted`, and so
/// have to go. `owned` is the projection of `live` onto our fields; `defaulted` is `desired` with the API server's defaults.
pub fn compare(live: &Value, owned: &Value, desired: &Value, defaulted: &Value) -> Vec<Change> {
    let mut changes = Vec::new();
    missing(live, desired, &Path::default(), &mut changes);
    let mut more = Vec::new();
    dropped(owned, defaulted, &Path::default(), &mut more);
    // Both find the field that an alternative replaces, with and without the API server's defaults in it.
    more.retain(|change| !changes.iter().any(|other| other.path == change.path));
    changes.append(&mut more);
    changes
}

/// Whether we own every field of `desired` that is in `live`. `owned` is our part of `live`.
///
/// A field that another manager owns has to be taken back even when it has the right value. Otherwise the next change of
/// it would not change our part, and would go unnoticed.
pub fn covers(live: &Value, owned: &Value, desired: &Value) -> bool {
    covered(live, owned, desired, &Path::default())
}

fn covered(live: &Value, owned: &Value, desired: &Value, at: &Path) -> bool {
    match (live, owned, desired) {
        (Value::Object(live), Value::Object(have), Value::Object(want)) => {
            want.iter().all(|(name, wanted)| match (live.get(name), have.get(name)) {
                (None, _) => true, // `compare` reports it
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
    if live == desired || (at.is_quantity() && workloads::quantity::same(live, desired)) {
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

/// How to identify the elements of a list that is not compared as a whole.
#[derive(Debug, Clone, Copy)]
enum Elements {
    /// By the values of these fields.
    Keyed(&'static [&'static str]),
    /// By the whole value: the list is a set of strings.
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

    /// The element of `items` with the identity of `item`.
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

/// The value of an element's key. A missing `protocol` is `TCP`.
fn key_of(item: &Value, key: &str) -> Option<Value> {
    item.get(key).cloned().or_else(|| (key == "protocol").then(|| "TCP".into()))
}

/// The field manager other than `ours` that owns the field at `path`, and so has changed it.
pub fn holder<'a>(path: &Path, ours: &str, entries: &'a [ManagedFields<'_>]) -> Option<&'a str> {
    entries.iter().filter(|entry| entry.manager != ours).find(|entry| holds(entry, path)).map(|entry| &*entry.manager)
}

/// Whether this field manager owns the field at `path`.
pub fn is_held_by(path: &Path, manager: &str, entries: &[ManagedFields<'_>]) -> bool {
    entries.iter().any(|entry| entry.manager == manager && holds(entry, path))
}

fn holds(entry: &ManagedFields<'_>, path: &Path) -> bool {
    let fields = entry.fields.and_then(|fields| serde_json::from_str::<Value>(fields.get()).ok());
    fields.is_some_and(|fields| path.is_in(&fields))
}

#[cfg(test)]
mod tests;
