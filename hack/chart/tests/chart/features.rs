//! Tests of single values and their effect on the rendered objects.

use std::fs;

use chart::{NAMESPACE, helm::succeeded, rendered::Rendered};
use serde_json::{Value, json};

use crate::{
    flag_sets::{KEPT, everything},
    kit::{FlagSet, deep, flags, helm, of_manager, render},
};

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

    // With an address of the user, the operator issues no certificate, and the server speaks plain HTTP.
    let url = "http://operators-booking-server";
    let (flags, server, service) = provider(named(json!({"url": url, "secretName": "token"})));
    assert_eq!(flags, [format!("--booking-url={url}")]);
    assert_eq!(service, json!([{"name": "http", "port": 80, "targetPort": "http"}]));
    assert!(!server.to_string().contains("certificate"), "{server}");
    assert!(server["containers"][0]["args"].to_string().contains("--token-file="), "{server}");
}

#[test]
fn bookings_without_a_claim_cannot_fill_the_disk_of_the_node() {
    let rendered = render(&json!({}));
    let server = &rendered.object("Deployment", "operators-booking-server").unwrap()["spec"]["template"]["spec"];
    assert_eq!(server["volumes"][0], json!({"name": "data", "emptyDir": {"sizeLimit": "1Gi"}}));
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
fn a_user_of_ones_own_stays_when_the_cluster_chooses_the_others() {
    let rendered = render(&json!({"fixedUserIds": false, "podSecurityContext": {"runAsUser": 1234, "fsGroup": 0}}));
    for (owner, spec) in rendered.pods() {
        let context = &spec["securityContext"];
        assert_eq!((&context["runAsUser"], &context["fsGroup"]), (&json!(1234), &json!(0)), "{owner}");
        assert_eq!(context["runAsGroup"], Value::Null, "{owner}: the default is left out");
    }
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
fn traces_name_the_pod_unless_the_user_does() {
    let paths = |values: Value| {
        let rendered = render(&values);
        let container = &of_manager(&rendered, "Deployment")["spec"]["template"]["spec"]["containers"][0];
        let variables = container["env"].as_array().unwrap().iter();
        let path = |it: &Value| json!([it["name"], it["valueFrom"]["fieldRef"]["fieldPath"]]);
        variables.map(path).collect::<Vec<_>>()
    };
    let name = json!(["POD_NAME", "metadata.name"]);
    assert_eq!(paths(json!({})), std::slice::from_ref(&name));
    let traced = json!({"otlpEndpoint": "http://collector.tracing:4317"});
    let pod = [json!(["POD_NAMESPACE", "metadata.namespace"]), json!(["POD_UID", "metadata.uid"])];
    let node = json!(["NODE_NAME", "spec.nodeName"]);
    assert_eq!(paths(json!({"telemetry": traced})), [name.clone(), node, pod[0].clone(), pod[1].clone()]);
    // The API server accepts a name only once.
    let theirs = json!([{"name": "NODE_NAME", "value": "chosen"}]);
    let node = json!(["NODE_NAME", null]);
    assert_eq!(paths(json!({"telemetry": traced, "extraEnv": theirs})), [name, pod[0].clone(), pod[1].clone(), node]);
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
