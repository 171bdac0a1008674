//! Tests of values that the chart refuses, with a message that names the key.

use serde_json::{Value, json};

use crate::kit::{deep, helm, of_manager, render};

/// Returns Helm's error message for these values.
///
/// # Panics
///
/// If Helm accepts the values.
fn refusal(values: &Value) -> String {
    match helm().template(values, &[]) {
        Ok(_) => panic!("Helm accepts {values}"),
        Err(error) => format!("{error:#}"),
    }
}

#[test]
fn unknown_or_invalid_values_are_rejected() {
    for (values, key) in [
        (json!({"replicaCount": 2}), "replicaCount"),
        (json!({"operators": {"redis": {"enabled": true}}}), "redis"),
        (json!({"operators": {"memcached": {"enable": true}}}), "enable"),
        (json!({"metrics": {"proxy": {"knd": "none"}}}), "knd"),
        (json!({"nodeSelector": "linux"}), "nodeSelector"),
        (json!({"replicas": "abc"}), "replicas"),
        (json!({"replicas": -1}), "replicas"),
        (json!({"operators": {"crontab": {"enabled": "yes"}}}), "enabled"),
        (json!({"operators": {"crontab": {"maxConcurrentReconciles": 0}}}), "maxConcurrentReconciles"),
        (json!({"topology": "both"}), "topology"),
        (json!({"metrics": {"port": 70_000}}), "port"),
        (json!({"metrics": {"proxy": {"kind": "oauth"}}}), "kind"),
        (json!({"webhooks": {"failurePolicy": "Warn"}}), "failurePolicy"),
        (json!({"webhooks": {"timeoutSeconds": 31}}), "timeoutSeconds"),
        (json!({"podDisruptionBudget": {"maxUnavailable": "half"}}), "maxUnavailable"),
        (json!({"podDisruptionBudget": {"maxUnavailable": "101%"}}), "maxUnavailable"),
        (json!({"podDisruptionBudget": {"maxUnavailable": -1}}), "maxUnavailable"),
        (json!({"image": {"digest": "sha256:abc"}}), "digest"),
        (json!({"image": {"pullPolicy": "Sometimes"}}), "pullPolicy"),
        (json!({"leaderElection": {"leaseDuration": "soon"}}), "leaseDuration"),
        (json!({"watchNamespaces": "default"}), "watchNamespaces"),
        (json!({"watchNamespaces": ["default"], "watchNamespaceLabels": {"team": "x"}}), "watchNamespaceLabels"),
        (json!({"watchNamespaces": ["default", "default"]}), "watchNamespaces"),
        (json!({"telemetry": {"logFormat": "xml"}}), "logFormat"),
        (json!({"telemetry": {"logLevel": "lots"}}), "logLevel"),
        (json!({"telemetry": {"logLevel": "info,manager=lots"}}), "logLevel"),
        (json!({"telemetry": {"otlpEndpoint": "collector:4317"}}), "otlpEndpoint"),
        (json!({"fullnameOverride": "My.Name"}), "fullnameOverride"),
        (json!({"nameOverride": "my.name"}), "nameOverride"),
        (json!({"operators": {"flightticket": {"provider": {"concurrency": "lots"}}}}), "concurrency"),
        (json!({"operators": {"flightticket": {"provider": {"concurrency": 0}}}}), "concurrency"),
        (json!({"operators": {"flightticket": {"provider": {"timeout": "soon"}}}}), "timeout"),
        (json!({"operators": {"flightticket": {"provider": {"pollInterval": 5}}}}), "pollInterval"),
        (json!({"operators": {"flightticket": {"provider": {"url": "booking"}}}}), "url"),
        (json!({"operators": {"flightticket": {"provider": {"secretName": 7}}}}), "secretName"),
    ] {
        let refusal = refusal(&values);
        assert!(refusal.contains(key), "the refusal of {values} does not name {key}: {refusal}");
    }
}

#[test]
fn contradictory_values_are_rejected() {
    let off: serde_json::Map<_, _> =
        controller_manager::OPERATORS.iter().map(|it| (it.name().to_owned(), json!({"enabled": false}))).collect();
    let election = json!({"enabled": false});
    for (values, says) in [
        (json!({"operators": off}), "operators.<name>.enabled: no operator is enabled"),
        (json!({"replicas": 2, "leaderElection": election}), "leaderElection.enabled: must be true unless"),
        (json!({"replicas": null, "leaderElection": election}), "leaderElection.enabled: must be true unless"),
        (
            json!({"operators": {"memcached": {"resources": {"limits": {"memory": "1Gi"}}}}}),
            "operators.memcached.resources: needs topology: separate",
        ),
        (
            json!({"operators": {"crontab": {"env": [{"name": "A", "value": "1"}]}}}),
            "operators.crontab.env: needs topology: separate",
        ),
        (json!({"serviceAccount": {"create": false}}), "serviceAccount.name: must be set"),
        (
            json!({"metrics": {"enabled": false, "serviceMonitor": {"enabled": true}}}),
            "metrics.serviceMonitor.enabled: needs metrics.enabled: true",
        ),
        (
            json!({"metrics": {"podMonitor": {"enabled": true}, "serviceMonitor": {"enabled": true}}}),
            "metrics.podMonitor.enabled: must be false when",
        ),
        (
            json!({"metrics": {"enabled": false}, "prometheusRule": {"enabled": true}}),
            "prometheusRule.enabled: needs metrics.enabled: true",
        ),
        (
            json!({"metrics": {"enabled": false}, "dashboard": {"enabled": true}}),
            "dashboard.enabled: needs metrics.enabled: true",
        ),
        (
            json!({"prometheusRule": {"alerts": {"OperatorAbsnt": {"enabled": false}}}}),
            "prometheusRule.alerts.OperatorAbsnt: there is no such alert; the alerts are CronTab",
        ),
        (
            json!({"commonLabels": {"app.kubernetes.io/name": "x"}}),
            "commonLabels: the chart itself sets the label app.kubernetes.io/name",
        ),
        (
            json!({"podLabels": {"app.kubernetes.io/component": "x"}}),
            "podLabels: the chart itself sets the label app.kubernetes.io/component",
        ),
        (
            json!({"commonAnnotations": {"helm.sh/hook": "pre-install"}}),
            "commonAnnotations: helm.sh/hook would make every object a hook",
        ),
        (
            json!({"caBundle": {"configMapName": "a", "secretName": "b"}}),
            "caBundle.secretName: must be empty when caBundle.configMapName is set",
        ),
        (json!({"podLabels": {"a": "x"}, "commonLabels": {"a": "y"}}), "podLabels: commonLabels also has the label a"),
        (json!({"metrics": {"port": 8081}}), "metrics.port: 8081 is already in use"),
        (json!({"webhooks": {"port": 8444}}), "webhooks.port: 8444 is already in use"),
        (json!({"metrics": {"port": 9443}}), "webhooks.port: 9443 is already in use"),
        (
            json!({"operators": {"flightticket": {"provider": {"secretName": "a", "tokenFile": "/b"}}}}),
            "operators.flightticket.provider.secretName: must be empty",
        ),
        (
            json!({"operators": {"flightticket": {"provider": {"certificateSecretName": "a", "caFile": "/b"}}}}),
            "operators.flightticket.provider.certificateSecretName: must be empty",
        ),
        (
            json!({"webhooks": {"enabled": false, "certManager": {"enabled": true}}}),
            "webhooks.certManager.enabled: needs webhooks.enabled: true",
        ),
        (
            json!({"webhooks": {"enabled": false, "hostNetwork": true}}),
            "webhooks.hostNetwork: needs webhooks.enabled: true",
        ),
    ] {
        let refusal = refusal(&values);
        assert!(refusal.contains(says), "{values}: {refusal}");
    }
}

#[test]
fn values_without_effect_are_rejected() {
    for from in ["egress", "metricsFrom", "probesFrom", "webhooksFrom"] {
        let refusal = refusal(&json!({"networkPolicy": {from: [{}]}}));
        assert!(refusal.contains(&format!("networkPolicy.{from}: needs networkPolicy.enabled: true")), "{refusal}");
    }
    let tls = |key: &str, value: Value| json!({"tls": {key: value}});
    for (mut proxy, key) in [
        (json!({"audiences": ["a"]}), "audiences"),
        (json!({"extraArgs": ["--a"]}), "extraArgs"),
        (tls("cipherSuites", json!(["a"])), "tls.cipherSuites"),
        (tls("minVersion", json!("VersionTLS13")), "tls.minVersion"),
    ] {
        proxy["kind"] = json!("builtin");
        let refusal = refusal(&json!({"metrics": {"proxy": proxy}}));
        let says = format!("metrics.proxy.{key}: has no effect with metrics.proxy.kind: builtin");
        assert!(refusal.contains(&says), "{refusal}");
    }
}

#[test]
fn values_that_would_be_unsafe_or_crash_are_rejected() {
    for (values, says) in [
        (
            json!({"commonLabels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}),
            "commonLabels: rbac.authorization.k8s.io/aggregate-to-view would give the permissions of the operators",
        ),
        (
            json!({"webhooks": {"hostNetwork": true}, "topology": "separate"}),
            "webhooks.hostNetwork: needs topology: combined, otherwise operators-crontab, operators-helloapp, ",
        ),
        (
            json!({"leaderElection": {"leaseDuration": "1m30s", "renewDeadline": "90s"}}),
            "leaderElection.renewDeadline: must be shorter than leaseDuration",
        ),
        (
            json!({"leaderElection": {"renewDeadline": "2400ms"}}),
            "leaderElection.retryPeriod: 1.2 times of it must be shorter than renewDeadline",
        ),
        // The booking server would serve clients without a token.
        (
            json!({"operators": {"flightticket": {"provider": {"tokenFile": "/b"}}}}),
            "operators.flightticket.provider.tokenFile: the booking server of the chart cannot read this file",
        ),
        (
            json!({
                "bookingServer": {"enabled": true},
                "operators": {"flightticket": {"provider": {"url": "https://booking.example.com"}}},
            }),
            "operators.flightticket.provider.secretName: must name the Secret with the token for the booking server",
        ),
        // The token would go over plain HTTP.
        (
            json!({"operators": {"flightticket": {"provider": {"caFile": "/ca.crt"}}}}),
            "operators.flightticket.provider.caFile: must be empty unless provider.url is set: the operator itself issues",
        ),
    ] {
        let refusal = refusal(&values);
        assert!(refusal.contains(says), "{values}: {refusal}");
    }
}

/// The API server would refuse the Deployment if the delay were longer than the whole time. One of the same length leaves no time.
#[test]
fn delay_that_leaves_no_time_to_finish_is_rejected() {
    let values =
        |delay: u32, whole: u32| json!({"shutdownDelaySeconds": delay, "terminationGracePeriodSeconds": whole});
    for (delay, whole) in [(41, 40), (40, 40), (5, 5), (1, 0)] {
        let refusal = refusal(&values(delay, whole));
        let says = format!("shutdownDelaySeconds: must be less than terminationGracePeriodSeconds ({whole}), which");
        assert!(refusal.contains(&says), "{delay} of {whole}: {refusal}");
    }
    for (delay, whole) in [(4, 5), (0, 0)] {
        let rendered = render(&values(delay, whole));
        let pod = &of_manager(&rendered, "Deployment")["spec"]["template"]["spec"];
        assert_eq!(pod["terminationGracePeriodSeconds"], whole, "{delay} of {whole}");
    }
}

/// The API server would refuse the Deployment.
#[test]
fn extra_volumes_that_the_pods_already_have_are_rejected() {
    let volume = |name: &str| json!({"name": name, "emptyDir": {}});
    let at = |path: &str| json!({"name": "own", "mountPath": path});
    let own = json!([volume("own")]);
    let bundle = json!({"configMapName": "authorities"});
    let pods = "extraVolumes: the pods of operators-controller-manager already have a volume";
    let manager = "extraVolumeMounts: the manager of operators-controller-manager already has a volume at";
    for (values, says) in [
        (json!({"extraVolumes": [volume("metrics-proxy-token")]}), format!("{pods} metrics-proxy-token,")),
        (json!({"extraVolumes": [volume("ca-bundle")], "caBundle": bundle}), format!("{pods} ca-bundle,")),
        (
            json!({"extraVolumes": [volume("webhook-certificate")], "webhooks": {"certManager": {"enabled": true}}}),
            format!("{pods} webhook-certificate,"),
        ),
        (
            json!({"extraVolumes": [volume("metrics-certificate")], "metrics": {"proxy": {"tls": {"secretName": "a"}}}}),
            format!("{pods} metrics-certificate,"),
        ),
        (json!({"extraVolumes": [volume("own"), volume("own")]}), format!("{pods} own,")),
        (
            json!({"extraVolumes": own, "extraVolumeMounts": [at("/certificates/authorities")], "caBundle": bundle}),
            format!("{manager} /certificates/authorities,"),
        ),
        (json!({"extraVolumes": own, "extraVolumeMounts": [at("/a"), at("/a")]}), format!("{manager} /a,")),
    ] {
        let refusal = refusal(&values);
        assert!(refusal.contains(&says), "{values}: {refusal}");
    }
    // The chart has these volumes only with other values.
    let rendered = render(&json!({"extraVolumes": [volume("ca-bundle"), volume("metrics-certificate")]}));
    let volumes = &of_manager(&rendered, "Deployment")["spec"]["template"]["spec"]["volumes"];
    assert_eq!(deep(volumes, "name"), ["metrics-proxy-token", "ca-bundle", "metrics-certificate"]);
}

#[test]
fn values_that_only_look_contradictory_are_accepted() {
    let provider = |provider: Value| json!({"flightticket": {"provider": provider}});
    let url = "https://booking.example.com";
    for values in [
        json!({"operators": provider(json!({"url": url, "tokenFile": "/token"}))}),
        json!({"operators": provider(json!({"tokenFile": "/token"})), "bookingServer": {"enabled": false}}),
        json!({"operators": provider(json!({"caFile": "/ca.crt"})), "bookingServer": {"enabled": false}}),
        json!({"operators": provider(json!({"url": url, "caFile": "/ca.crt"}))}),
        json!({"operators": provider(json!({"url": url, "secretName": "token"})), "bookingServer": {"enabled": true}}),
        json!({"leaderElection": {"enabled": false, "renewDeadline": "1h"}}),
        json!({"leaderElection": {"leaseDuration": "1m", "renewDeadline": "59s500ms"}}),
        json!({"telemetry": {"logLevel": "info,manager=debug,cache[reconcile{name=a,kind=b}]=trace"}}),
        // Only one of these operators has webhooks.
        json!({
            "webhooks": {"hostNetwork": true}, "topology": "separate",
            "operators": {"helloapp": {"enabled": false}, "memcached": {"enabled": false}},
        }),
    ] {
        helm().template(&values, &[]).unwrap_or_else(|error| panic!("{values}: {error:#}"));
    }
}

#[test]
fn an_upgrade_may_not_delete_the_definitions() {
    let values = json!({"crds": {"enabled": false, "keep": false}});
    helm().template(&values, &[]).expect("others may manage the definitions of a first release");
    let refusal = format!("{:#}", helm().template(&values, &["--is-upgrade"]).unwrap_err());
    assert!(refusal.contains("crds.enabled: with crds.keep: false, Helm would delete the definitions"), "{refusal}");
    helm().template(&json!({"crds": {"enabled": false}}), &["--is-upgrade"]).expect("the way back");
}

#[test]
fn null_values_still_render() {
    for values in [
        json!({"extraEnv": null, "commonLabels": null, "podLabels": null, "webhooks": {"namespaceSelector": null}}),
        json!({"podAnnotations": null, "probes": {"liveness": null}, "watchNamespaceLabels": null}),
        json!({"leaderElection": {"leaseDuration": null}, "watchNamespaces": null, "commonAnnotations": null}),
        json!({"operators": {"memcached": null}}),
        json!({"metrics": {"serviceMonitor": {"interval": null}}}),
        json!({"metrics": {"proxy": {"kind": "builtin", "tls": null}}}),
        json!({"metrics": {"proxy": {"kind": "kube-rbac-proxy", "image": null, "tls": null}}}),
        json!({"metrics": {"serviceMonitor": {"enabled": true, "tokenSecret": null}}}),
        json!({"resources": null, "podSecurityContext": null, "affinity": null}),
        json!({"image": {"tag": null}, "operators": {"memcached": {"image": null, "resources": null}}}),
    ] {
        helm().template(&values, &[]).unwrap_or_else(|error| panic!("{values}: {error:#}"));
    }
}

#[test]
fn null_in_place_of_a_value_means_its_default() {
    let nulls = json!({
        "topology": null, "image": {"repository": null, "pullPolicy": null}, "leaderElection": {"retryPeriod": null},
        "metrics": {"port": null, "proxy": {"kind": null, "tls": {"minVersion": null}}},
        "telemetry": {"logLevel": null}, "webhooks": {"port": null, "failurePolicy": null}, "operators": {"foo": null},
    });
    let rendered = render(&nulls).text;
    assert!(rendered == render(&json!({})).text, "a flag without a value would make a pod crash:\n{rendered}");
}
