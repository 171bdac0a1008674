//! How metrics are exposed, and the objects that make Prometheus scrape them.

use chart::{NAMESPACE, rendered::Rendered};
use serde_json::{Value, json};

use crate::kit::{deep, flags, helm, of_manager, render};

/// Where Kubernetes clients look for the token of their account.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// What asking for reviews needs.
const REVIEWS: [&str; 2] = ["create subjectaccessreviews", "create tokenreviews"];

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

/// Clients without credentials reach the sidecar. A client that takes it over must not get the rights of the operators.
#[test]
fn sidecar_has_a_token_that_may_only_ask_for_reviews() {
    for (kind, topology) in
        [("metrics-proxy", "combined"), ("metrics-proxy", "separate"), ("kube-rbac-proxy", "combined")]
    {
        let rendered = render(&json!({"topology": topology, "metrics": {"proxy": {"kind": kind}}}));
        let mut accounts = Vec::new();
        for (owner, spec) in rendered.pods() {
            let containers = spec["containers"].as_array().unwrap();
            let Some(sidecar) = containers.iter().find(|it| it["name"] == "metrics-proxy") else { continue };
            let mounts = deep(sidecar, "volumeMounts")[0].as_array().unwrap();
            let token = mounts.iter().find(|it| it["mountPath"] == TOKEN).unwrap_or_else(|| panic!("{owner}"));
            let volume = spec["volumes"].as_array().unwrap().iter().find(|it| it["name"] == token["name"]).unwrap();
            let secret = rendered.object("Secret", volume["secret"]["secretName"].as_str().unwrap()).unwrap();
            assert_eq!(secret["type"], "kubernetes.io/service-account-token");
            let account = secret["metadata"]["annotations"]["kubernetes.io/service-account.name"].as_str().unwrap();
            assert_ne!(spec["serviceAccountName"], account, "{owner}");
            assert!(rendered.object("ServiceAccount", account).is_some(), "{owner}: {account}");
            let manager = &containers[0];
            assert!(!manager.to_string().contains(TOKEN), "{owner}: Kubernetes mounts the token of the pod's account");
            accounts.push(account.to_owned());
        }
        let managers = rendered.pods().iter().filter(|(_, spec)| spec["containers"][0]["name"] == "manager").count();
        assert_eq!((accounts.len(), managers > 1), (managers, topology == "separate"), "{kind}");
        for account in accounts {
            assert_eq!(rights_of(&rendered, &account), REVIEWS, "{kind}");
        }
    }
}

/// If the release creates no accounts or no roles, an account of the sidecar would be missing or have no rights. The built-in mode
/// has no sidecar.
#[test]
fn without_an_account_of_the_sidecar_the_one_of_the_pod_asks_for_reviews() {
    let own = json!({"serviceAccount": {"create": false, "name": "existing"}});
    for (values, account) in [
        (own, "existing"),
        (json!({"metrics": {"proxy": {"kind": "builtin"}}}), "operators-controller-manager"),
        (json!({"rbac": {"create": false}}), ""),
    ] {
        let rendered = render(&values);
        assert!(!rendered.text.contains(TOKEN), "{values}");
        assert!(rendered.of("Secret").next().is_none(), "{values}");
        let rights = rights_of(&rendered, account);
        assert_eq!(REVIEWS.iter().all(|it| rights.iter().any(|right| right == it)), !account.is_empty(), "{values}");
    }
}

/// What the roles that are bound to the account permit, as verbs and resources.
fn rights_of(rendered: &Rendered, account: &str) -> Vec<String> {
    let bindings = rendered.of("ClusterRoleBinding").chain(rendered.of("RoleBinding"));
    let ours = bindings.filter(|binding| binding["subjects"][0]["name"] == account);
    let roles = ours.map(|binding| {
        let [kind, name] = ["kind", "name"].map(|key| binding["roleRef"][key].as_str().unwrap());
        rendered.object(kind, name).unwrap()
    });
    let mut rights = Vec::new();
    for rule in roles.flat_map(|role| role["rules"].as_array().unwrap()) {
        let texts = |key: &str| rule[key].as_array().unwrap().iter().map(|it| it.as_str().unwrap().to_owned());
        rights.extend(
            texts("resources").flat_map(|resource| texts("verbs").map(move |verb| format!("{verb} {resource}"))),
        );
    }
    rights.sort();
    rights
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
    assert!(own.object("Secret", "operators-metrics-reader").is_none());

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
