//! Schemas of core types that select: pods to keep apart, peers to let in. With bounds, since the API server would refuse
//! validation rules over a spec without.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// A list of `TopologySpreadConstraint` of `core/v1`.
pub(super) fn spread_constraints(_: &mut SchemaGenerator) -> Schema {
    let policy = |description: &str| json!({"description": description, "type": "string", "enum": ["Honor", "Ignore"]});
    json_schema!({
        "type": "array",
        "maxItems": 8,
        "x-kubernetes-list-type": "atomic",
        "items": {
            "description": "How evenly the nodes are spread over machines, zones or other domains.",
            "type": "object",
            "required": ["maxSkew", "topologyKey", "whenUnsatisfiable"],
            "properties": {
                "maxSkew": {
                    "description": "By how many nodes two domains may differ.",
                    "type": "integer", "format": "int32", "minimum": 1,
                },
                "topologyKey": {
                    "description": "The label of the machines whose values are the domains, such as topology.kubernetes.io/zone.",
                    "type": "string", "minLength": 1, "maxLength": 316,
                },
                "whenUnsatisfiable": {
                    "description": "What becomes of a node that fits nowhere.",
                    "type": "string", "enum": ["DoNotSchedule", "ScheduleAnyway"],
                },
                "labelSelector": selector("The pods that are counted. Default: the nodes of this Memcached."),
                "minDomains": {
                    "description": "Count missing domains as empty ones, up to so many.",
                    "type": "integer", "format": "int32", "minimum": 1,
                },
                "matchLabelKeys": {
                    "description": "Labels of the node by which pods are counted too, such as pod-template-hash.",
                    "type": "array", "maxItems": 8, "x-kubernetes-list-type": "atomic",
                    "items": {"type": "string", "maxLength": 316},
                },
                "nodeAffinityPolicy": policy("Whether machines that nodeSelector rules out count. Default: Honor."),
                "nodeTaintsPolicy": policy("Whether machines with taints that are not tolerated count. Default: Ignore."),
            },
        },
    })
}

/// A list of `NetworkPolicyPeer` of `networking.k8s.io/v1`.
pub(super) fn peers(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 32,
        "x-kubernetes-list-type": "atomic",
        "items": {
            "description": "Pods or addresses.",
            "type": "object",
            "properties": {
                "podSelector": selector("The pods, of this namespace unless namespaceSelector says otherwise."),
                "namespaceSelector": selector("The namespaces of the pods."),
                "ipBlock": {
                    "description": "Addresses, instead of pods.",
                    "type": "object",
                    "required": ["cidr"],
                    "properties": {
                        "cidr": {"description": "A range, such as 10.0.0.0/8.", "type": "string", "maxLength": 43},
                        "except": {
                            "description": "Ranges within it that are left out.",
                            "type": "array", "maxItems": 32, "x-kubernetes-list-type": "atomic",
                            "items": {"type": "string", "maxLength": 43},
                        },
                    },
                },
            },
        },
    })
}

/// `LabelSelector` of `meta/v1`.
fn selector(description: &str) -> Value {
    json!({
        "description": description,
        "type": "object",
        "properties": {
            "matchLabels": {
                "description": "Labels with their values.",
                "type": "object", "maxProperties": 32, "additionalProperties": {"type": "string", "maxLength": 63},
            },
            "matchExpressions": {
                "description": "Conditions on labels, all of which hold.",
                "type": "array", "maxItems": 16, "x-kubernetes-list-type": "atomic",
                "items": {
                    "description": "A condition on a label.",
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {"description": "The label.", "type": "string", "maxLength": 316},
                        "operator": {
                            "description": "How it is compared.",
                            "type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"],
                        },
                        "values": {
                            "description": "What it is compared with, for In and NotIn.",
                            "type": "array", "maxItems": 32, "x-kubernetes-list-type": "atomic",
                            "items": {"type": "string", "maxLength": 63},
                        },
                    },
                },
            },
        },
    })
}
