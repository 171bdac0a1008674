//! On which nodes of the cluster the pods run: what users draw of it, and what the pods have of it.

use fastrand::Rng;
use serde_json::{Map, Value, json};
use simulation::oracle::selector;

use super::one_of;

/// The lists of rules about neighbours that the scheduler prefers, and that it requires.
pub(super) const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
pub(super) const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// Draws `spec.antiAffinity` and `spec.nodeSelector`; null where they are absent.
pub(super) fn draw(rng: &mut Rng) -> Map<String, Value> {
    let values = [
        ("antiAffinity", json!(one_of(rng, &["Soft", "Hard", "None"]))),
        ("nodeSelector", json!({"disk": one_of(rng, &["fast", "slow"])})),
    ];
    let mut sometimes = |value| if rng.u8(..4) == 0 { value } else { Value::Null };
    values.into_iter().map(|(field, value)| (field.to_owned(), sometimes(value))).collect()
}

pub(super) fn anti_affinity(spec: &Value) -> &str {
    spec["antiAffinity"].as_str().unwrap_or("Soft")
}

/// Sections 2.1 and 2.3 of the specification: no two pods of an object share a node, if possible or in any case.
pub(super) fn place(pod: &mut Value, name: &str, spec: &Value) {
    let labels = json!({"matchLabels": selector("memcached", name)});
    let apart = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": labels});
    match anti_affinity(spec) {
        "Soft" => pod["affinity"]["podAntiAffinity"][PREFERRED] = json!([{"weight": 100, "podAffinityTerm": apart}]),
        "Hard" => pod["affinity"]["podAntiAffinity"][REQUIRED] = json!([apart]),
        _ => {}
    }
    // Those who apply a spec without the only label may leave an empty selector.
    if !spec["nodeSelector"]["disk"].is_null() {
        pod["nodeSelector"] = spec["nodeSelector"].clone();
    }
}
