//! Writes the table of a kind's fields in an operator's README, from the schema in its custom resource definition.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use serde_json::Value;

/// Objects with more fields than this, such as an affinity, get only one row. They are Kubernetes' own types, which readers know.
const LARGEST_OBJECT: usize = 12;

/// The table of all fields of `spec` in the stored version, and the fields by which `kubectl get --field-selector` can select.
pub(super) fn table(crd: &Value) -> Result<String> {
    let versions = crd["spec"]["versions"].as_array().context("the definition has no versions")?;
    let version = versions.iter().find(|version| version["storage"] == true).context("no version is stored")?;
    let spec = &version["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let mut table = String::from("| Field | Type | Default | Bounds | Description |\n|---|---|---|---|---|\n");
    for row in rows(spec, "") {
        let _ = writeln!(table, "{row}"); // writing to a String cannot fail
    }
    let selectable = version["selectableFields"].as_array().into_iter().flatten();
    let paths = selectable.filter_map(|field| field["jsonPath"].as_str());
    let fields: Vec<String> = paths.map(|path| format!("`{}`", path.trim_start_matches('.'))).collect();
    if !fields.is_empty() {
        let names = &crd["spec"]["names"];
        let name = names["shortNames"][0].as_str().or(names["plural"].as_str()).unwrap_or_default();
        let fields = fields.join(", ");
        let _ = writeln!(table, "\n`kubectl get {name} --field-selector FIELD=VALUE` selects by {fields}.");
    }
    Ok(table)
}

fn rows(object: &Value, prefix: &str) -> Vec<String> {
    let required: Vec<_> = object["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut rows = Vec::new();
    for (name, schema) in object["properties"].as_object().into_iter().flatten() {
        let path = format!("{prefix}{name}");
        let default = match &schema["default"] {
            _ if required.contains(&name.as_str()) => "required".to_owned(),
            Value::Null => String::new(),
            default => format!("`{default}`"),
        };
        let description = schema["description"].as_str().unwrap_or_default();
        let cells = [format!("`{path}`"), kind(schema), default, bounds(schema), description.to_owned()];
        rows.push(format!("| {} |", cells.map(|cell| in_a_cell(&cell)).join(" | ")));
        let (inner, prefix) = match schema["type"].as_str() {
            Some("array") => (&schema["items"], format!("{path}[].")),
            _ => (schema, format!("{path}.")),
        };
        let below = self::rows(inner, &prefix);
        if below.len() <= LARGEST_OBJECT {
            rows.extend(below);
        }
    }
    rows
}

/// The type of a field, in words.
fn kind(schema: &Value) -> String {
    if schema["x-kubernetes-int-or-string"] == true {
        return "integer or string".to_owned();
    }
    if let Some(values) = schema["enum"].as_array() {
        let values: Vec<_> = values.iter().map(|value| format!("`{}`", plain(value))).collect();
        return values.join(", ");
    }
    match schema["type"].as_str() {
        Some("array") => format!("list of {}", kind(&schema["items"])),
        Some("object") if schema["additionalProperties"].is_object() => {
            format!("map of {}", kind(&schema["additionalProperties"]))
        }
        Some(kind) => kind.to_owned(),
        None => "any".to_owned(),
    }
}

/// The bounds that the API server checks before it stores an object, in words.
fn bounds(schema: &Value) -> String {
    let mut bounds = Vec::new();
    for (least, most, unit) in [
        ("minimum", "maximum", ""),
        ("minLength", "maxLength", " characters"),
        ("minItems", "maxItems", " items"),
        ("minProperties", "maxProperties", " entries"),
    ] {
        match (&schema[least], &schema[most]) {
            (Value::Null, Value::Null) => {}
            (least, Value::Null) => bounds.push(format!("at least {least}{unit}")),
            (Value::Null, most) => bounds.push(format!("at most {most}{unit}")),
            (least, most) => bounds.push(format!("{least} to {most}{unit}")),
        }
    }
    if let Some(pattern) = schema["pattern"].as_str() {
        bounds.push(format!("`{pattern}`"));
    }
    let rules = schema["x-kubernetes-validations"].as_array();
    bounds.extend(rules.into_iter().flatten().filter_map(|rule| Some(rule["message"].as_str()?.to_owned())));
    bounds.join("; ")
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The text on one line, with `|` escaped.
fn in_a_cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rows_of(schema: &Value) -> String {
        let crd = json!({"spec": {"versions": [
            {"storage": false},
            {"storage": true, "schema": {"openAPIV3Schema": {"properties": {"spec": schema}}}},
        ]}});
        table(&crd).unwrap().lines().skip(2).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn row_shows_type_default_limits_and_description() {
        let schema = json!({"required": ["image"], "properties": {
            "image": {"type": "string", "minLength": 1, "maxLength": 512, "description": "What runs."},
            "mode": {"type": "string", "enum": ["A", "B"], "default": "A", "description": "One\nof | two."},
            "size": {"type": "integer", "minimum": 0, "maximum": 64, "default": 1},
        }});
        let expected = "\
| `image` | string | required | 1 to 512 characters | What runs. |
| `mode` | `A`, `B` | `\"A\"` |  | One of \\| two. |
| `size` | integer | `1` | 0 to 64 |  |";
        assert_eq!(rows_of(&schema), expected);
    }

    #[test]
    fn nested_schemas_are_expanded_into_rows() {
        let schema = json!({"properties": {
            "config": {"type": "object", "properties": {"port": {"x-kubernetes-int-or-string": true}},
                       "x-kubernetes-validations": [{"rule": "…", "message": "no more than that"}]},
            "labels": {"type": "object", "maxProperties": 8, "additionalProperties": {"type": "string"}},
            "seats": {"type": "array", "items": {"type": "object", "properties": {"row": {"type": "integer", "minimum": 1}}}},
        }});
        let expected = "\
| `config` | object |  | no more than that |  |
| `config.port` | integer or string |  |  |  |
| `labels` | map of string |  | at most 8 entries |  |
| `seats` | list of object |  |  |  |
| `seats[].row` | integer |  | at least 1 |  |";
        assert_eq!(rows_of(&schema), expected);
    }

    #[test]
    fn selectable_fields_follow_the_table() {
        let crd = json!({"spec": {"names": {"plural": "tickets", "shortNames": ["tk"]}, "versions": [{
            "storage": true, "selectableFields": [{"jsonPath": ".spec.from"}, {"jsonPath": ".status.phase"}],
        }]}});
        let last = "\n\n`kubectl get tk --field-selector FIELD=VALUE` selects by `spec.from`, `status.phase`.\n";
        assert!(table(&crd).unwrap().ends_with(last));
    }

    #[test]
    fn very_large_object_gets_one_row() {
        let fields: serde_json::Map<_, _> = (0..20).map(|n| (format!("f{n}"), json!({"type": "string"}))).collect();
        let schema = json!({"properties": {"affinity": {"type": "object", "properties": fields}}});
        assert_eq!(rows_of(&schema), "| `affinity` | object |  |  |  |");
    }
}
