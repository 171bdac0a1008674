//! Tests of the names of objects, for any name of the release.

use chart::{NAMESPACE, helm::succeeded, rendered::Rendered};
use serde_json::json;

use crate::kit::{deep, helm};

/// Renders the chart as the release `release` in `namespace`, with further arguments for Helm.
fn render_as(release: &str, namespace: &str, arguments: &[&str]) -> Rendered {
    let mut command = helm().command();
    command.args(["template", release]).arg(chart::folder()).args(["--namespace", namespace]).args(arguments);
    Rendered::parse(&succeeded(&mut command).unwrap()).unwrap()
}

#[test]
fn names_fit_into_63_characters_and_stay_distinct() {
    let long = "a".repeat(52);
    let separate = ["--set", "topology=separate"];
    for arguments in [&[][..], &separate] {
        let rendered = render_as(&long, NAMESPACE, arguments);
        for service in rendered.of("Service") {
            let name = service["metadata"]["name"].as_str().unwrap();
            assert!(name.len() <= 63, "{name} has {} characters", name.len());
        }
    }
    let of = |release: &str| {
        let rendered = render_as(release, NAMESPACE, &[]);
        rendered.of("Deployment").map(|it| it["metadata"]["name"].clone()).collect::<Vec<_>>()
    };
    assert_ne!(of(&format!("{long}b")), of(&format!("{long}c")));
    assert_eq!(of("operators"), ["operators-booking-server", "operators-controller-manager"]);
}

#[test]
fn names_are_dns_labels() {
    let template = |release: &str, arguments: &[&str]| {
        let mut command = helm().command();
        succeeded(command.args(["template", release]).arg(chart::folder()).args(arguments))
    };
    for release in ["shop.example", "1shop"] {
        let refusal = template(release, &[]).unwrap_err().to_string();
        assert!(refusal.contains("fullnameOverride: names would begin with"), "{refusal}");
        template(release, &["--set", "fullnameOverride=shop"]).unwrap();
    }
}

#[test]
fn names_that_look_like_numbers_or_booleans_stay_strings() {
    let strings = ["nameOverride=1e3", "fullnameOverride=no", "priorityClassName=1e3"];
    let mut arguments = vec!["--set=prometheusRule.enabled=true,dashboard.enabled=true,replicas=2"];
    arguments
        .push("--set=metrics.serviceMonitor.enabled=true,networkPolicy.enabled=true,webhooks.certManager.enabled=true");
    arguments.push("--set=bookingServer.persistence.enabled=true");
    for string in strings {
        arguments.extend(["--set-string", string]);
    }
    arguments
        .extend(["--set-string", "bookingServer.persistence.storageClassName=no,metrics.serviceMonitor.namespace=off"]);
    arguments.extend(["--set-string", "metrics.proxy.tls.secretName=007,serviceAccount.name=0x1"]);
    let rendered = render_as("123", "456", &arguments);
    for key in ["name", "namespace", "secretName", "claimName", "serviceAccountName", "priorityClassName"] {
        for value in deep(&json!(rendered.objects), key) {
            let is_field = value.is_object(); // a property of a schema
            assert!(is_field || value.is_string(), "{key}: {value}");
        }
    }
    let instances: Vec<_> = rendered.objects.iter().filter(|it| it["kind"] != "CustomResourceDefinition").collect();
    for labels in ["labels", "matchLabels", "annotations"] {
        for map in deep(&json!(instances), labels) {
            for (label, value) in map.as_object().into_iter().flatten() {
                assert!(value.is_string(), "{labels}: {label}: {value}");
            }
        }
    }
    assert!(rendered.of("PersistentVolumeClaim").all(|claim| claim["spec"]["storageClassName"] == "no"));
}
