//! Tests of values that the chart refuses, with a message that names the key.

use serde_json::{Value, json};

use crate::kit::helm;

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
        (json!({"image": {"digest": "sha256:abc"}}), "digest"),
        (json!({"image": {"pullPolicy": "Sometimes"}}), "pullPolicy"),
        (json!({"leaderElection": {"leaseDuration": "soon"}}), "leaseDuration"),
        (json!({"watchNamespaces": "default"}), "watchNamespaces"),
        (json!({"watchNamespaces": ["default"], "watchNamespaceLabels": {"team": "x"}}), "watchNamespaceLabels"),
        (json!({"telemetry": {"logFormat": "xml"}}), "logFormat"),
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
        (json!({"networkPolicy": {"egress": [{}]}}), "networkPolicy.egress: needs networkPolicy.enabled: true"),
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
    ] {
        let refusal = refusal(&values);
        assert!(refusal.contains(says), "{values}: {refusal}");
    }
}

#[test]
fn null_values_still_render() {
    for values in [
        json!({"operators": {"memcached": null}}),
        json!({"metrics": {"serviceMonitor": {"interval": null}}}),
        json!({"resources": null, "podSecurityContext": null, "affinity": null}),
        json!({"image": {"tag": null}, "operators": {"memcached": {"image": null, "resources": null}}}),
    ] {
        helm().template(&values, &[]).unwrap_or_else(|error| panic!("{values}: {error:#}"));
    }
}
