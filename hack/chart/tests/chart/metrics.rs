//! How metrics are exposed, and the objects that make Prometheus scrape them.

use chart::NAMESPACE;
use serde_json::{Value, json};

use crate::kit::{deep, flags, helm, of_manager, render};

#[test]
fn metrics_use_selected_proxy() {
    let containers = |kind: &str| {
        let rendered = render(&json!({"metrics": {"proxy": {"kind": kind}}}));
        let spec = &of_manager(&rendered, "Deployment")["spec"]["template"]["spec"];
        let service = rendered.object("Service", "operators-controller-manager-metrics").unwrap();
        let port = service["spec"]["ports"][0]["port"].as_i64().unwrap();
        (spec["containers"].as_array().unwrap().clone(), port, flags(&rendered))
    };
    let (own, port, _) = containers("metrics-proxy");
    assert_eq!(
        (own.len(), &own[1]["image"], &own[1]["command"], port),
        (2, &own[0]["image"], &json!(["/metrics-proxy"]), 8443)
    );
    let (upstream, _, _) = containers("kube-rbac-proxy");
    assert_eq!(upstream[1]["image"], "quay.io/brancz/kube-rbac-proxy:v0.21.0");
    assert_eq!(upstream[1]["args"], own[1]["args"], "each can replace the other");
    assert!(!own[1]["args"].to_string().contains("ignore-paths"), "the proxy would let in all clients");
    let (builtin, port, flags) = containers("builtin");
    assert_eq!((builtin.len(), port, deep(&builtin[0]["ports"], "containerPort").len()), (1, 8443, 3));
    assert!(
        flags.contains(&"--metrics-secure".to_owned()) && flags.contains(&"--metrics-bind-address=:8443".to_owned())
    );
    let (plain, port, flags) = containers("none");
    assert_eq!((plain.len(), port), (1, 8080));
    assert!(flags.contains(&"--metrics-bind-address=:8080".to_owned()));
    let off = render(&json!({"metrics": {"enabled": false}}));
    assert!(self::flags(&off).contains(&"--metrics-bind-address=0".to_owned()));
    assert!(off.object("Service", "operators-controller-manager-metrics").is_none());
}

#[test]
fn monitors_use_token_secret_and_are_not_silently_skipped() {
    let rendered = render(&json!({"metrics": {"serviceMonitor": {"enabled": true}}}));
    let monitor = rendered.of("ServiceMonitor").next().unwrap();
    let endpoint = &monitor["spec"]["endpoints"][0];
    assert_eq!(endpoint["authorization"]["credentials"], json!({"name": "operators-metrics-reader", "key": "token"}));
    assert!(!rendered.text.contains("bearerTokenFile"));
    let secret = rendered.object("Secret", "operators-metrics-reader").unwrap();
    assert_eq!((&secret["data"], &secret["type"]), (&Value::Null, &json!("kubernetes.io/service-account-token")));
    assert!(rendered.object("ClusterRoleBinding", "operators-metrics-reader").is_some());

    let own = render(&json!({"metrics": {"podMonitor": {"enabled": true, "tokenSecret": {"name": "prometheus"}}}}));
    let endpoint = own.of("PodMonitor").next().unwrap()["spec"]["podMetricsEndpoints"][0].clone();
    assert_eq!(endpoint["authorization"]["credentials"]["name"], "prometheus");
    assert!(own.of("Secret").next().is_none());

    let skipped = json!({"metrics": {"serviceMonitor": {"enabled": true, "ifMissing": "skip"}}});
    assert!(render(&skipped).of("ServiceMonitor").next().is_none());
    let known = helm().template(&skipped, &["--api-versions", "monitoring.coreos.com/v1/ServiceMonitor"]).unwrap();
    assert!(known.of("ServiceMonitor").next().is_some());
}

#[test]
fn monitors_can_be_in_the_namespace_of_prometheus() {
    let monitor = json!({"enabled": true, "namespace": "monitoring"});
    let rendered = render(&json!({"metrics": {"serviceMonitor": monitor}}));
    let monitor = rendered.of("ServiceMonitor").next().unwrap();
    assert_eq!(monitor["metadata"]["namespace"], "monitoring");
    assert_eq!(monitor["spec"]["namespaceSelector"], json!({"matchNames": [NAMESPACE]}));
    let secret = rendered.object("Secret", "operators-metrics-reader").unwrap();
    assert_eq!(secret["metadata"]["namespace"], "monitoring", "a monitor reads only Secrets of its own namespace");
    let binding = rendered.object("ClusterRoleBinding", "operators-metrics-reader").unwrap();
    assert_eq!(binding["subjects"][0]["namespace"], "monitoring");
}
