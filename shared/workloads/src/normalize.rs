//! Normalizes the user's values to the form in which the API server stores them. The API server drops empty strings and lists
//! and rewrites quantities. A child in any other form would always differ from its stored object, so the operator would update
//! it for ever.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::ResourceRequirements, apimachinery::pkg::api::resource::Quantity};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::quantity;

/// Normalizes labels, annotations or a node selector.
pub fn map(given: &BTreeMap<String, String>) -> Option<BTreeMap<String, String>> {
    (!given.is_empty()).then(|| given.clone())
}

/// Normalizes a list of objects of the core API: variables, volumes, tolerations.
pub fn list<T: Serialize + DeserializeOwned + Clone>(given: &[T]) -> Option<Vec<T>> {
    let kept = |item: &T| {
        let mut value = serde_json::to_value(item).ok()?;
        prune(&mut value);
        serde_json::from_value(value).ok()
    };
    // The fallback never applies: an item that was read from JSON can be written as JSON and read again.
    let kept = given.iter().map(|item| kept(item).unwrap_or_else(|| item.clone())).collect();
    (!given.is_empty()).then_some(kept)
}

/// Normalizes an object of the core API, such as an affinity.
pub fn object<T: Serialize + DeserializeOwned + Clone>(given: Option<&T>) -> Option<T> {
    list(std::slice::from_ref(given?))?.pop()
}

/// Normalizes the requests and limits of a container.
pub fn resources(given: &ResourceRequirements) -> Option<ResourceRequirements> {
    let amounts = |given: &Option<BTreeMap<String, Quantity>>| {
        let normal = |it: &Quantity| Quantity(quantity::normal(&it.0).unwrap_or_else(|| it.0.clone()));
        let given = given.as_ref().filter(|it| !it.is_empty())?;
        Some(given.iter().map(|(name, amount)| (name.clone(), normal(amount))).collect())
    };
    let resources =
        ResourceRequirements { requests: amounts(&given.requests), limits: amounts(&given.limits), claims: None };
    Some(resources).filter(|it| *it != ResourceRequirements::default())
}

/// Normalizes the requests and limits of a container. Without any, the container requests 50m CPU and 64Mi memory, so that the
/// scheduler spreads the pods, and has no limits.
pub fn resources_or_default(given: Option<&ResourceRequirements>) -> Option<ResourceRequirements> {
    let Some(given) = given else {
        let requests = [("cpu", "50m"), ("memory", "64Mi")];
        let requests = requests.map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned())));
        return Some(ResourceRequirements { requests: Some(requests.into()), ..Default::default() });
    };
    resources(given)
}

fn prune(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            // The API server keeps labels with an empty value. A selector without one of them would select more.
            fields.iter_mut().filter(|(name, _)| *name != "matchLabels").for_each(|(_, value)| prune(value));
            fields.retain(|name, value| {
                *value != json!("") && *value != json!([]) && !(name == "readOnly" && *value == json!(false))
            });
            if let Some(size) = fields.get_mut("sizeLimit")
                && let Some(normal) = size.as_str().and_then(quantity::normal)
            {
                *size = normal.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(prune),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::{
        core::v1::{Affinity, EnvVar, TopologySpreadConstraint, Volume, VolumeMount},
        networking::v1::NetworkPolicyPeer,
    };

    use super::*;

    fn kept<T: Serialize + DeserializeOwned + Clone>(items: Value) -> Value {
        let given: Vec<T> = serde_json::from_value(items).expect("a list of that kind");
        serde_json::to_value(list(&given)).expect("JSON")
    }

    #[test]
    fn fields_dropped_by_the_api_server_are_not_sent() {
        let optional = json!({"secretKeyRef": {"name": "s", "key": "k", "optional": false}});
        assert_eq!(
            kept::<EnvVar>(json!([{"name": "A", "value": ""}, {"name": "B", "valueFrom": optional}])),
            json!([{"name": "A"}, {"name": "B", "valueFrom": optional}])
        );
        assert_eq!(
            kept::<VolumeMount>(json!([{"name": "a", "mountPath": "/a", "subPath": "", "readOnly": false}])),
            json!([{"name": "a", "mountPath": "/a"}])
        );
        assert_eq!(
            kept::<Volume>(json!([
                {"name": "a", "emptyDir": {"medium": "", "sizeLimit": "1024Mi"}},
                {"name": "b", "emptyDir": {}},
                {"name": "c", "configMap": {"name": "c", "items": []}},
            ])),
            json!([
                {"name": "a", "emptyDir": {"sizeLimit": "1Gi"}},
                {"name": "b", "emptyDir": {}},
                {"name": "c", "configMap": {"name": "c"}},
            ])
        );
        assert_eq!(kept::<EnvVar>(json!([])), Value::Null);
    }

    #[test]
    fn selectors_keep_labels_with_an_empty_value() {
        let selector = json!({"matchLabels": {"trusted": "", "zone": "a"}});
        let peers = json!([{"namespaceSelector": selector, "podSelector": {"matchLabels": {"role": ""}}}]);
        assert_eq!(kept::<NetworkPolicyPeer>(peers.clone()), peers);
        let term = json!({"topologyKey": "zone", "labelSelector": selector});
        let affinity = json!([{"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}]);
        assert_eq!(kept::<Affinity>(affinity.clone()), affinity);
        let spread = json!([{
            "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector,
        }]);
        assert_eq!(kept::<TopologySpreadConstraint>(spread.clone()), spread);
    }

    #[test]
    fn quantities_are_normalized_as_by_the_api_server() {
        let resources = |given: Value| {
            let given: ResourceRequirements = serde_json::from_value(given).expect("resources");
            serde_json::to_value(resources(&given)).expect("JSON")
        };
        assert_eq!(
            resources(json!({"requests": {"cpu": "0.5", "memory": "1024Mi"}, "limits": {}})),
            json!({"requests": {"cpu": "500m", "memory": "1Gi"}})
        );
        assert_eq!(resources(json!({})), Value::Null);
    }
}
