use kube::CustomResourceExt;
use serde_json::{Value, json};

use super::*;

fn schema() -> Value {
    let definition = serde_json::to_value(Memcached::crd()).expect("JSON");
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

/// Calls `visit` with the path and the schema of every field.
fn for_each_field(path: &str, schema: &Value, visit: &mut dyn FnMut(&str, &Value)) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        visit(&path, field);
        for_each_field(&path, field, visit);
        for_each_field(&format!("{path}[]"), &field["items"], visit);
    }
}

#[test]
fn every_field_has_a_description() {
    for_each_field("", &schema(), &mut |path, field| {
        assert!(field["description"].as_str().is_some_and(|it| !it.is_empty()), "{path}");
    });
}

#[test]
fn every_optional_field_of_the_spec_names_its_default() {
    for_each_field("", &schema()["properties"]["spec"], &mut |path, field| {
        let description = field["description"].as_str().unwrap_or_default();
        let is_leaf = field.get("properties").is_none() && !path.contains("[]");
        assert!(!is_leaf || path.contains(".resources.") || description.contains("Default: "), "{path}");
    });
}

/// Without bounds, the API server would refuse the validation rules as too expensive.
#[test]
fn every_text_list_and_map_has_a_bound() {
    fn check(path: &str, schema: &Value) {
        let bounded_by = match schema["type"].as_str() {
            Some("string") if schema.get("enum").is_none() && schema["format"] != "date-time" => "maxLength",
            Some("array") => "maxItems",
            Some("object") if schema.get("additionalProperties").is_some() => "maxProperties",
            None if schema["x-kubernetes-int-or-string"] == true => "maxLength",
            _ => return,
        };
        assert!(schema.get(bounded_by).is_some(), "{path} has no {bounded_by}");
    }
    for_each_field("", &schema(), &mut |path, field| {
        check(path, field);
        for inner in ["items", "additionalProperties"] {
            check(&format!("{path}[]"), &field[inner]);
        }
    });
}

#[test]
fn schema_restricts_item_sizes() {
    let config = &schema()["properties"]["spec"]["properties"]["config"];
    let size = &config["properties"]["maxItemSizeKiB"];
    assert_eq!((size["multipleOf"].as_f64(), size["minimum"].as_f64()), (Some(512.0), Some(512.0)));
    assert_eq!(config["x-kubernetes-validations"][0]["rule"], "self.maxItemSizeKiB <= self.memoryMB * 512");
}

#[test]
fn absent_objects_get_no_defaults() {
    let absent: MemcachedSpec = serde_json::from_value(json!({})).expect("a spec");
    assert_eq!(serde_json::to_value(&absent).expect("JSON"), json!({"size": 1}));

    let spec = &schema()["properties"]["spec"];
    assert_eq!(spec["properties"]["size"]["default"], 1);
    for object in ["config", "podDisruptionBudget", "service", "rollout", "tls", "auth", "networkPolicy", "metrics"] {
        assert_eq!(spec["properties"][object].get("default"), None, "{object}");
    }
}

#[test]
fn partial_objects_get_defaults() {
    let spec: MemcachedSpec =
        serde_json::from_value(json!({"config": {"threads": 8}, "rollout": {"maxSurge": "10%"}})).expect("a spec");
    assert_eq!(spec.config(), CacheConfig { threads: 8, ..CacheConfig::default() });
    assert_eq!(spec.rollout().min_ready_seconds, 10);

    // The API server does the same.
    let schema = schema();
    let default = |field: &str| schema.pointer(&format!("/properties/spec/properties/{field}/default")).cloned();
    for (field, expected) in [
        ("config/properties/memoryMB", json!(64)),
        ("config/properties/maxConnections", json!(1024)),
        ("config/properties/evictions", json!(true)),
        ("podDisruptionBudget/properties/mode", json!("Auto")),
        ("podDisruptionBudget/properties/maxUnavailable", json!(1)),
        ("service/properties/type", json!("Headless")),
        ("rollout/properties/maxUnavailable", json!(0)),
        ("tls/properties/clientAuth", json!("None")),
        ("tls/properties/generate", json!(false)),
        ("auth/properties/generate", json!(false)),
        ("auth/properties/key", json!("password-file")),
        ("networkPolicy/properties/enabled", json!(false)),
        ("metrics/properties/port", json!(9150)),
        ("metrics/properties/serviceMonitor/properties/interval", json!("30s")),
    ] {
        assert_eq!(default(field), Some(expected), "{field}");
    }
    assert_eq!(default("config/properties/extraArgs"), None);
    assert_eq!(default("metrics/properties/serviceMonitor"), None);
}

#[test]
fn crd_defines_names_columns_and_scale() {
    let definition = serde_json::to_value(Memcached::crd()).expect("JSON");
    assert_eq!(definition["metadata"]["name"], "memcacheds.memcached.cache.example.com");
    assert_eq!(definition["spec"]["names"]["shortNames"], json!(["mc"]));
    assert_eq!(definition["spec"]["names"]["categories"], json!(["all"]));

    let version = &definition["spec"]["versions"][0];
    assert_eq!(
        version["additionalPrinterColumns"],
        json!([
            {"name": "SIZE", "type": "integer", "jsonPath": ".spec.size"},
            {"name": "READY", "type": "integer", "jsonPath": ".status.readyReplicas"},
            {"name": "STATUS", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].reason"},
            {"name": "IMAGE", "type": "string", "jsonPath": ".status.image", "priority": 1},
            {"name": "AGE", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
            {
                "name": "MESSAGE", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].message",
                "priority": 1,
            },
        ])
    );
    assert_eq!(
        version["subresources"],
        json!({
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.size",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.labelSelector",
            },
        })
    );
}
