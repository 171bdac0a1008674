//! Tests of single values and their effect on the rendered objects.

use std::fs;

use chart::{NAMESPACE, helm::succeeded, rendered::Rendered};
use controller_manager::OPERATORS;
use serde_json::{Value, json};

use crate::{
    flag_sets::{KEPT, everything},
    kit::{FlagSet, deep, helm, of_manager, render},
};

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
    assert!(test["spec"]["containers"][0]["args"].to_string().contains("--namespace=operators-smoke-test"));
    let scratch = rendered.object("Namespace", "operators-smoke-test").unwrap();
    assert_eq!([&scratch["metadata"]["labels"]["env"], &scratch["metadata"]["labels"]["team"]], ["test", "x"]);
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
    let by_name = json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "get", "patch"]});
    assert_eq!(about_secrets(json!({})), [by_name]);
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
    for (replicas, number, budgets) in [(json!(1), Some(1), 0), (json!(2), Some(2), 1), (Value::Null, None, 1)] {
        let rendered = render(&json!({"replicas": replicas}));
        let spec = of_manager(&rendered, "Deployment")["spec"].as_object().unwrap();
        assert_eq!(spec.get("replicas").cloned(), number.map(Value::from), "Helm would own even a null");
        let found: Vec<_> = rendered.of("PodDisruptionBudget").collect();
        assert_eq!(found.len(), budgets, "{replicas}");
        assert!(found.iter().all(|budget| budget["spec"]["maxUnavailable"] == 1));
    }
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
fn with_cert_manager_each_webhook_has_a_configuration_of_its_own() {
    let configurations = |values: Value| {
        let rendered = render(&values);
        let all: Vec<Value> = rendered.of("ValidatingWebhookConfiguration").cloned().collect();
        (all, flags(&rendered))
    };
    let (shared, own) = configurations(json!({}));
    assert_eq!((shared.len(), shared[0]["metadata"]["name"].as_str()), (1, Some("operators-controller-manager")));
    assert!(own.contains(&"--webhook-configuration=operators-controller-manager".to_owned()), "{own:?}");

    let (single, own) = configurations(json!({"webhooks": {"certManager": {"enabled": true}}}));
    assert!(!own.iter().any(|flag| flag.starts_with("--webhook-configuration")), "there is none of that name: {own:?}");
    let entries = |all: &[Value]| {
        let mut entries: Vec<Value> = all.iter().flat_map(|it| it["webhooks"].as_array().unwrap()).cloned().collect();
        entries.sort_by_key(Value::to_string);
        entries
    };
    assert_eq!(entries(&single), entries(&shared), "the entries themselves stay the same");
    assert!(single.len() > 1);
    for configuration in single {
        let entries = configuration["webhooks"].as_array().unwrap();
        assert_eq!(entries.len(), 1, "{configuration}");
        let name = format!("operators-{}", entries[0]["name"].as_str().unwrap());
        assert_eq!(configuration["metadata"]["name"], name);
        let from = &configuration["metadata"]["annotations"]["cert-manager.io/inject-ca-from"];
        assert_eq!(*from, format!("{NAMESPACE}/operators-controller-manager-webhooks"));
    }
}

#[test]
fn booking_server_speaks_tls_with_a_certificate_that_the_operator_issues() {
    let provider = |values: Value| {
        let rendered = render(&values);
        let server =
            rendered.object("Deployment", "operators-booking-server").unwrap()["spec"]["template"]["spec"].clone();
        let service = rendered.object("Service", "operators-booking-server").unwrap()["spec"]["ports"].clone();
        let of_provider = |flag: &String| flag.starts_with("--booking-url") || flag.starts_with("--booking-cert");
        (flags(&rendered).into_iter().filter(of_provider).collect::<Vec<_>>(), server, service)
    };
    let (flags, server, service) = provider(json!({}));
    assert_eq!(
        flags,
        [
            format!("--booking-url=https://operators-booking-server.{NAMESPACE}.svc"),
            "--booking-certificate-secret=operators-booking-certificate".to_owned()
        ]
    );
    assert_eq!(service, json!([{"name": "https", "port": 443, "targetPort": "https"}]));
    assert_eq!(server["containers"][0]["ports"][0], json!({"name": "https", "containerPort": 8080}));
    let certificate = &deep(&server["volumes"], "items");
    let file = |name: &str| json!({"key": name, "path": name});
    assert_eq!(certificate[..], [&json!([file("tls.crt"), file("tls.key")])], "the keys of the authorities stay away");
    assert!(server["containers"][0]["args"].to_string().contains("--tls-cert-file=/certificate/tls.crt"));

    // A Secret of the user's choice.
    let named =
        |more: Value| json!({"bookingServer": {"enabled": true}, "operators": {"flightticket": {"provider": more}}});
    let (flags, server, _) = provider(named(json!({"certificateSecretName": "mine"})));
    assert!(flags.contains(&"--booking-certificate-secret=mine".to_owned()), "{flags:?}");
    assert!(flags[0].starts_with("--booking-") && flags.len() == 2, "{flags:?}");
    assert!(deep(&server["volumes"], "secretName").contains(&&json!("mine")));

    // With an address or authorities of the user, the operator issues no certificate, and the server speaks plain HTTP.
    for (values, url) in [
        (
            json!({"url": "http://operators-booking-server", "secretName": "token"}),
            "http://operators-booking-server".to_owned(),
        ),
        (json!({"caFile": "/ca.crt"}), format!("http://operators-booking-server.{NAMESPACE}.svc")),
    ] {
        let (flags, server, service) = provider(named(values));
        assert_eq!(flags, [format!("--booking-url={url}")]);
        assert_eq!(service, json!([{"name": "http", "port": 80, "targetPort": "http"}]));
        assert!(!server.to_string().contains("certificate"), "{server}");
        assert!(server["containers"][0]["args"].to_string().contains("--token-file="), "{server}");
    }
}

#[test]
fn bookings_are_kept_like_definitions() {
    let rendered = render(&json!({"bookingServer": {"persistence": {"enabled": true}}}));
    let claim = rendered.object("PersistentVolumeClaim", "operators-booking-server").unwrap();
    for (annotation, value) in KEPT {
        assert_eq!(claim["metadata"]["annotations"][annotation], value, "{annotation}");
    }
}

#[test]
fn users_choose_whether_definitions_are_kept_and_may_add_options_of_argo_cd() {
    let annotations = |crds: Value| {
        let rendered = render(&json!({"crds": crds}));
        let of = |crd: &Value| crd["metadata"]["annotations"].clone();
        rendered.of("CustomResourceDefinition").map(of).collect::<Vec<_>>()
    };
    for annotations in annotations(json!({"keep": false})) {
        for (annotation, _) in KEPT {
            assert_eq!(annotations[annotation], Value::Null, "{annotation}");
        }
    }
    let options = json!({
        "argocd.argoproj.io/sync-options": "ServerSideApply=true, Prune=true",
        "argocd.argoproj.io/compare-options": "IgnoreExtraneous, ServerSideDiff=true",
        "team": "x",
    });
    for annotations in annotations(json!({"annotations": options})) {
        let options = &annotations["argocd.argoproj.io/sync-options"];
        assert_eq!(
            (options, &annotations["team"]),
            (&json!("ServerSideApply=true,Prune=false,Delete=false"), &json!("x"))
        );
        let options = &annotations["argocd.argoproj.io/compare-options"];
        assert_eq!(options, "ServerSideDiff=true,IgnoreExtraneous");
    }
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
    assert!(notes.contains("helm uninstall operators") && !notes.contains("kubectl delete"), "{notes}");
    assert!(notes.contains("Objects of flighttickets.flights.com stand for something outside"), "{notes}");
    assert_eq!(notes.matches("stand for something outside").count(), 1, "other objects need no running operator");
    assert!(!notes.contains("helm rollback"), "only after an upgrade");
    assert!(notes.contains("get secret operators-booking-certificate"), "{notes}");
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
    let packaged =
        fs::metadata(folder.path().join(concat!("operators-", env!("CARGO_PKG_VERSION"), ".tgz"))).unwrap().len();
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

/// The notes of the chart. `helm template` prints none, and `helm upgrade` needs a cluster: so a copy of the chart renders them as
/// an object.
fn notes(values: &Value, arguments: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("operators");
    succeeded(std::process::Command::new("cp").arg("--recursive").arg(chart::folder()).arg(&copy)).unwrap();
    fs::copy(copy.join("templates/NOTES.txt"), copy.join("notes.tpl")).unwrap();
    let object = "kind: Notes\ntext: {{ tpl (.Files.Get \"notes.tpl\") . | quote }}\n";
    fs::write(copy.join("templates/notes.yaml"), object).unwrap();
    let rendered = helm().template_of(&copy, values, arguments).unwrap();
    rendered.of("Notes").next().unwrap()["text"].as_str().unwrap().to_owned()
}

#[test]
fn an_upgrade_says_how_to_go_back_without_loss() {
    let notes = |values: Value| notes(&values, &["--is-upgrade"]);
    let plain = notes(json!({}));
    assert!(plain.contains("do not use `helm rollback`") && plain.contains("--set crds.enabled=false\n"), "{plain}");
    assert!(plain.contains("set crds.enabled=true again"), "later upgrades would reuse the value: {plain}");
    let tagged = notes(json!({"image": {"tag": "v2"}}));
    assert!(tagged.contains("--set crds.enabled=false,image.tag=FORMER-TAG\n"), "{tagged}");
    let pinned = notes(json!({"image": {"tag": "v2", "digest": format!("sha256:{}", "ab".repeat(32))}}));
    assert!(pinned.contains("If you have set image.digest yourself") && !pinned.contains("image.tag"), "{pinned}");

    // Without the annotation, Helm deletes what it no longer renders.
    let unkept = notes(json!({"crds": {"keep": false}}));
    assert!(!unkept.contains("--set crds.enabled=false"), "{unkept}");
    assert!(unkept.contains("WARNING: there is no way back without loss (crds.keep=false)"), "{unkept}");
    assert!(!unkept.contains("crds.enabled=true"), "{unkept}");
    // The finalizers of objects block the deletion of their definition.
    assert!(unkept.contains("delete all of these objects") && !plain.contains("delete all of these"), "{unkept}");
}

#[test]
fn notes_offer_samples_that_become_ready() {
    let limited = notes(&json!({"watchNamespaces": ["one", "two"]}), &[]);
    assert!(limited.contains("kubectl apply --namespace one -f - <<EOF"), "{limited}");
    assert!(limited.contains("kubectl wait --namespace one --for=condition=Ready memcached/"), "{limited}");
    let plain = notes(&json!({}), &[]);
    assert!(plain.contains("kubectl apply -f - <<EOF") && plain.contains("kind: FlightTicket"), "{plain}");
    for values in [
        json!({"bookingServer": {"enabled": false}}), // no provider
        json!({"operators": {"flightticket": {"provider": {"url": "https://booking.example.com"}}}}), // costs money
    ] {
        let notes = notes(&values, &[]);
        assert!(notes.contains("kind: Memcached") && !notes.contains("kind: FlightTicket"), "{values}: {notes}");
    }
}

#[test]
fn without_rbac_no_object_is_a_role_or_a_binding() {
    let mut values = everything(FlagSet::all().last().unwrap());
    values["rbac"] = json!({"create": false});
    let rendered = render(&values);
    for object in &rendered.objects {
        assert!(!object["kind"].as_str().unwrap().contains("Role"), "{object}");
        let component = &object["metadata"]["labels"]["app.kubernetes.io/component"];
        assert_ne!(component, "smoke-test", "it needs a role: {object}");
    }
    assert!(!notes(&values, &[]).contains("helm test"));
    assert!(notes(&json!({}), &[]).contains("helm test"));
}

#[test]
fn smoke_test_has_permissions_only_in_its_namespace() {
    let rendered = render(&json!({}));
    let about = |object: &&Value| object["metadata"]["labels"]["app.kubernetes.io/component"] == "smoke-test";
    let kinds: Vec<_> = rendered.objects.iter().filter(about).map(|object| object["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["Namespace", "ServiceAccount", "Role", "RoleBinding", "Pod"]);
    for object in
        rendered.objects.iter().filter(about).filter(|object| object["kind"].as_str().unwrap().contains("Role"))
    {
        assert_eq!(object["metadata"]["namespace"], "operators-smoke-test");
        assert!(!object.to_string().contains("namespaces\""), "{object}");
    }
}

#[test]
fn pods_name_no_user_when_the_cluster_chooses_it() {
    let rendered = render(&json!({"fixedUserIds": false}));
    for (owner, spec) in rendered.pods() {
        let context = &spec["securityContext"];
        assert_eq!(context["runAsNonRoot"], true, "{owner}");
        for key in ["runAsUser", "runAsGroup", "fsGroup"] {
            assert!(deep(spec, key).is_empty(), "{owner}: {key}");
        }
    }
    assert!(flags(&rendered).contains(&"--fixed-user-ids=false".to_owned()), "the operators' pods name none either");
    assert!(!flags(&render(&json!({}))).iter().any(|flag| flag.starts_with("--fixed-user-ids")));
}

#[test]
fn registry_prefixes_no_image_that_the_user_set() {
    let own = json!({"repository": "registry.example.com/operators", "tag": "1"});
    let proxy = json!({"kind": "kube-rbac-proxy", "image": {"repository": "registry.example.com/proxy"}});
    let values = json!({"imageRegistry": "mirror.example.com", "image": own, "metrics": {"proxy": proxy}});
    let rendered = render(&values);
    for (owner, spec) in rendered.pods() {
        for image in deep(spec, "image") {
            assert!(image.as_str().unwrap().starts_with("registry.example.com/"), "{owner}: {image}");
        }
    }
    let test = rendered.object("Pod", "operators-smoke-test").unwrap();
    let args = test["spec"]["containers"][0]["args"].to_string();
    assert!(args.contains("--image-registry=mirror.example.com"), "the samples' images come from the mirror: {args}");
}

#[test]
fn probes_can_be_tuned() {
    let container = |values: Value| {
        let rendered = render(&values);
        of_manager(&rendered, "Deployment")["spec"]["template"]["spec"]["containers"][0].clone()
    };
    let tuned = container(json!({"probes": {"liveness": {"failureThreshold": 9}, "readiness": {"periodSeconds": 7}}}));
    let liveness = &tuned["livenessProbe"];
    assert_eq!((&liveness["failureThreshold"], &liveness["periodSeconds"]), (&json!(9), &json!(20)));
    assert_eq!(tuned["readinessProbe"]["periodSeconds"], 7);
    assert_eq!(tuned["livenessProbe"]["httpGet"]["path"], "/healthz");
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
