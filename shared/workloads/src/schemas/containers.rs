//! Schemas of the inputs of a container: variables, files, words of its command line.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use super::matches;

/// A name of an object of the cluster.
fn name(description: &str) -> Value {
    json!({"description": description, "type": "string", "minLength": 1, "maxLength": 253})
}

/// The pattern of a key of a Secret or a `ConfigMap`.
const KEY: &str = "^[-._a-zA-Z0-9]+$";

/// A key of a Secret or a `ConfigMap`. `check` is a keyword with its value.
fn key(kind: &str, check: (&str, Value)) -> Value {
    let (keyword, value) = check;
    json!({
        "description": format!("A key of the {kind}."),
        "type": "string",
        "minLength": 1,
        "maxLength": 253,
        keyword: value,
    })
}

fn optional(what: &str) -> Value {
    json!({"description": format!("Whether the pods start even if the {what} is missing. Default: false."), "type": "boolean"})
}

fn api_version() -> Value {
    json!({"description": "The API version of the field path. Default: v1.", "type": "string", "maxLength": 16})
}

fn field_path() -> Value {
    json!({
        "description": "The path of the field, such as metadata.name or status.podIP.",
        "type": "string",
        "minLength": 1,
        "maxLength": 512,
    })
}

/// Words on a command line.
pub fn words(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 64,
        "x-kubernetes-list-type": "atomic",
        "items": {"type": "string", "maxLength": 8192},
    })
}

/// A list of `EnvVar` of `core/v1`.
pub fn env(_: &mut SchemaGenerator) -> Schema {
    let check =
        || ("x-kubernetes-validations", matches(KEY, "a key must consist of letters, digits, '-', '_' and '.'"));
    let key_of = |kind: &str| {
        json!({
            "description": format!("A key of a {kind} in the namespace of the object."),
            "type": "object",
            "required": ["name", "key"],
            "properties": {"name": name(&format!("The name of the {kind}.")), "key": key(kind, check()), "optional": optional("key")},
        })
    };
    json_schema!({
        "type": "array",
        "maxItems": 100,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {
            "description": "One variable.",
            "type": "object",
            "required": ["name"],
            "x-kubernetes-validations": [{
                "rule": "!has(self.value) || !has(self.valueFrom)",
                "message": "value and valueFrom exclude each other",
            }],
            "properties": {
                "name": {
                    "description": "Its name.",
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 253,
                    "x-kubernetes-validations": matches(
                        "^[ -<>-~]+$",
                        "the name of a variable must consist of printable ASCII characters other than '='",
                    ),
                },
                "value": {
                    "description": "Its value. $(NAME) stands for the value of an earlier variable of this list.",
                    "type": "string",
                    "maxLength": 32768,
                },
                "valueFrom": {
                    "description": "The source of its value: exactly one of secretKeyRef, configMapKeyRef, fieldRef.",
                    "type": "object",
                    "minProperties": 1,
                    "maxProperties": 1,
                    "properties": {
                        "secretKeyRef": key_of("Secret"),
                        "configMapKeyRef": key_of("ConfigMap"),
                        "fieldRef": {
                            "description": "A field of the pod.",
                            "type": "object",
                            "required": ["fieldPath"],
                            "properties": {"fieldPath": field_path(), "apiVersion": api_version()},
                        },
                    },
                },
            },
        },
    })
}

/// A list of `EnvFromSource` of `core/v1`.
pub fn env_from(_: &mut SchemaGenerator) -> Schema {
    let all_of = |kind: &str| {
        json!({
            "description": format!("A {kind} in the namespace of the object."),
            "type": "object",
            "required": ["name"],
            "properties": {"name": name(&format!("The name of the {kind}.")), "optional": optional(kind)},
        })
    };
    json_schema!({
        "type": "array",
        "maxItems": 32,
        "x-kubernetes-list-type": "atomic",
        "items": {
            "description": "A Secret or a ConfigMap. Each of its keys becomes a variable.",
            "type": "object",
            "properties": {
                "prefix": {"description": "A prefix for the names of these variables.", "type": "string", "maxLength": 253},
                "configMapRef": all_of("ConfigMap"),
                "secretRef": all_of("Secret"),
            },
        },
    })
}

/// A list of `VolumeMount` of `core/v1`.
pub fn volume_mounts(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 32,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["mountPath"],
        "items": {
            "description": "Mounts one of the volumes in the container.",
            "type": "object",
            "required": ["name", "mountPath"],
            "properties": {
                "name": {"description": "The name of the volume.", "type": "string", "minLength": 1, "maxLength": 63},
                "mountPath": {
                    "description": "The folder in the container.",
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 4096,
                    "x-kubernetes-validations": matches("^[^:]+$", "mountPath must not contain ':'"),
                },
                "subPath": {
                    "description": "The path in the volume to mount. Default: the whole volume.",
                    "type": "string",
                    "maxLength": 4096,
                },
                "readOnly": {"description": "Whether the container may only read it. Default: false.", "type": "boolean"},
            },
        },
    })
}

/// A list of `Volume` of `core/v1`: only volumes that are empty or come from objects of the cluster, no disks.
pub fn volumes(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 32,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {
            "description": "Files that each pod gets anew: a name, and one of emptyDir, configMap, secret, projected.",
            "type": "object",
            "minProperties": 2,
            "maxProperties": 2,
            "required": ["name"],
            "properties": {
                "name": {
                    "description": "Its name, for volumeMounts.",
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 63,
                    "x-kubernetes-validations": matches(
                        "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
                        "the name of a volume must consist of lower-case letters, digits and '-', and begin and end with a letter or \
                         digit",
                    ),
                },
                "emptyDir": {
                    "description": "An empty folder that lives as long as the pod.",
                    "type": "object",
                    "properties": {
                        "medium": {
                            "description": "Memory keeps the files in memory. Default: on the disk of the Kubernetes node.",
                            "type": "string",
                            "enum": ["", "Memory"],
                        },
                        "sizeLimit": {
                            "description": "The maximum size; a pod that writes more is evicted. Default: no limit.",
                            "x-kubernetes-int-or-string": true,
                            "pattern": super::QUANTITY,
                            "maxLength": 32,
                        },
                    },
                },
                "configMap": source("ConfigMap", "name", true),
                "secret": source("Secret", "secretName", true),
                "projected": projected(),
            },
        },
    })
}

/// Several sources in one folder.
fn projected() -> Value {
    json!({
        "description": "Several sources in one folder.",
        "type": "object",
        "properties": {
            "defaultMode": mode("The permissions of its files. Default: 420, which is 0644."),
            "sources": {
                "description": "The sources: each has one of configMap, secret, downwardAPI, serviceAccountToken.",
                "type": "array",
                "maxItems": 16,
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "minProperties": 1,
                    "maxProperties": 1,
                    "properties": {
                        "configMap": source("ConfigMap", "name", false),
                        "secret": source("Secret", "name", false),
                        "downwardAPI": {
                            "description": "Fields of the pod as files.",
                            "type": "object",
                            "properties": {"items": {
                                "description": "The files.",
                                "type": "array",
                                "maxItems": 32,
                                "x-kubernetes-list-type": "atomic",
                                "items": {
                                    "type": "object",
                                    "required": ["path", "fieldRef"],
                                    "properties": {
                                        "path": path("The file."),
                                        "mode": mode("Its permissions. Default: defaultMode."),
                                        "fieldRef": {
                                            "description": "A field of the pod.",
                                            "type": "object",
                                            "required": ["fieldPath"],
                                            "properties": {"fieldPath": field_path(), "apiVersion": api_version()},
                                        },
                                    },
                                },
                            }},
                        },
                        "serviceAccountToken": {
                            "description": "A token of the pods' service account.",
                            "type": "object",
                            "required": ["path"],
                            "properties": {
                                "path": path("The file."),
                                "audience": {
                                    "description": "The audience of the token. Default: the API server.",
                                    "type": "string",
                                    "maxLength": 253,
                                },
                                "expirationSeconds": {
                                    "description": "For how many seconds a token is valid. Default: 3600.",
                                    "type": "integer",
                                    "format": "int64",
                                    "minimum": 600,
                                },
                            },
                        },
                    },
                },
            },
        },
    })
}

/// The keys of a Secret or a `ConfigMap` as files.
fn source(kind: &str, name_field: &str, with_mode: bool) -> Value {
    let mut source = json!({
        "description": format!("The keys of a {kind} in the namespace of the object, as files."),
        "type": "object",
        "required": [name_field],
        "properties": {
            name_field: name(&format!("The name of the {kind}.")),
            "optional": optional(kind),
            "items": {
                "description": "Which keys become files, and under which paths. Default: all keys, each under its own name.",
                "type": "array",
                "maxItems": 64,
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "required": ["key", "path"],
                    "properties": {
                        // For lists in lists in lists, the API server estimates a rule as too expensive.
                        "key": key(kind, ("pattern", KEY.into())),
                        "path": path("The file."),
                        "mode": mode("Its permissions. Default: defaultMode."),
                    },
                },
            },
        },
    });
    if with_mode {
        source["properties"]["defaultMode"] = mode("The permissions of its files. Default: 420, which is 0644.");
    }
    source
}

fn path(description: &str) -> Value {
    json!({"description": description, "type": "string", "minLength": 1, "maxLength": 4096})
}

fn mode(description: &str) -> Value {
    json!({"description": description, "type": "integer", "format": "int32", "minimum": 0, "maximum": 0o777})
}
