//! Field ownership: maintains `metadata.managedFields` through every kind of write. Pure.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::{
    fields::FieldSet,
    refusal::Refusal,
    shape::Shape,
    step::{Step, display},
    typed::{self, Comparison},
};

/// The identity of one entry in `managedFields`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Manager {
    pub(crate) name: String,
    pub(crate) applies: bool,
    /// The API version. Empty for an applier, which has one entry for all versions.
    pub(crate) api_version: String,
    pub(crate) subresource: String,
}

/// The fields that a manager owns.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    api_version: String,
    fields: FieldSet,
    time: Option<String>,
}

/// The decoded `managedFields` of one object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Managed {
    entries: BTreeMap<Manager, Entry>,
}

/// The facts about a write that are needed to update `managedFields`.
pub(crate) struct Writing<'a> {
    pub(crate) shape: &'a Shape,
    pub(crate) manager: &'a str,
    pub(crate) api_version: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) now: &'a str,
    /// The places at which an object does not match its schema, so that ownership cannot be computed.
    pub(crate) untyped: &'a dyn Fn(&Value) -> Vec<String>,
    /// Reduces a set to the fields that this endpoint can change.
    pub(crate) filter: &'a dyn Fn(&FieldSet) -> FieldSet,
}

impl Managed {
    /// Reads the entries of an object; `None` if one of them is not valid.
    pub(crate) fn read(entries: &[Value]) -> Option<Self> {
        let mut out = Self::default();
        for entry in entries {
            let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
            let applies = match entry["operation"].as_str() {
                Some("Apply") => true,
                Some("Update") => false,
                _ => return None,
            };
            let api_version = text("apiVersion");
            if entry["fieldsType"] != "FieldsV1" || api_version.is_empty() {
                return None;
            }
            let manager = Manager {
                name: text("manager"),
                applies,
                api_version: if applies { String::new() } else { api_version.clone() },
                subresource: text("subresource"),
            };
            let time = entry["time"].as_str().map(str::to_owned);
            out.entries.insert(manager, Entry { api_version, fields: FieldSet::read(&entry["fieldsV1"]), time });
        }
        Some(out)
    }

    fn of(object: &Value) -> Self {
        let entries = object.pointer("/metadata/managedFields").and_then(Value::as_array);
        entries.and_then(|entries| Self::read(entries)).unwrap_or_default()
    }

    /// The entries to continue with: those of the request if it has any, else those of the live object.
    fn carried(live: &Value, new: &Value, subresource: &str) -> Self {
        if !subresource.is_empty() {
            return Self::of(live);
        }
        match new.pointer("/metadata/managedFields").and_then(Value::as_array) {
            Some(entries) if entries.is_empty() || *entries == [json!({})] => Self::default(),
            Some(entries) => match Self::read(entries) {
                Some(managed) if !managed.entries.is_empty() => managed,
                _ => Self::of(live),
            },
            None => Self::of(live),
        }
    }

    /// Writes the entries into an object.
    fn write(&self, object: &mut Value) {
        Self::write_all(self.entries.iter().collect(), object);
    }

    fn write_all(mut entries: Vec<(&Manager, &Entry)>, object: &mut Value) {
        entries.sort_by_key(|(manager, entry)| {
            let time = (entry.time.is_none(), &entry.time);
            (!manager.applies, time, &manager.name, &entry.api_version, &manager.subresource)
        });
        let entries = entries.into_iter().map(|(manager, entry)| {
            let mut out = Map::new();
            out.insert("manager".to_owned(), json!(manager.name));
            out.insert("operation".to_owned(), json!(if manager.applies { "Apply" } else { "Update" }));
            out.insert("apiVersion".to_owned(), json!(entry.api_version));
            if let Some(time) = &entry.time {
                out.insert("time".to_owned(), json!(time));
            }
            out.insert("fieldsType".to_owned(), json!("FieldsV1"));
            out.insert("fieldsV1".to_owned(), entry.fields.write());
            if !manager.subresource.is_empty() {
                out.insert("subresource".to_owned(), json!(manager.subresource));
            }
            Value::Object(out)
        });
        let entries: Vec<Value> = entries.collect();
        if entries.is_empty() {
            without_entries(object);
        } else {
            object["metadata"]["managedFields"] = Value::Array(entries);
        }
    }

    /// Takes changed and removed fields from all other managers. Unless forced, refuses to change a field that another manager
    /// owns.
    fn settle(&mut self, compared: &Comparison, except: &Manager, force: bool) -> Result<(), Refusal> {
        let changed = compared.modified.union(&compared.added);
        let others = |manager: &Manager| manager != except;
        let conflicts: Vec<(Manager, FieldSet)> = self
            .entries
            .iter()
            .filter(|(manager, _)| others(manager))
            .map(|(manager, entry)| (manager.clone(), entry.fields.intersection(&changed)))
            .filter(|(_, fields)| !fields.is_empty())
            .collect();
        if !force && !conflicts.is_empty() {
            return Err(refuse(&conflicts));
        }
        for (manager, fields) in conflicts {
            if let Some(entry) = self.entries.get_mut(&manager) {
                entry.fields = entry.fields.difference(&fields);
            }
        }
        for (manager, entry) in &mut self.entries {
            if others(manager) {
                entry.fields = entry.fields.difference(&compared.removed);
            }
        }
        self.entries.retain(|manager, entry| manager == except || !entry.fields.is_empty());
        Ok(())
    }
}

/// Removes the entries from an object.
pub(crate) fn without_entries(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

/// Updates the entries after a POST, a PUT or a patch other than apply. `live` is an empty object for a create.
pub(crate) fn update(live: &Value, new: &mut Value, writing: &Writing<'_>) {
    let mut books = Managed::carried(live, new, writing.subresource);
    let created = live.pointer("/metadata/uid").is_none();
    if books.entries.is_empty() && !created {
        without_entries(new);
        return; // this object has no ownership records
    }
    let mut before = live.clone();
    without_entries(&mut before);
    without_entries(new);
    if [&before, &*new].iter().any(|object| !(writing.untyped)(object).is_empty()) {
        return;
    }
    record(&mut books, &before, new, writing);
    books.write(new);
}

fn record(books: &mut Managed, live: &Value, new: &Value, writing: &Writing<'_>) {
    let manager = Manager {
        name: name_or_unknown(writing.manager),
        applies: false,
        api_version: writing.api_version.to_owned(),
        subresource: writing.subresource.to_owned(),
    };
    let compared = Comparison::of(live, new, writing.shape).filter(writing.filter);
    // The write takes fields also from the entry with which its own entry is merged afterwards.
    let operation = Manager { name: "\u{0}".to_owned(), ..manager.clone() };
    drop(books.settle(&compared, &operation, true));
    let fields = strip(&(writing.filter)(&compared.modified.union(&compared.added)));
    if fields.is_empty() {
        return;
    }
    let before = books.entries.remove(&manager).map(|entry| entry.fields).unwrap_or_default();
    let entry = Entry {
        api_version: writing.api_version.to_owned(),
        fields: before.union(&fields),
        time: Some(writing.now.to_owned()),
    };
    books.entries.insert(manager, entry);
}

/// Updates the entries of an object after a write of its scale. `of` is the field that the replicas of the scale represent.
///
/// A scale has its own `managedFields`, in its own API version. So the manager that last updated the replicas gets another entry
/// for them, without a time, even if the write changes nothing.
pub(crate) fn scale(object: &mut Value, of: &FieldSet, before: &Value, view: &mut Value, writing: &Writing<'_>) {
    const VERSION: &str = "autoscaling/v1";
    let parent = Managed::of(object);
    let replicas = FieldSet::read(&json!({"f:spec": {"f:replicas": {}}}));
    let has = |entry: &Entry| !entry.fields.intersection(of).is_empty();
    let in_scale = |manager: &Manager| Manager {
        api_version: if manager.applies { String::new() } else { VERSION.to_owned() },
        ..manager.clone()
    };
    let mut books = Managed::default();
    for (manager, entry) in parent.entries.iter().filter(|(_, entry)| has(entry)) {
        let entry = Entry { api_version: VERSION.to_owned(), fields: replicas.clone(), time: entry.time.clone() };
        books.entries.insert(in_scale(manager), entry);
    }
    let mut before = before.clone();
    books.write(&mut before);
    update(
        &before,
        view,
        &Writing {
            api_version: VERSION,
            shape: &Shape::Plain,
            untyped: &|_| Vec::new(),
            filter: &FieldSet::clone,
            ..*writing
        },
    );
    let mut of_scale = Managed::of(view).entries;
    of_scale.retain(|_, entry| !entry.fields.intersection(&replicas).is_empty());
    let mut out: Vec<(Manager, Entry)> = Vec::new();
    for (manager, mut entry) in parent.entries {
        if has(&entry) && of_scale.remove(&manager).is_none() {
            entry.fields = entry.fields.difference(of);
            if entry.fields.is_empty() {
                continue;
            }
        }
        out.push((manager, entry));
    }
    for manager in of_scale.into_keys() {
        let api_version = writing.api_version.to_owned();
        out.push((manager, Entry { api_version, fields: of.clone(), time: None }));
    }
    Managed::write_all(out.iter().map(|(manager, entry)| (manager, entry)).collect(), object);
}

/// Returns the result of a server-side apply to `live` (an empty object if there is none), with its entries.
pub(crate) fn apply(
    live: &Value,
    config: &Value,
    untyped: &[String],
    force: bool,
    writing: &Writing<'_>,
) -> Result<Value, Refusal> {
    let mut books = Managed::of(live);
    let mut before = live.clone();
    without_entries(&mut before);
    if books.entries.is_empty() && live.pointer("/metadata/uid").is_some() {
        let empty = json!({"apiVersion": live["apiVersion"], "kind": live["kind"]});
        let first = Writing { manager: "before-first-apply", ..*writing };
        record(&mut books, &empty, &before, &first);
    }
    let broken = |which: &str, error: String| {
        let name = config.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let namespace = config.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
        let (version, kind) = (writing.api_version, config["kind"].as_str().unwrap_or_default());
        Refusal::internal(format!(
            "failed to create typed {which} object ({namespace}/{name}; {version}, Kind={kind}): {error}"
        ))
    };
    for (which, wrong) in [("patch", untyped), ("live", &(writing.untyped)(&before))] {
        match wrong {
            [] => {}
            [one] => return Err(broken(which, one.clone())),
            many => return Err(broken(which, format!("errors:\n  {}", many.join("\n  ")))),
        }
    }
    let merged = typed::merge(&before, config, writing.shape).map_err(|error| broken("patch", error))?;
    let manager = Manager {
        name: name_or_unknown(writing.manager),
        applies: true,
        api_version: String::new(),
        subresource: writing.subresource.to_owned(),
    };
    let last = books.entries.get(&manager).cloned();
    let fields = (writing.filter)(&typed::field_set(config, writing.shape));
    let time = last.as_ref().and_then(|entry| entry.time.clone());
    books.entries.insert(manager.clone(), Entry { api_version: writing.api_version.to_owned(), fields, time });
    let mut new = match last {
        Some(last) if !last.fields.is_empty() => prune(&merged, &books, &last.fields, writing.shape),
        _ => merged,
    };
    let compared = Comparison::of(&before, &new, writing.shape).filter(writing.filter);
    books.settle(&compared, &manager, force)?;
    if let Some(entry) = books.entries.get_mut(&manager) {
        entry.fields = strip(&entry.fields);
        if new != before {
            entry.time = Some(writing.now.to_owned());
        }
        if entry.fields.is_empty() {
            books.entries.remove(&manager);
        }
    }
    books.write(&mut new);
    Ok(new)
}

/// Removes the fields that this manager applied before and does not apply now, unless another manager owns them too.
fn prune(merged: &Value, books: &Managed, last: &FieldSet, shape: &Shape) -> Value {
    let named = |set: &FieldSet| set.with_named_fields(shape);
    let all = named(&typed::field_set(merged, shape));
    let pruned = typed::remove(merged, &named(last), shape);
    let owned = books.entries.values().fold(FieldSet::default(), |all, entry| all.union(&entry.fields));
    let kept = named(&typed::field_set(&pruned, shape)).union(&named(&owned));
    let pruned = typed::remove(merged, &all.difference(&kept), shape);
    let left = named(&typed::field_set(&pruned, shape));
    typed::remove(merged, &all.difference(&left).intersection(&named(last)), shape)
}

/// The fields that no manager can own.
fn strip(fields: &FieldSet) -> FieldSet {
    fields.difference(&FieldSet::read(&json!({
        "f:apiVersion": {}, "f:kind": {},
        "f:metadata": {
            ".": {}, "f:name": {}, "f:namespace": {}, "f:creationTimestamp": {}, "f:selfLink": {}, "f:uid": {},
            "f:clusterName": {}, "f:generation": {}, "f:managedFields": {}, "f:resourceVersion": {},
        },
    })))
}

fn name_or_unknown(name: &str) -> String {
    if name.is_empty() { "unknown".to_owned() } else { name.to_owned() }
}

fn refuse(conflicts: &[(Manager, FieldSet)]) -> Refusal {
    let mut conflicts: Vec<&(Manager, FieldSet)> = conflicts.iter().collect();
    conflicts.sort_by_key(|(manager, _)| manager.identifier());
    let by_manager: Vec<(String, Vec<Vec<Step>>)> =
        conflicts.into_iter().map(|(manager, fields)| (manager.describe(), fields.paths())).collect();
    let causes: Vec<Value> = by_manager
        .iter()
        .flat_map(|(manager, paths)| paths.iter().map(move |path| (manager, path)))
        .map(|(manager, path)| {
            let message = format!("conflict with {manager}");
            json!({"reason": "FieldManagerConflict", "message": message, "field": display(path)})
        })
        .collect();
    let message = match &*by_manager {
        [(manager, paths)] if paths.len() == 1 => {
            format!("Apply failed with 1 conflict: conflict with {manager}: {}", display(&paths[0]))
        }
        _ => {
            let mut lines = Vec::new();
            for (manager, paths) in &by_manager {
                lines.push(format!("conflicts with {manager}:"));
                lines.extend(paths.iter().map(|path| format!("- {}", display(path))));
            }
            format!("Apply failed with {} conflicts: {}", causes.len(), lines.join("\n"))
        }
    };
    Refusal::new(409, "Conflict", message).with("causes", Value::Array(causes))
}

impl Manager {
    /// The sort key of managers.
    fn identifier(&self) -> String {
        let mut parts = vec![format!("{:?}:{:?}", "manager", self.name)];
        let operation = if self.applies { "Apply" } else { "Update" };
        parts.push(format!("{:?}:{operation:?}", "operation"));
        for (name, value) in [("apiVersion", &self.api_version), ("subresource", &self.subresource)] {
            if !value.is_empty() {
                parts.push(format!("{name:?}:{value:?}"));
            }
        }
        format!("{{{}}}", parts.join(","))
    }

    fn describe(&self) -> String {
        let mut out = format!("{:?}", self.name);
        if !self.subresource.is_empty() {
            out = format!("{out} with subresource {:?}", self.subresource);
        }
        if !self.applies {
            out = format!("{out} using {}", self.api_version);
        }
        out
    }
}
