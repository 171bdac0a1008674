//! Schemas of core types with selectors: spread constraints and network policy peers. They have bounds, because the API server
//! would refuse validation rules over a spec without bounds.

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
            "description": "How evenly the pods are spread over Kubernetes nodes, zones or other domains.",
            "type": "object",
            "required": ["maxSkew", "topologyKey", "whenUnsatisfiable"],
            "properties": {
                "maxSkew": {
                    "description": "By how many pods two domains may differ.",
                    "type": "integer", "format": "int32", "minimum": 1,
                },
                "topologyKey": {
                    "description": "The label of Kubernetes nodes that names their domain, such as topology.kubernetes.io/zone.",
                    "type": "string", "minLength": 1, "maxLength": 316,
                },
                "whenUnsatisfiable": {
                    "description": "What happens to a pod that no domain can take without exceeding maxSkew.",
                    "type": "string", "enum": ["DoNotSchedule", "ScheduleAnyway"],
                },
                "labelSelector": selector("The pods to count. Default: the pods of this Memcached."),
                "minDomains": {
                    "description": "The minimum number of domains. If fewer exist, the missing ones count as empty domains.",
                    "type": "integer", "format": "int32", "minimum": 1,
                },
                "matchLabelKeys": {
                    "description": "Labels such as pod-template-hash: only pods with the same values as the new pod are counted.",
                    "type": "array", "maxItems": 8, "x-kubernetes-list-type": "atomic",
                    "items": {"type": "string", "maxLength": 316},
                },
                "nodeAffinityPolicy": policy("Honor leaves out Kubernetes nodes that nodeSelector excludes. Default: Honor."),
                "nodeTaintsPolicy": policy("Honor leaves out Kubernetes nodes with untolerated taints. Default: Ignore."),
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
            "description": "Pods, or a range of addresses.",
            "type": "object",
            "properties": {
                "podSelector": selector("The pods. Without namespaceSelector: pods of this namespace."),
                "namespaceSelector": selector("The namespaces of the pods."),
                "ipBlock": {
                    "description": "Addresses, instead of pods.",
                    "type": "object",
                    "required": ["cidr"],
                    "properties": {
                        "cidr": {"description": "A range, such as 10.0.0.0/8.", "type": "string", "maxLength": 43},
                        "except": {
                            "description": "Ranges within cidr that are excluded.",
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
                "description": "Conditions on labels; all of them must hold.",
                "type": "array", "maxItems": 16, "x-kubernetes-list-type": "atomic",
                "items": {
                    "description": "A condition on a label.",
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {"description": "The label.", "type": "string", "maxLength": 316},
                        "operator": {
                            "description": "How the label is compared.",
                            "type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"],
                        },
                        "values": {
                            "description": "The values to compare with, for In and NotIn.",
                            "type": "array", "maxItems": 32, "x-kubernetes-list-type": "atomic",
                            "items": {"type": "string", "maxLength": 63},
                        },
                    },
                },
            },
        },
    })
}
