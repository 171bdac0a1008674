//! The network policy, which limits the clients that reach the pods.

use k8s_openapi::{
    api::networking::v1::{
        NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
    },
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};
use kube::ResourceExt;
use workloads::{App, normalize};

use crate::api::Memcached;

/// Returns the network policy; `None` if it is disabled. With it, only the peers reach the pods, including their exporters.
pub fn network_policy(memcached: &Memcached) -> Option<NetworkPolicy> {
    let spec = &memcached.spec;
    let settings = spec.network_policy.as_ref().filter(|it| it.enabled)?;
    let app = App::of(memcached);
    let neighbours = || NetworkPolicyPeer { pod_selector: Some(LabelSelector::default()), ..Default::default() };
    let ports = std::iter::once(spec.port()).chain(spec.metrics().map(|it| it.port));
    let port = |number| NetworkPolicyPort {
        port: Some(IntOrString::Int(number)),
        protocol: Some("TCP".to_owned()),
        ..Default::default()
    };
    Some(NetworkPolicy {
        metadata: app.metadata(memcached.name_any()),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(app.label_selector()),
            policy_types: Some(vec!["Ingress".to_owned()]),
            ingress: Some(vec![NetworkPolicyIngressRule {
                from: normalize::list(&settings.from).or_else(|| Some(vec![neighbours()])),
                ports: Some(ports.map(port).collect()),
            }]),
            egress: None,
        }),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::samples;

    fn of(spec: &Value) -> Value {
        serde_json::to_value(network_policy(&samples::with_spec(spec)).and_then(|it| it.spec)).expect("JSON")
    }

    #[test]
    fn policy_without_peers_admits_pods_of_the_namespace() {
        assert_eq!(of(&json!({})), Value::Null);
        assert_eq!(of(&json!({"networkPolicy": {}})), Value::Null);
        let tcp = |port: i32| json!({"port": port, "protocol": "TCP"});
        assert_eq!(
            of(&json!({"networkPolicy": {"enabled": true}})),
            json!({
                "podSelector": {"matchLabels": {
                    "app.kubernetes.io/name": "memcached", "app.kubernetes.io/instance": "memcached-sample",
                }},
                "policyTypes": ["Ingress"],
                "ingress": [{"from": [{"podSelector": {}}], "ports": [tcp(11211)]}],
            })
        );
        let metrics =
            json!({"networkPolicy": {"enabled": true}, "port": 2000, "metrics": {"enabled": true, "port": 2001}});
        assert_eq!(of(&metrics)["ingress"][0]["ports"], json!([tcp(2000), tcp(2001)]));
    }

    #[test]
    fn peers_are_normalized_as_by_the_api_server() {
        let from = json!([
            {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "shop"}, "matchExpressions": []}},
            {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}},
        ]);
        assert_eq!(
            of(&json!({"networkPolicy": {"enabled": true, "from": from}}))["ingress"][0]["from"],
            json!([
                {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "shop"}}},
                {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}},
            ])
        );
    }
}
