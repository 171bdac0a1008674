//! Tests of single values and their effect on the rendered objects.

use std::fs;

use chart::{NAMESPACE, helm::succeeded, rendered::Rendered};
use controller_manager::OPERATORS;
use serde_json::{Value, json};

use crate::{
    flag_sets::everything,
    kit::{FlagSet, deep, helm, render},
};

/// The object of this kind that belongs to the manager; there is one manager, since the topology is `combined`.
fn of_manager<'a>(rendered: &'a Rendered, kind: &str) -> &'a Value {
    rendered.object(kind, "operators-controller-manager").unwrap()
}

/// The manager's flags.
fn flags(rendered: &Rendered) -> Vec<String> {
    let flags =
        of_manager(rendered, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"].as_array().unwrap();
    flags.iter().map(|flag| flag.as_str().unwrap().to_owned()).collect()
}

/// The first resource of each rule in the cluster roles that the chart binds to its own accounts. Roles for users are not bound.
fn cluster_wide(rendered: &Rendered) -> Vec<String> {
    let bound: Vec<&Value> = rendered.of("ClusterRoleBinding").map(|binding| &binding["roleRef"]["name"]).collect();
    let ours = rendered.of("ClusterRole").filter(|role| bound.contains(&&role["metadata"]["name"]));
    let rules = ours.flat_map(|role| role["rules"].as_array().unwrap());
    let mut about: Vec<_> = rules.map(|rule| rule["resources"][0].as_str().unwrap().to_owned()).collect();
    about.sort();
    about
}

#[test]
fn watch_namespaces_limit_watches_and_permissions() {
    let rendered = render(&json!({"watchNamespaces": ["one", "two"]}));
    assert!(flags(&rendered).contains(&"--watch-namespaces=one,two".to_owned()));
    let left = ["customresourcedefinitions", "subjectaccessreviews", "tokenreviews", "validatingwebhookconfigurations"];
    assert_eq!(cluster_wide(&rendered), left);
    for namespace in ["one", "two"] {
        let roles = rendered.of("Role").filter(|role| role["metadata"]["namespace"] == namespace);
        let names: Vec<_> = roles.map(|role| role["metadata"]["name"].as_str().unwrap()).collect();
        assert!(names.contains(&"operators-memcached"), "{names:?}");
    }
    for webhook in deep(&json!(rendered.of("ValidatingWebhookConfiguration").collect::<Vec<_>>()), "namespaceSelector")
    {
        assert!(webhook.to_string().contains(r#""operator":"In","values":["one","two"]"#), "{webhook}");
    }
    let test = rendered.object("Pod", "operators-smoke-test").unwrap();
    assert!(test["spec"]["containers"][0]["args"].to_string().contains("--namespace=one"));
    let allowed: Vec<_> = rendered.of("Role").filter(|it| it["metadata"]["name"] == "operators-smoke-test").collect();
    assert_eq!((allowed.len(), &allowed[0]["metadata"]["namespace"]), (1, &json!("one")));

    // The remaining cluster-wide rules go with their features.
    let without = |values: Value| {
        let mut values = values;
        values["watchNamespaces"] = json!(["one"]);
        cluster_wide(&render(&values))
    };
    let certificates = ["customresourcedefinitions", "validatingwebhookconfigurations"];
    assert_eq!(without(json!({"metrics": {"proxy": {"kind": "none"}}})), certificates);
    let reviews = ["subjectaccessreviews", "tokenreviews"];
    assert_eq!(without(json!({"webhooks": {"enabled": false}})), reviews);
    assert_eq!(without(json!({"webhooks": {"certManager": {"enabled": true}}})), reviews);
    assert!(without(json!({"webhooks": {"enabled": false}, "metrics": {"enabled": false}})).is_empty());
}

#[test]
fn namespaces_can_be_selected_by_labels() {
    let labels = json!({"team": "x", "env": "test"});
    let rendered = render(&json!({"watchNamespaceLabels": labels}));
    assert!(flags(&rendered).contains(&"--watch-namespace-selector=env=test,team=x".to_owned()));
    let role = rendered.object("ClusterRole", "operators-controller-manager-namespaces").unwrap();
    assert_eq!(role["rules"], json!([{"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list", "watch"]}]),);
    assert!(rendered.object("ClusterRole", "operators-memcached").is_some(), "permissions in the whole cluster");
    let webhooks = json!(rendered.of("ValidatingWebhookConfiguration").collect::<Vec<_>>());
    for selector in deep(&webhooks, "namespaceSelector") {
        assert_eq!(selector["matchLabels"], labels);
    }
    let test = rendered.object("Pod", "operators-smoke-test").unwrap();
    assert!(test["spec"]["containers"][0]["args"].to_string().contains("--namespace-labels=env=test,team=x"));
    assert!(render(&json!({})).object("ClusterRole", "operators-controller-manager-namespaces").is_none());
}

#[test]
fn secret_access_follows_read_secrets_value() {
    let about_secrets = |values: Value| {
        let rendered = render(&values);
        let all =
            json!(rendered.of("ClusterRole").flat_map(|role| role["rules"].as_array().unwrap()).collect::<Vec<_>>());
        let about = |rule: &&Value| rule["resources"].to_string().contains("\"secrets\"");
        all.as_array().unwrap().iter().filter(about).cloned().collect::<Vec<_>>()
    };
    let get = json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]});
    assert_eq!(about_secrets(json!({})), [get]);
    assert!(about_secrets(json!({"operators": {"memcached": {"readSecrets": false}}})).is_empty());
}

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
fn image_registry_prefixes_every_image() {
    let rendered = render(&everything(FlagSet::all().last().unwrap()));
    for (owner, spec) in rendered.pods() {
        for image in deep(spec, "image") {
            assert!(image.as_str().unwrap().starts_with("mirror.example.com/hub/"), "{owner}: {image}");
        }
        let args = spec["containers"][0]["args"].to_string();
        assert!(
            !args.contains("--operators=") || args.contains("smoke-test") || args.contains("--image-registry="),
            "{args}"
        );
    }
    let digest = format!("sha256:{}", "ab".repeat(32));
    let pinned = render(&json!({"image": {"digest": digest, "tag": "v1"}}));
    let images = deep(of_manager(&pinned, "Deployment"), "image").into_iter().cloned().collect::<Vec<_>>();
    assert_eq!(images[0], format!("localhost/operators/controller-manager@{digest}"));
}

#[test]
fn replicas_value_sets_replicas_and_disruption_budget() {
    for (replicas, number, budgets) in [(json!(1), Some(1), 0), (json!(2), Some(2), 1), (Value::Null, None, 0)] {
        let rendered = render(&json!({"replicas": replicas}));
        let spec = of_manager(&rendered, "Deployment")["spec"].as_object().unwrap();
        assert_eq!(spec.get("replicas").cloned(), number.map(Value::from), "Helm would own even a null");
        let found: Vec<_> = rendered.of("PodDisruptionBudget").collect();
        assert_eq!(found.len(), budgets, "{replicas}");
        assert!(found.iter().all(|budget| budget["spec"]["maxUnavailable"] == 1));
    }
}

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
fn only_changed_values_become_flags() {
    let values =
        json!({"operators": {"memcached": {"image": "example.com/memcached:2", "maxConcurrentReconciles": 8}}});
    let flags = flags(&render(&values));
    assert!(flags.contains(&"--memcached-image=example.com/memcached:2".to_owned()), "{flags:?}");
    assert!(flags.contains(&"--max-concurrent-reconciles=Memcached.memcached.cache.example.com=8".to_owned()));
    assert!(!flags.iter().any(|flag| flag.starts_with("--memcached-exporter-image")));
}

#[test]
fn old_versions_are_served_only_with_webhooks() {
    let versions = |values: Value| {
        let rendered = render(&values);
        let crd =
            rendered.object("CustomResourceDefinition", "memcacheds.memcached.cache.example.com").unwrap().clone();
        let served: Vec<_> = deep(&crd, "served").into_iter().cloned().collect();
        (served, crd["spec"]["conversion"]["strategy"].clone())
    };
    assert_eq!(versions(json!({})), (vec![json!(true), json!(true)], json!("Webhook")));
    let off = json!({"webhooks": {"enabled": false}});
    assert_eq!(versions(off.clone()), (vec![json!(true), json!(false)], Value::Null));
    assert!(flags(&render(&off)).contains(&"--enable-webhooks=false".to_owned()));
    assert!(render(&off).of("ValidatingWebhookConfiguration").next().is_none());
}

#[test]
fn extra_objects_are_templated() {
    let rendered = render(&everything(FlagSet::all().last().unwrap()));
    assert!(rendered.object("ConfigMap", "operators-extra").is_some());
}

#[test]
fn chart_works_as_subchart() {
    let folder = tempfile::tempdir().unwrap();
    let umbrella = json!({
        "apiVersion": "v2", "name": "umbrella", "version": "1.0.0",
        "dependencies": [{"name": "operators", "version": ">=0", "condition": "operators.enabled"}],
    });
    fs::write(folder.path().join("Chart.yaml"), umbrella.to_string()).unwrap();
    fs::create_dir(folder.path().join("charts")).unwrap();
    std::os::unix::fs::symlink(fs::canonicalize(chart::folder()).unwrap(), folder.path().join("charts/operators"))
        .unwrap();
    let template = |values: Value| {
        let file = helm().values_file(&values).unwrap();
        let mut command = helm().command();
        command.args(["template", "shop"]).arg(folder.path()).arg("--values").arg(file.path());
        Rendered::parse(&succeeded(&mut command).unwrap()).unwrap()
    };
    let on = template(json!({"global": {"zone": "a"}, "operators": {"enabled": true, "replicas": 2}}));
    assert_eq!(on.object("Deployment", "shop-operators-controller-manager").unwrap()["spec"]["replicas"], 2);
    assert!(template(json!({"operators": {"enabled": false}})).objects.is_empty());
}

#[test]
fn notes_mention_only_enabled_operators() {
    let file = helm().values_file(&json!({"operators": {"crontab": {"enabled": false}}})).unwrap();
    let mut command = helm().command();
    command.args(["install", "operators"]).arg(chart::folder()).args(["--dry-run=client", "--namespace", NAMESPACE]);
    let said = succeeded(command.arg("--values").arg(file.path())).unwrap();
    let (_, notes) = said.split_once("\nNOTES:\n").unwrap();
    assert!(
        notes.contains("kind: Memcached") && notes.contains("kubectl wait --for=condition=Ready memcached/"),
        "{notes}"
    );
    assert!(!notes.contains("CronTab"), "{notes}");
    let (delete, uninstall) = (notes.find("kubectl delete memcacheds").unwrap(), notes.find("helm uninstall").unwrap());
    assert!(delete < uninstall);
    assert!(
        notes.contains(OPERATORS.iter().find(|it| it.name() == "helloapp").unwrap().crds()[0].spec.names.kind.as_str())
    );
}

#[test]
fn a_release_fits_into_its_secret() {
    use std::process::Command;

    let folder = tempfile::tempdir().unwrap();
    let mut package = helm().command();
    succeeded(package.arg("package").arg(chart::folder()).arg("--destination").arg(folder.path())).unwrap();
    let packaged = fs::metadata(folder.path().join("operators-0.1.0.tgz")).unwrap().len();
    // Helm stores the chart's files and the rendered manifest as JSON, compressed, in base64.
    let rendered = render(&everything(FlagSet::all().last().unwrap())).text;
    let file = folder.path().join("manifest");
    fs::write(&file, rendered).unwrap();
    assert!(Command::new("gzip").arg(&file).status().unwrap().success());
    let manifest = fs::metadata(folder.path().join("manifest.gz")).unwrap().len();
    let release = (packaged + manifest) * 4 / 3;
    println!("package {packaged} bytes, release about {release} bytes");
    assert!(release < 700_000, "a release of {release} bytes; the limit of a Secret is 1 MiB");
}

#[test]
fn every_alert_links_to_its_runbook() {
    let rule = json!({"enabled": true, "runbookUrl": "https://example.com/runbooks.md#"});
    let rendered = render(&json!({"prometheusRule": rule}));
    let groups = rendered.of("PrometheusRule").next().unwrap()["spec"]["groups"].as_array().unwrap();
    let runbooks = fs::read_to_string(chart::folder().join("../../docs/runbooks.md")).unwrap();
    let rules: Vec<&Value> = groups.iter().flat_map(|group| group["rules"].as_array().unwrap()).collect();
    assert!(rules.len() > 10);
    for rule in &rules {
        let name = rule["alert"].as_str().unwrap();
        assert!(runbooks.contains(&format!("\n## {name}\n")), "{name} is not in docs/runbooks.md");
        let link = format!("https://example.com/runbooks.md#{}", name.to_lowercase());
        assert_eq!(rule["annotations"]["runbook_url"], link);
    }
}

#[test]
fn the_dashboard_is_json() {
    let rendered = render(&json!({"dashboard": {"enabled": true}}));
    let mut dashboards = 0;
    for data in rendered.of("ConfigMap").filter_map(|config_map| config_map["data"].as_object()) {
        for text in data.values() {
            let dashboard: Value = serde_json::from_str(text.as_str().unwrap()).unwrap();
            assert!(!dashboard["panels"].as_array().unwrap().is_empty());
            dashboards += 1;
        }
    }
    assert_eq!(dashboards, 1);
}
