//! The part of an object that one field manager owns, according to `metadata.managedFields`.

use std::cell::OnceCell;

use serde_json::{Map, Value, value::RawValue};

use crate::object::ManagedFields;

/// What one field manager owns of an object.
#[derive(Debug)]
pub struct OwnedFields<'a> {
    /// In the format of `fieldsV1`.
    fields: Value,
    /// One entry stems from a create (or another update) and also owns defaulted fields.
    pub from_create: bool,
    /// The field sets of other managers. Parsed only when needed, which is rare.
    others: Vec<&'a RawValue>,
    others_read: OnceCell<Vec<Value>>,
}

impl<'a> OwnedFields<'a> {
    /// Merges the entries of `manager` on the main resource into one field set. `None` when there are none: then no field of
    /// the object is ours.
    pub fn of(manager: &str, entries: &[ManagedFields<'a>]) -> Option<Self> {
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
                Some(all) => merge(all, fields),
            }
        }
        merged.map(|fields| Self { fields, from_create, others, others_read: OnceCell::new() })
    }

    /// The field set.
    pub fn into_fields(self) -> Value {
        self.fields
    }

    /// The part of `live` in this set.
    pub fn project(&self, live: &Value) -> Value {
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

    /// Our part of a value that our set names without fields below it. An atomic value is ours as a whole. If other managers
    /// own fields below it, we left a map or list empty, and those fields are theirs.
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

/// Removes the fields and elements that `fields` names from `value`.
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

/// Whether a selector of a field set (`k:{…}`, `v:…` or `i:…`) matches this element.
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

/// Adds the fields of the field set `more` to `all`.
pub fn merge(all: &mut Value, more: Value) {
    let (Value::Object(all), Value::Object(more)) = (all, more) else { return };
    for (key, value) in more {
        match all.get_mut(&key) {
            Some(existing) => merge(existing, value),
            None => {
                all.insert(key, value);
            }
        }
    }
}
