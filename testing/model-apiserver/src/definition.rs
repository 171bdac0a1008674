//! Makes kinds from a `CustomResourceDefinition`, and gives it its conditions.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::{
    kind::{Kind, Normalize},
    rules,
    schema::Schema,
};

/// Returns the kinds of a `CustomResourceDefinition`: one for each served version.
///
/// # Errors
///
/// Describes what is wrong with the definition.
pub(crate) fn kinds(definition: &Value) -> Result<Vec<Kind>, String> {
    let text = |pointer: &str| {
        let found = definition.pointer(pointer).and_then(Value::as_str);
        found.ok_or_else(|| format!("the definition has no {pointer}"))
    };
    let (group, plural, kind) = (text("/spec/group")?, text("/spec/names/plural")?, text("/spec/names/kind")?);
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
    let served = versions.into_iter().flatten().filter(|version| version["served"] == true);
    let mut out = Vec::new();
    for version in served {
        let name = version["name"].as_str().ok_or("a version of the definition has no name")?;
        let mut made = Kind::custom(group, name, plural, kind);
        made.namespaced = text("/spec/scope")? == "Namespaced";
        let subresources = &version["subresources"];
        made.status = subresources.get("status").is_some();
        if let Some(scale) = subresources.get("scale") {
            let pointer = |name: &str| scale[name].as_str().map(|path| path.replace('.', "/"));
            let need = |name: &str| pointer(name).ok_or_else(|| format!("scale has no {name}"));
            let selector = pointer("labelSelectorPath");
            made = made.with_scale(&need("specReplicasPath")?, &need("statusReplicasPath")?, selector.as_deref());
        }
        let selectable = version["selectableFields"].as_array().into_iter().flatten();
        let paths = selectable.filter_map(|field| field["jsonPath"].as_str());
        made.selectable = paths.map(|path| path.trim_start_matches('.').to_owned()).collect();
        let schema = version.pointer("/schema/openAPIV3Schema").cloned().unwrap_or(Value::Object(Map::new()));
        rules::read_all(&schema)?;
        let schema = Schema::new(schema);
        made.shape = Arc::new(schema.shape());
        made.normalize = Normalize::Schema(Arc::new(schema));
        out.push(made);
    }
    if out.is_empty() { Err("the definition serves no version".to_owned()) } else { Ok(out) }
}

/// Gives the definition the conditions of one whose kinds are served, unless it has conditions.
pub(crate) fn establish(definition: &mut Value, now: Timestamp) {
    let condition = |type_: &str, reason: &str, message: &str| {
        let time = format!("{now:.0}");
        json!({"type": type_, "status": "True", "lastTransitionTime": time, "reason": reason, "message": message})
    };
    let conditions = &mut definition["status"]["conditions"];
    if conditions.as_array().is_none_or(Vec::is_empty) {
        *conditions = json!([
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ]);
    }
}
