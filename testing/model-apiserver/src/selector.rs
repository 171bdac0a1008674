//! Label and field selectors. Pure.

use serde_json::Value;

use crate::{kind::Kind, refusal::Refusal};

/// Selects objects by namespace, labels and fields.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selector {
    namespace: String,
    labels: Vec<Requirement>,
    fields: Vec<(String, bool, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
}

impl Selector {
    pub(crate) fn read(kind: &Kind, namespace: &str, labels: &str, fields: &str) -> Result<Self, Refusal> {
        let unreadable = || Refusal::bad_request(format!("unable to parse requirement: {labels}"));
        let labels = split(labels).iter().map(|text| Requirement::read(text)).collect::<Option<_>>();
        let mut out = Self { namespace: namespace.to_owned(), labels: labels.ok_or_else(unreadable)?, fields: vec![] };
        for text in fields.split(',').filter(|text| !text.is_empty()) {
            let (name, equal, value) = if let Some((name, value)) = text.split_once("!=") {
                (name, false, value)
            } else {
                let (name, value) = text.split_once('=').unwrap_or((text, ""));
                (name, true, value.trim_start_matches('='))
            };
            let pods = kind.resource() == "pods";
            let of_all = ["metadata.name", "metadata.namespace"].contains(&name);
            let of_pods = pods && ["spec.nodeName", "status.phase"].contains(&name);
            let of_events = kind.resource() == "events.events.k8s.io" && name == "regarding.name";
            let declared = kind.selectable.iter().any(|field| field == name);
            if !(of_all || of_pods || of_events || declared) {
                return Err(Refusal::bad_request(if pods || kind.custom {
                    format!("field label not supported: {name}")
                } else {
                    format!("{name:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
                }));
            }
            out.fields.push((name.to_owned(), equal, value.to_owned()));
        }
        Ok(out)
    }

    /// Whether the selector uses more than the namespace.
    pub(crate) fn is_picky(&self) -> bool {
        !self.labels.is_empty() || !self.fields.is_empty()
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        let metadata = &object["metadata"];
        let label = |key: &str| metadata["labels"][key].as_str();
        let field = |name: &str| {
            let pointer = format!("/{}", name.replace('.', "/"));
            match object.pointer(&pointer) {
                None | Some(Value::Null) => String::new(),
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
            }
        };
        (self.namespace.is_empty() || metadata["namespace"] == *self.namespace)
            && self.labels.iter().all(|required| match (&required.test, label(&required.key)) {
                (Test::In(values), Some(value)) => values.iter().any(|it| it == value),
                (Test::NotIn(values), Some(value)) => values.iter().all(|it| it != value),
                (Test::Exists, value) => value.is_some(),
                (Test::Absent, value) => value.is_none(),
                (Test::In(_), None) => false,
                (Test::NotIn(_), None) => true,
            })
            && self.fields.iter().all(|(name, equal, value)| (field(name) == *value) == *equal)
    }
}

impl Requirement {
    fn read(text: &str) -> Option<Self> {
        let text = text.trim();
        let new = |key: &str, test| {
            let key = key.trim().to_owned();
            (!key.is_empty() && !key.contains([' ', '(', ')', '=', '!'])).then_some(Self { key, test })
        };
        let values = |list: &str| -> Option<Vec<String>> {
            let list = list.trim().strip_prefix('(')?.strip_suffix(')')?;
            Some(list.split(',').map(|value| value.trim().to_owned()).collect())
        };
        if let Some(key) = text.strip_prefix('!') {
            return new(key, Test::Absent);
        }
        if let Some((key, list)) = text.split_once(" notin ").or_else(|| text.split_once(" notin(")) {
            return new(key, Test::NotIn(values(&with_bracket(list))?));
        }
        if let Some((key, list)) = text.split_once(" in ").or_else(|| text.split_once(" in(")) {
            return new(key, Test::In(values(&with_bracket(list))?));
        }
        if let Some((key, value)) = text.split_once("!=") {
            return new(key, Test::NotIn(vec![value.trim().to_owned()]));
        }
        if let Some((key, value)) = text.split_once('=') {
            return new(key, Test::In(vec![value.trim_start_matches('=').trim().to_owned()]));
        }
        new(text, Test::Exists)
    }
}

fn with_bracket(list: &str) -> String {
    if list.trim_start().starts_with('(') { list.to_owned() } else { format!("({list}") }
}

/// Splits at commas outside of brackets.
fn split(text: &str) -> Vec<String> {
    let mut out = vec![String::new()];
    let mut depth = 0_u32;
    for letter in text.chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                out.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = out.last_mut() {
            last.push(letter);
        }
    }
    out.retain(|text| !text.trim().is_empty());
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors() {
        let selectable = ["spec.size", "spec.on", "status.phase"].map(str::to_owned).to_vec();
        let kind = Kind { selectable, ..Kind::custom("g", "v1", "things", "Thing") };
        let metadata = json!({"name": "x", "namespace": "n", "labels": {"a": "b", "c": "d"}});
        let object = json!({"metadata": metadata, "spec": {"size": 3, "on": false}});
        for (labels, fields, expected) in [
            ("", "", true),
            ("a=b", "", true),
            ("a==b,c!=e", "", true),
            ("a=x", "", false),
            ("a in (b,x),c", "", true),
            ("a notin (b)", "", false),
            ("z notin (b),!y", "", true),
            ("!a", "", false),
            ("z", "", false),
            ("z!=1", "", true),
            ("", "metadata.name=x", true),
            ("", "metadata.name!=x", false),
            ("", "metadata.namespace=other", false),
            ("", "spec.size=3,spec.on=false", true),
            ("", "spec.size!=3", false),
            ("", "status.phase=", true),
            ("", "status.phase=Booked", false),
        ] {
            let selector = Selector::read(&kind, "n", labels, fields).expect(labels);
            assert_eq!(selector.matches(&object), expected, "{labels} {fields}");
        }
        assert!(Selector::read(&kind, "", "a b", "").is_err());
        assert!(Selector::read(&kind, "", "", "spec.x=1").is_err());
    }
}
