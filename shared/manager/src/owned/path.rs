//! Places in an object, and what kind of field stands there.

use std::fmt::{self, Write as _};

use serde_json::{Map, Value};

/// A place in an object. Displayed as people write it: `spec.template.spec.containers[memcached].args`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Path(pub(super) Vec<Step>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Field(String),
    /// An element of a keyed list, by the values of its keys.
    Element(Map<String, Value>),
    /// An element of a set.
    Member(Value),
}

impl Path {
    /// A path of plain fields, for tests and comparisons: `spec.replicas`.
    pub(crate) fn starts_with(&self, fields: &[&str]) -> bool {
        self.0.len() >= fields.len()
            && self.0.iter().zip(fields).all(|(step, field)| matches!(step, Step::Field(name) if name == field))
    }

    pub(super) fn field(&self, name: &str) -> Self {
        let mut steps = self.0.clone();
        steps.push(Step::Field(name.to_owned()));
        Self(steps)
    }

    /// Whether a field stands here of which an object may have only one: the sources of a volume, the value of a
    /// variable, the handlers of a probe. With two of them the API server refuses the object.
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

    /// Only where a quantity stands may `1000m` equal `1`: in an argument or an image tag they differ.
    pub(super) fn is_quantity(&self) -> bool {
        match self.0.as_slice() {
            [.., Step::Field(of), Step::Field(list), Step::Field(_)] if of == "resources" => {
                matches!(&**list, "limits" | "requests")
            }
            [.., Step::Field(of), Step::Field(last)] => of == "emptyDir" && last == "sizeLimit",
            _ => false,
        }
    }

    pub(super) fn is_in(&self, fields: &Value) -> bool {
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
