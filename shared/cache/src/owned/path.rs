//! Paths in an object, and rules about the fields at certain paths.

use std::fmt::{self, Write as _};

use serde_json::{Map, Value};

/// A path in an object. Displayed as in events: `spec.template.spec.containers[memcached].args`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Path(pub(super) Vec<Step>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Field(String),
    /// An element of a keyed list, by the values of its keys.
    Element(Map<String, Value>),
    /// An element of a set.
    Member(Value),
}

impl Step {
    /// The key of this step in a field set, if it is there.
    fn selector(&self, fields: &Map<String, Value>) -> Option<String> {
        let wanted = match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Member(value) => format!("v:{value}"),
            Self::Element(identity) => {
                let is_it = |selector: &&String| {
                    let keys = selector.strip_prefix("k:").and_then(|text| serde_json::from_str(text).ok());
                    keys.is_some_and(|keys: Map<String, Value>| keys == *identity)
                };
                return fields.keys().find(is_it).cloned();
            }
        };
        fields.contains_key(&wanted).then_some(wanted)
    }
}

impl Path {
    /// Whether the path begins with these plain fields, such as `["spec", "replicas"]`.
    pub fn starts_with(&self, fields: &[&str]) -> bool {
        self.0.len() >= fields.len()
            && self.0.iter().zip(fields).all(|(step, field)| matches!(step, Step::Field(name) if name == field))
    }

    pub(super) fn field(&self, name: &str) -> Self {
        let mut steps = self.0.clone();
        steps.push(Step::Field(name.to_owned()));
        Self(steps)
    }

    /// Whether the field is one of several alternatives: the sources of a volume, the value of a variable, the handlers of a
    /// probe. The API server refuses an object with two of them.
    pub(super) fn is_alternative(&self) -> bool {
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
    pub(super) fn is_beside(&self, other: &Self) -> bool {
        let parent = |path: &Self| path.0.split_last().map(|(_, parent)| parent.to_vec());
        parent(self) == parent(other)
    }

    /// Whether the field is a quantity, where `1000m` equals `1`. In an argument or an image tag they differ.
    pub(super) fn is_quantity(&self) -> bool {
        match self.0.as_slice() {
            [.., Step::Field(of), Step::Field(list), Step::Field(_)] if of == "resources" => {
                matches!(&**list, "limits" | "requests")
            }
            [.., Step::Field(of), Step::Field(last)] => of == "emptyDir" && last == "sizeLimit",
            _ => false,
        }
    }

    /// Whether the path is in a field set (`fieldsV1`).
    pub(super) fn is_in(&self, fields: &Value) -> bool {
        let mut at = fields;
        for step in &self.0 {
            let Some(map) = at.as_object() else { return false };
            if map.is_empty() {
                return true; // an atomic value above the path: its owner owns everything below it
            }
            match step.selector(map).and_then(|selector| map.get(&selector)) {
                Some(inner) => at = inner,
                None => return false,
            }
        }
        true
    }

    /// Removes the path, and everything below it, from a field set (`fieldsV1`). Returns `None` if the set does not name it, for
    /// instance because it names an atomic value above it.
    pub fn remove_from(&self, fields: &mut Value) -> Option<()> {
        let (last, parents) = self.0.split_last()?;
        let mut at = fields;
        for step in parents {
            let map = at.as_object_mut()?;
            at = map.get_mut(&step.selector(map)?)?;
        }
        let map = at.as_object_mut()?;
        map.remove(&last.selector(map)?).map(drop)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
mod tests {
    use serde_json::json;

    use super::*;

    fn path(fields: &str) -> Path {
        fields.split('.').fold(Path::default(), |path, field| path.field(field))
    }

    #[test]
    fn path_is_removed_from_a_field_set_only_if_the_set_names_it() {
        let set = json!({"f:spec": {"f:replicas": {}, "f:strategy": {"f:type": {}}, "f:selector": {}}});
        for (fields, is_in, left) in [
            ("spec.replicas", true, Some(json!({"f:spec": {"f:strategy": {"f:type": {}}, "f:selector": {}}}))),
            ("spec.strategy", true, Some(json!({"f:spec": {"f:replicas": {}, "f:selector": {}}}))),
            ("spec.selector.app", true, None), // below an atomic value
            ("spec.paused", false, None),
            ("status", false, None),
        ] {
            assert_eq!(path(fields).is_in(&set), is_in, "{fields}");
            let mut fewer = set.clone();
            let is_removed = path(fields).remove_from(&mut fewer).is_some();
            assert_eq!((is_removed, &fewer), (left.is_some(), left.as_ref().unwrap_or(&set)), "{fields}");
        }
    }

    #[test]
    fn alternatives_are_the_fields_of_which_an_object_can_have_one() {
        let element = |list: &str, field: &str| {
            Path(vec![Step::Field(list.to_owned()), Step::Element(Map::new()), Step::Field(field.to_owned())])
        };
        for (path, expected) in [
            (element("volumes", "emptyDir"), true),
            (element("volumes", "name"), false),
            (element("env", "value"), true),
            (element("env", "valueFrom"), true),
            (element("env", "name"), false),
            (element("containers", "image"), false),
            (path("readinessProbe.exec"), true),
            (path("livenessProbe.periodSeconds"), false),
            (path("spec.exec"), false),
            (path("exec"), false),
        ] {
            assert_eq!(path.is_alternative(), expected, "{path}");
        }
    }

    #[test]
    fn path_starts_with_fields_that_it_has_in_this_order() {
        let path = path("spec.template.spec");
        for (fields, expected) in [
            ("spec.template", true),
            ("template", false),
            ("spec.template.metadata", false),
            ("spec.template.spec.containers", false),
        ] {
            assert_eq!(path.starts_with(&fields.split('.').collect::<Vec<_>>()), expected, "{fields}");
        }
    }
}
