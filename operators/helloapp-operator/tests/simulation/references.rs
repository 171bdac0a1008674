//! Variables and files from `ConfigMaps` and Secrets: what users draw of them, and what the pods have of them. The operator reads no
//! such object, so the pods name it whether it exists or not.

use fastrand::Rng;
use serde_json::{Map, Value, json};

use super::one_of;

const SETTINGS: &str = "settings";
const PASSWORDS: &str = "app-passwords";

/// Draws `spec.envFrom`, and `spec.volumes` with their mounts; null where they are absent.
pub(super) fn draw(rng: &mut Rng) -> Map<String, Value> {
    let settings = json!({"configMapRef": {"name": one_of(rng, &[SETTINGS, "missing"])}});
    let passwords = json!({"prefix": "APP_", "secretRef": {"name": PASSWORDS, "optional": true}});
    let variables = match rng.u8(..8) {
        0 => json!([settings]),
        1 => json!([passwords]),
        2 => json!([passwords, settings]),
        _ => Value::Null,
    };
    // Each drawn list has the end of the same list. So whatever lists two clients have merged, the order stays this one.
    let items = json!([{"key": "password", "path": "file"}]);
    let volumes = [
        json!({"name": "config", "configMap": {"name": SETTINGS, "optional": rng.bool()}}),
        json!({"name": "passwords", "secret": {"secretName": PASSWORDS, "items": items}}),
        json!({"name": "scratch", "emptyDir": {"medium": "Memory"}}),
    ];
    let volumes = if rng.u8(..3) == 0 { &volumes[rng.usize(..volumes.len())..] } else { &[] };
    let mount = |volume: &Value| {
        let name = volume["name"].as_str().unwrap_or_default();
        json!({"name": name, "mountPath": format!("/{name}")})
    };
    let mounts: Vec<Value> = volumes.iter().map(mount).collect();
    let or_null = |list: &[Value]| if list.is_empty() { Value::Null } else { json!(list) };
    let fields = [("envFrom", variables), ("volumes", or_null(volumes)), ("volumeMounts", or_null(&mounts))];
    fields.into_iter().map(|(field, value)| (field.to_owned(), value)).collect()
}

/// Draws one of the objects to which these fields refer.
pub(super) fn draw_object(rng: &mut Rng) -> Value {
    let value = one_of(rng, &["YQ==", "Yg==", "Yw=="]);
    if rng.bool() {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": SETTINGS}, "data": {"LEVEL": value}})
    } else {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": PASSWORDS}, "data": {"password": value}})
    }
}

/// Whether the spec has this list, with elements. Those of one client may be gone, and the empty list may be left.
pub(super) fn has_list(spec: &Value, field: &str) -> bool {
    spec[field].as_array().is_some_and(|list| !list.is_empty())
}

/// Adds these lists to a pod as they are in the spec.
pub(super) fn refer(pod: &mut Value, spec: &Value) {
    for field in ["envFrom", "volumeMounts"] {
        if has_list(spec, field) {
            pod["containers"][0][field] = spec[field].clone();
        }
    }
    if has_list(spec, "volumes") {
        pod["volumes"] = spec["volumes"].clone();
    }
}
