//! Schemas of core types with selectors: spread constraints, affinity, network policy peers.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// A list of `TopologySpreadConstraint` of `core/v1`.
pub fn spread_constraints(_: &mut SchemaGenerator) -> Schema {
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
                "labelSelector": selector("The pods to count. Default: the pods of this object."),
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

/// `Affinity` of `core/v1`.
pub fn affinity(_: &mut SchemaGenerator) -> Schema {
    let mut terms = list(8, "The Kubernetes nodes that fulfil one of these terms.", &nodes());
    terms["minItems"] = json!(1);
    let preferred = json!({
        "description": "A preference.",
        "type": "object",
        "required": ["weight", "preference"],
        "properties": {"weight": weight(), "preference": nodes()},
    });
    json_schema!({
        "type": "object",
        "properties": {
            "nodeAffinity": {
                "description": "Which Kubernetes nodes may or should run the pods.",
                "type": "object",
                "properties": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "description": "What must hold.",
                        "type": "object",
                        "required": ["nodeSelectorTerms"],
                        "properties": {"nodeSelectorTerms": terms},
                    },
                    "preferredDuringSchedulingIgnoredDuringExecution": list(8, "What the scheduler prefers.", &preferred),
                },
            },
            "podAffinity": neighbours("Near which other pods the pods must or should run."),
            "podAntiAffinity": neighbours("Away from which other pods the pods must or should run."),
        },
    })
}

fn list(most: u32, description: &str, items: &Value) -> Value {
    json!({
        "description": description, "type": "array", "maxItems": most, "x-kubernetes-list-type": "atomic", "items": items,
    })
}

fn weight() -> Value {
    json!({
        "description": "How much the preference counts.", "type": "integer", "format": "int32", "minimum": 1, "maximum": 100,
    })
}

/// `NodeSelectorTerm` of `core/v1`.
fn nodes() -> Value {
    let operators = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"];
    let values = "The values to compare with: one for Gt and Lt, none for Exists and DoesNotExist.";
    let condition = condition("A condition.", ["The label or field.", "How it is compared.", values], &operators);
    json!({
        "description": "Kubernetes nodes.",
        "type": "object",
        "properties": {
            "matchExpressions": list(16, "Conditions on labels; all of them must hold.", &condition),
            "matchFields": list(16, "Conditions on fields, such as metadata.name; all of them must hold.", &condition),
        },
    })
}

/// `PodAffinity` or `PodAntiAffinity` of `core/v1`.
fn neighbours(description: &str) -> Value {
    let label = json!({"type": "string", "maxLength": 316});
    let namespace = json!({"type": "string", "maxLength": 63});
    let term = json!({
        "description": "Pods, and the domain that they share.",
        "type": "object",
        "required": ["topologyKey"],
        "properties": {
            "labelSelector": selector("The pods. Default: none."),
            "topologyKey": {
                "description": "The label of Kubernetes nodes that names their domain, such as kubernetes.io/hostname.",
                "type": "string", "minLength": 1, "maxLength": 316,
            },
            "namespaces": list(16, "The namespaces of the pods. Default: this namespace.", &namespace),
            "namespaceSelector": selector("Further namespaces of the pods."),
            "matchLabelKeys": list(
                8, "Labels such as pod-template-hash: only pods with the same values as the new pod count.", &label,
            ),
            "mismatchLabelKeys": list(8, "Labels: only pods with other values than the new pod count.", &label),
        },
    });
    let preferred = json!({
        "description": "A preference.",
        "type": "object",
        "required": ["weight", "podAffinityTerm"],
        "properties": {"weight": weight(), "podAffinityTerm": term},
    });
    json!({
        "description": description,
        "type": "object",
        "properties": {
            "requiredDuringSchedulingIgnoredDuringExecution": list(8, "What must hold.", &term),
            "preferredDuringSchedulingIgnoredDuringExecution": list(8, "What the scheduler prefers.", &preferred),
        },
    })
}

/// A list of `NetworkPolicyPeer` of `networking.k8s.io/v1`.
pub fn peers(_: &mut SchemaGenerator) -> Schema {
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
    let operators = ["In", "NotIn", "Exists", "DoesNotExist"];
    let texts = ["The label.", "How the label is compared.", "The values to compare with, for In and NotIn."];
    let condition = condition("A condition on a label.", texts, &operators);
    json!({
        "description": description,
        "type": "object",
        "properties": {
            "matchLabels": {
                "description": "Labels with their values.",
                "type": "object", "maxProperties": 32, "additionalProperties": {"type": "string", "maxLength": 63},
            },
            "matchExpressions": list(16, "Conditions on labels; all of them must hold.", &condition),
        },
    })
}

/// `NodeSelectorRequirement` of `core/v1` or `LabelSelectorRequirement` of `meta/v1`, with the descriptions of key, operator and
/// values.
fn condition(description: &str, [key, operator, values]: [&str; 3], operators: &[&str]) -> Value {
    json!({
        "description": description,
        "type": "object",
        "required": ["key", "operator"],
        "properties": {
            "key": {"description": key, "type": "string", "maxLength": 316},
            "operator": {"description": operator, "type": "string", "enum": operators},
            "values": list(32, values, &json!({"type": "string", "maxLength": 63})),
        },
    })
}
