//! Tests of values about the network: Services, policies and the network of the nodes.

use serde_json::{Value, json};

use crate::kit::{deep, of_manager, render};

#[test]
fn network_policy_admits_container_ports() {
    let peers = json!([{"podSelector": {"matchLabels": {"app": "prometheus"}}}]);
    let rendered = render(&json!({"networkPolicy": {"enabled": true, "metricsFrom": peers}}));
    let ingress = &of_manager(&rendered, "NetworkPolicy")["spec"]["ingress"];
    let ports: Vec<_> = deep(ingress, "port").into_iter().filter_map(Value::as_i64).collect();
    assert_eq!(ports, [8081, 9443, 8443]);
    assert_eq!((&ingress[2]["from"], &ingress[0]["from"]), (&peers, &Value::Null));
}

#[test]
fn another_port_holds_in_each_place() {
    for kind in ["metrics-proxy", "kube-rbac-proxy", "builtin"] {
        let metrics = json!({"port": 7443, "proxy": {"kind": kind}, "prometheusScrapeAnnotations": true});
        let webhooks = json!({"port": 7444});
        let rendered = render(&json!({"metrics": metrics, "webhooks": webhooks, "networkPolicy": {"enabled": true}}));
        for default in ["8443", "9443"] {
            let line = rendered.text.lines().find(|line| line.contains(default));
            assert_eq!(line, None, "{kind}");
        }
        let pod = &of_manager(&rendered, "Deployment")["spec"]["template"]["spec"];
        let named: Vec<_> = deep(pod, "ports").into_iter().flat_map(|ports| ports.as_array().unwrap()).collect();
        for (name, port) in [("metrics", 7443), ("webhooks", 7444)] {
            assert!(named.contains(&&json!({"name": name, "containerPort": port})), "{kind}: {named:?}");
            assert!(
                deep(pod, "args").iter().any(|args| args.to_string().contains(&format!(":{port}\""))),
                "{kind}: {name}"
            );
        }
        let ingress = &of_manager(&rendered, "NetworkPolicy")["spec"]["ingress"];
        let admitted: Vec<_> = deep(ingress, "port").into_iter().filter_map(Value::as_i64).collect();
        assert_eq!(admitted, [8081, 7444, 7443], "{kind}");
        let service = rendered.object("Service", "operators-controller-manager-metrics").unwrap();
        assert_eq!(service["spec"]["ports"][0]["port"], 7443, "{kind}");
        assert_eq!(service["metadata"]["annotations"]["prometheus.io/port"], "7443", "{kind}");
    }
}

#[test]
fn on_the_nodes_network_a_pod_stops_before_its_replacement_starts() {
    let strategy = |values: Value| of_manager(&render(&values), "Deployment")["spec"]["strategy"].clone();
    let in_place = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}});
    assert_eq!(strategy(json!({})), Value::Null);
    assert_eq!(strategy(json!({"webhooks": {"hostNetwork": true}})), in_place);
    let on_host = render(&json!({"webhooks": {"hostNetwork": true}}));
    let pod = &of_manager(&on_host, "Deployment")["spec"]["template"]["spec"];
    assert_eq!((&pod["hostNetwork"], &pod["dnsPolicy"]), (&json!(true), &json!("ClusterFirstWithHostNet")));
    let own = json!({"type": "Recreate"});
    assert_eq!(strategy(json!({"webhooks": {"hostNetwork": true}, "strategy": own})), own);
}

#[test]
fn services_have_annotations_and_ip_families() {
    let service =
        json!({"annotations": {"a": "b"}, "ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6", "IPv4"]});
    let rendered = render(&json!({"service": service, "metrics": {"prometheusScrapeAnnotations": true}}));
    assert_eq!(rendered.of("Service").count(), 3);
    for object in rendered.of("Service") {
        assert_eq!(object["metadata"]["annotations"]["a"], "b", "{}", object["metadata"]["name"]);
        assert_eq!(object["spec"]["ipFamilyPolicy"], "PreferDualStack");
        assert_eq!(object["spec"]["ipFamilies"], json!(["IPv6", "IPv4"]));
    }
    let metrics = rendered.object("Service", "operators-controller-manager-metrics").unwrap();
    assert_eq!(metrics["metadata"]["annotations"]["prometheus.io/port"], "8443");
    assert!(render(&json!({})).of("Service").all(|it| it["spec"]["ipFamilies"].is_null()));
}

#[test]
fn network_policies_limit_egress_if_rules_are_given() {
    let egress = json!([{"ports": [{"port": 443}]}]);
    let rendered = render(&json!({"networkPolicy": {"enabled": true, "egress": egress}}));
    let spec = &of_manager(&rendered, "NetworkPolicy")["spec"];
    assert_eq!((&spec["policyTypes"], &spec["egress"]), (&json!(["Ingress", "Egress"]), &egress));
    let server = &rendered.object("NetworkPolicy", "operators-booking-server").unwrap()["spec"];
    assert_eq!((&server["policyTypes"], &server["egress"]), (&json!(["Ingress", "Egress"]), &Value::Null));
    let without = render(&json!({"networkPolicy": {"enabled": true}}));
    assert!(without.of("NetworkPolicy").all(|policy| policy["spec"]["policyTypes"] == json!(["Ingress"])));
}

#[test]
fn operators_trust_the_authorities_of_a_config_map_or_secret() {
    let items = json!([{"key": "root.pem", "path": "root.pem"}]);
    for (value, volume) in [
        ("configMapName", json!({"name": "ca-bundle", "configMap": {"name": "authorities", "items": items}})),
        ("secretName", json!({"name": "ca-bundle", "secret": {"secretName": "authorities", "items": items}})),
    ] {
        let rendered = render(&json!({"caBundle": {value: "authorities", "key": "root.pem"}}));
        let pod = &of_manager(&rendered, "Deployment")["spec"]["template"]["spec"];
        assert_eq!(pod["volumes"][0], volume, "only the authorities, not a key beside them");
        let manager = &pod["containers"][0];
        let mount = json!({"name": "ca-bundle", "mountPath": "/certificates/authorities", "readOnly": true});
        assert_eq!(manager["volumeMounts"], json!([mount]));
        let variable = json!({"name": "SSL_CERT_FILE", "value": "/certificates/authorities/root.pem"});
        assert!(manager["env"].as_array().unwrap().contains(&variable), "{}", manager["env"]);
    }
    assert!(!render(&json!({})).text.contains("SSL_CERT_FILE"));
}

/// Nodes learn with a delay that a pod stops. A request for a webhook that they send to it meanwhile must not fail.
#[test]
fn new_pod_counts_when_the_nodes_know_it() {
    let seconds = |values: &Value| of_manager(&render(values), "Deployment")["spec"]["minReadySeconds"].clone();
    assert_eq!([seconds(&json!({})), seconds(&json!({"minReadySeconds": 0}))], [3, 0]);
}

#[test]
fn stopping_pod_answers_until_the_nodes_know() {
    let pod = |values: &Value| of_manager(&render(values), "Deployment")["spec"]["template"]["spec"].clone();
    let usual = pod(&json!({}));
    let sleeps: Vec<_> = usual["containers"].as_array().unwrap().iter().map(|it| &it["lifecycle"]["preStop"]).collect();
    assert_eq!(sleeps, [&json!({"sleep": {"seconds": 5}}); 2], "of the operators and of the sidecar");
    let graceful = 30; // the default of --graceful-shutdown-timeout
    assert!(usual["terminationGracePeriodSeconds"].as_i64().unwrap() > 5 + graceful);
    let at_once = pod(&json!({"shutdownDelaySeconds": 0}));
    assert!(at_once["containers"].as_array().unwrap().iter().all(|it| it["lifecycle"].is_null()));
}
