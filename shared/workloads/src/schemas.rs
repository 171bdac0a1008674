//! Schemas of core types for use in custom resources: `#[schemars(schema_with = "schemas::resources")]`.
//!
//! The schemas that come with the types have no bounds, so the API server would refuse CEL rules over them as too expensive.
//! They also carry kilobytes of upstream descriptions.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

mod containers;
mod placement;

pub use containers::{env, env_from, volume_mounts, volumes, words};
pub use placement::{affinity, peers, spread_constraints};

/// A label value.
const LABEL_VALUE: &str = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";
/// An amount of a resource in the syntax of `k8s.io/apimachinery`.
const QUANTITY: &str = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$";

/// The rules of a text that must match this pattern, which contains no backslash. If a text does not, the API server answers with
/// the message; with the keyword `pattern`, it would answer with the pattern. Numbers-or-texts keep `pattern`: the API server
/// estimates rules over them as too expensive.
fn matches(pattern: &str, message: &str) -> Value {
    json!([{"rule": format!("self.matches('{pattern}')"), "message": message}])
}

/// `ResourceRequirements` of `core/v1`, without `claims`: those need a pod that has resource claims.
pub fn resources(_: &mut SchemaGenerator) -> Schema {
    let amounts = |description: &str| {
        json_schema!({
            "description": description,
            "type": "object",
            "maxProperties": 16,
            "additionalProperties": {"x-kubernetes-int-or-string": true, "pattern": QUANTITY, "maxLength": 32},
        })
    };
    json_schema!({
        "type": "object",
        "properties": {
            "requests": amounts("How much is reserved for the container, by resource: cpu, memory, …"),
            "limits": amounts("How much the container may use at most, by resource: cpu, memory, …"),
        },
    })
}

/// A list of `Toleration` of `core/v1`.
pub fn tolerations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 32,
        "x-kubernetes-list-type": "atomic",
        "items": {
            "description": "A taint that the pods tolerate.",
            "type": "object",
            "properties": {
                "key": {
                    "description": "The key of the taint. Absent, with operator Exists: all keys.",
                    "type": "string",
                    "maxLength": 316,
                },
                "operator": {
                    "description": "How the value is compared. Default: Equal.",
                    "type": "string",
                    "enum": ["Exists", "Equal"],
                },
                "value": {"description": "The value of the taint, with operator Equal.", "type": "string", "maxLength": 63},
                "effect": {
                    "description": "The effect of the taint. Absent: all effects.",
                    "type": "string",
                    "enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"],
                },
                "tolerationSeconds": {
                    "description": "For how many seconds a NoExecute taint is tolerated. Default: for ever.",
                    "type": "integer",
                    "format": "int64",
                },
            },
        },
    })
}

/// A list of `LocalObjectReference` of `core/v1`: the Secrets with which the kubelet pulls images.
pub fn pull_secrets(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 10,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {
            "description": "A Secret in the namespace of the object.",
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": {"description": "Its name.", "type": "string", "minLength": 1, "maxLength": 253},
            },
        },
    })
}

/// Labels, or a label selector.
pub fn labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 32,
        "additionalProperties": {
            "type": "string",
            "maxLength": 63,
            "x-kubernetes-validations": matches(
                LABEL_VALUE,
                "the value of a label must consist of letters, digits, '-', '_' and '.', and begin and end with a letter or digit",
            ),
        },
    })
}

/// Annotations.
pub fn annotations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 32,
        "additionalProperties": {"type": "string", "maxLength": 4096},
    })
}

/// A number or a percentage of pods; 0 is allowed.
pub fn pods_or_percent(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "minimum": 0,
        "maximum": 100,
        "maxLength": 4,
        "pattern": "^(0|[1-9][0-9]?|100)%$",
    })
}

/// A number or a percentage of pods, at least 1.
pub(crate) fn some_pods_or_percent(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "minimum": 1,
        "maximum": 100,
        "maxLength": 4,
        "pattern": "^([1-9][0-9]?|100)%$",
    })
}

/// An instant. The schema needs no `maxLength`: the format limits the length.
pub fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time"})
}

/// `status.conditions`: a list of `Condition` of `meta/v1`.
pub fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 16,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "description": "One aspect of the object's state.",
            "type": "object",
            "required": ["type", "status", "reason", "message", "lastTransitionTime"],
            "properties": {
                "type": {"description": "The name of the aspect.", "type": "string", "maxLength": 316},
                "status": {
                    "description": "Whether it holds.",
                    "type": "string",
                    "enum": ["True", "False", "Unknown"],
                },
                "reason": {
                    "description": "Why status has its value, in one word for programs.",
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                },
                "message": {"description": "Why status has its value, in words for users.", "type": "string", "maxLength": 32768},
                "lastTransitionTime": {
                    "description": "When status last changed.",
                    "type": "string",
                    "format": "date-time",
                },
                "observedGeneration": {
                    "description": "The generation of the object that the condition describes.",
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                },
            },
        },
    })
}
