//! The network policy, which limits the clients that reach the pods.

use k8s_openapi::{
    api::networking::v1::{
        NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
    },
    apimachinery::pkg::{apis::meta::v1::LabelSelector, util::intstr::IntOrString},
};
use kube::ResourceExt;
use workloads::{App, normalize};

use super::{deployment, exporter};
use crate::api::Memcached;

/// Returns the network policy; `None` if it is disabled. With it, only the peers reach the pods, including their exporters.
///
/// It names the ports instead of their numbers: while a new number is rolled out, old and new pods listen on different ones.
pub fn network_policy(memcached: &Memcached) -> Option<NetworkPolicy> {
    let spec = &memcached.spec;
    let settings = spec.network_policy.as_ref().filter(|it| it.enabled)?;
    let app = App::of(memcached);
    let neighbours = || NetworkPolicyPeer { pod_selector: Some(LabelSelector::default()), ..Default::default() };
    let port = |name: &str| NetworkPolicyPort {
        port: Some(IntOrString::String(name.to_owned())),
        protocol: Some("TCP".to_owned()),
        ..Default::default()
    };
    let rule = |from: &[NetworkPolicyPeer], ports: &[&str]| NetworkPolicyIngressRule {
        from: normalize::list(from).or_else(|| Some(vec![neighbours()])),
        ports: Some(ports.iter().map(|name| port(name)).collect()),
    };
    let ingress = match spec.metrics() {
        None => vec![rule(&settings.from, &[deployment::PORT])],
        Some(metrics) if metrics.from.is_empty() => vec![rule(&settings.from, &[deployment::PORT, exporter::PORT])],
        Some(metrics) => vec![rule(&settings.from, &[deployment::PORT]), rule(&metrics.from, &[exporter::PORT])],
    };
    Some(NetworkPolicy {
        metadata: app.metadata(memcached.name_any()),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(app.label_selector()),
            policy_types: Some(vec!["Ingress".to_owned()]),
            ingress: Some(ingress),
            egress: None,
        }),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{config::Config, samples};

    fn of(spec: &Value) -> Value {
        serde_json::to_value(network_policy(&samples::with_spec(spec)).and_then(|it| it.spec)).expect("JSON")
    }

    #[test]
    fn policy_without_peers_admits_pods_of_the_namespace() {
        assert_eq!(of(&json!({})), Value::Null);
        assert_eq!(of(&json!({"networkPolicy": {}})), Value::Null);
        let tcp = |port: &str| json!({"port": port, "protocol": "TCP"});
        assert_eq!(
            of(&json!({"networkPolicy": {"enabled": true}})),
            json!({
                "podSelector": {"matchLabels": {
                    "app.kubernetes.io/name": "memcached", "app.kubernetes.io/instance": "memcached-sample",
                }},
                "policyTypes": ["Ingress"],
                "ingress": [{"from": [{"podSelector": {}}], "ports": [tcp("memcached")]}],
            })
        );
        let metrics =
            json!({"networkPolicy": {"enabled": true}, "port": 2000, "metrics": {"enabled": true, "port": 2001}});
        assert_eq!(of(&metrics)["ingress"][0]["ports"], json!([tcp("memcached"), tcp("metrics")]));
    }

    /// While a change of the ports is rolled out, pods with the old and with the new numbers run under the one policy.
    #[test]
    fn policy_admits_clients_of_old_and_new_pods_while_ports_change() {
        let spec = |port: i32, metrics: i32| {
            let metrics = json!({"enabled": true, "port": metrics});
            json!({"networkPolicy": {"enabled": true}, "port": port, "metrics": metrics})
        };
        let (old, new) = (spec(11211, 9150), spec(2000, 2001));
        assert_eq!(of(&old), of(&new));
        let policy = of(&new);
        let admitted: Vec<_> = policy["ingress"][0]["ports"].as_array().expect("ports").iter().collect();
        for (spec, numbers) in [(old, [11211, 9150]), (new, [2000, 2001])] {
            let pods = deployment(&samples::with_spec(&spec), &Config::default(), None).spec.expect("a spec").template;
            let containers = pods.spec.expect("a pod").containers;
            let ports: Vec<_> = containers.into_iter().flat_map(|it| it.ports.unwrap_or_default()).collect();
            let number =
                |name: &Value| ports.iter().find(|it| it.name.as_deref() == name.as_str()).map(|it| it.container_port);
            let reached: Vec<_> = admitted.iter().map(|port| number(&port["port"])).collect();
            assert_eq!(reached, numbers.map(Some), "{spec}");
        }
    }

    #[test]
    fn exporters_can_have_other_clients_than_memcached() {
        let prometheus = json!([{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]);
        let policy = of(&json!({"networkPolicy": {"enabled": true}, "metrics": {"enabled": true, "from": prometheus}}));
        let port = |name: &str| json!([{"port": name, "protocol": "TCP"}]);
        assert_eq!(
            policy["ingress"],
            json!([
                {"from": [{"podSelector": {}}], "ports": port("memcached")},
                {"from": prometheus, "ports": port("metrics")},
            ])
        );
        let off = of(&json!({"networkPolicy": {"enabled": true}, "metrics": {"from": prometheus}}));
        assert_eq!(off["ingress"], json!([{"from": [{"podSelector": {}}], "ports": port("memcached")}]));
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
