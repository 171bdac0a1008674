//! Shapes: how objects of a kind merge, for instance which lists have keys and which maps are atomic. Pure.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, LazyLock},
};

use serde_json::{Map, Value};

use crate::step::{Step, keyed, valued};

/// The structure of a value, as far as merging and ownership depend on it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Shape {
    /// A built-in type without special merging: objects have named fields, lists are atomic.
    Plain,
    /// Unknown structure: objects are maps, lists are atomic.
    Free,
    /// One atomic value.
    Atomic,
    /// An object with named fields. Unlisted fields have the shape `rest`.
    Struct { fields: Arc<BTreeMap<String, Self>>, rest: Rest },
    /// An object whose keys are data.
    Map(Arc<Self>),
    /// A list of distinct scalars.
    Set,
    /// A list whose items have these fields as keys.
    Keyed { keys: Arc<[(String, Option<Value>)]>, element: Arc<Self> },
}

/// The treatment of the unlisted fields of a struct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// Named fields without special merging, which the table omits.
    Plain,
    /// Keys of a map.
    Free,
    /// Not allowed.
    Closed,
}

/// The classification of a value at its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Leaf,
    Object,
    List,
}

static PLAIN: Shape = Shape::Plain;
static FREE: Shape = Shape::Free;

impl Shape {
    /// The shape of a field, and whether it is a named field.
    pub(crate) fn field(&self, name: &str) -> (&Self, bool) {
        match self {
            Self::Plain => (&PLAIN, true),
            Self::Struct { fields, rest } => match (fields.get(name), rest) {
                (Some(shape), _) => (shape, true),
                (None, Rest::Plain) => (&PLAIN, true),
                (None, Rest::Free | Rest::Closed) => (&FREE, false),
            },
            Self::Map(element) => (element, false),
            _ => (&FREE, false),
        }
    }

    /// The shape of a list's items.
    pub(crate) fn element(&self) -> &Self {
        match self {
            Self::Keyed { element, .. } => element,
            _ => &FREE,
        }
    }

    pub(crate) fn class(&self, value: &Value) -> Class {
        match (value, self) {
            (Value::Object(_), Self::Atomic) => Class::Leaf,
            (Value::Object(_), _) => Class::Object,
            (Value::Array(_), Self::Set | Self::Keyed { .. }) => Class::List,
            _ => Class::Leaf,
        }
    }

    /// The step to an item of a list of this shape.
    ///
    /// # Errors
    ///
    /// The item has no valid keys. The message is that of the real server.
    pub(crate) fn step(&self, item: &Value) -> Result<Step, String> {
        match self {
            Self::Set => match item {
                Value::Object(_) | Value::Array(_) | Value::Null => {
                    Err("associative list without keys has an element that's not a scalar".to_owned())
                }
                scalar => Ok(valued(scalar)),
            },
            Self::Keyed { keys, .. } => {
                let Value::Object(item) = item else {
                    return Err("associative list with keys may not have non-map elements".to_owned());
                };
                let mut found = Map::new();
                for (key, default) in keys.iter() {
                    if let Some(value) = item.get(key).or(default.as_ref()) {
                        found.insert(key.clone(), value.clone());
                    }
                }
                if found.is_empty() {
                    let names: Vec<&str> = keys.iter().map(|(key, _)| key.as_str()).collect();
                    return Err(format!(
                        "associative list with keys has an element that omits all key fields {names:?} (and doesn't \
                         have default values for any key fields)"
                    ));
                }
                Ok(keyed(found))
            }
            _ => Err("not an associative list".to_owned()),
        }
    }

    /// The shape of a built-in type; [`Shape::Plain`] for a type without special merging.
    pub(crate) fn builtin(name: &str) -> Self {
        BUILTIN.get(name).cloned().unwrap_or(Self::Plain)
    }

    /// The shape of every object's `metadata`.
    pub(crate) fn metadata() -> Self {
        Self::builtin("ObjectMeta")
    }

    /// The shape of a custom resource with these fields.
    pub(crate) fn custom(fields: BTreeMap<String, Self>, rest: Rest) -> Self {
        Self::Struct { fields: Arc::new(fields), rest }
    }

    /// The first field of a value that its shape does not allow.
    pub(crate) fn undeclared(&self, value: &Value) -> Option<String> {
        match (value, self) {
            (Value::Object(map), Self::Struct { .. } | Self::Map(_)) => map.iter().find_map(|(name, value)| {
                let closed = matches!(self, Self::Struct { fields, rest: Rest::Closed } if !fields.contains_key(name));
                if closed {
                    return Some(format!(".{name}"));
                }
                self.field(name).0.undeclared(value).map(|below| format!(".{name}{below}"))
            }),
            (Value::Array(items), Self::Keyed { element, .. }) => items.iter().find_map(|item| {
                let below = element.undeclared(item)?;
                let step = self.step(item).map(|step| crate::step::display(&[step])).unwrap_or_default();
                Some(format!("{step}{below}"))
            }),
            _ => None,
        }
    }
}

/// The type schema of Kubernetes 1.36 (`client-go/applyconfigurations/internal`), one type per line. It lists only fields with
/// special merging: `=T` has type T, `*` is a map, `!` is atomic, `[]` is a set, `[key:default]` is a keyed list.
static BUILTIN: LazyLock<HashMap<&'static str, Shape>> = LazyLock::new(|| {
    let lines: HashMap<&'static str, &'static str> =
        include_str!("builtin_types.txt").lines().filter_map(|line| line.split_once(' ')).collect();
    lines.keys().map(|name| (*name, resolve(name, &lines))).collect()
});

fn resolve(name: &str, lines: &HashMap<&'static str, &'static str>) -> Shape {
    let Some(line) = lines.get(name) else { return Shape::Plain };
    let fields = line.split(' ').map(|field| {
        let end = field.find(['=', '*', '!', '[']).unwrap_or(field.len());
        (field[..end].to_owned(), read(&field[end..], lines))
    });
    Shape::Struct { fields: Arc::new(fields.collect()), rest: Rest::Plain }
}

fn read(text: &str, lines: &HashMap<&'static str, &'static str>) -> Shape {
    if let Some(name) = text.strip_prefix('=') {
        return resolve(name, lines);
    }
    if let Some(element) = text.strip_prefix('*') {
        return Shape::Map(Arc::new(read(element, lines)));
    }
    if text == "!" {
        return Shape::Atomic;
    }
    match text.strip_prefix('[').and_then(|text| text.split_once(']')) {
        Some(("", _)) => Shape::Set,
        Some((keys, element)) => {
            let key = |key: &str| match key.split_once(':') {
                Some((name, default)) => (name.to_owned(), serde_json::from_str(default).ok()),
                None => (key.to_owned(), None),
            };
            Shape::Keyed { keys: keys.split(',').map(key).collect(), element: Arc::new(read(element, lines)) }
        }
        None => Shape::Plain,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn builtin_shapes_have_list_keys_and_atomic_fields() {
        let deployment = Shape::builtin("Deployment");
        let spec = deployment.field("spec").0;
        assert_eq!(*spec.field("selector").0, Shape::Atomic);
        assert_eq!(*spec.field("strategy").0, Shape::Plain);
        let containers = spec.field("template").0.field("spec").0.field("containers").0;
        assert_eq!(&*containers.step(&json!({"name": "app", "image": "x"})).expect("a key"), "k:{\"name\":\"app\"}");
        let ports = containers.element().field("ports").0;
        let step = ports.step(&json!({"containerPort": 80})).expect("a key");
        assert_eq!(&*step, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}");
        assert_eq!(*Shape::metadata().field("finalizers").0, Shape::Set);
    }
}
