//! Exporters, and the peers that reach the pods: what users draw of them, and what they add to the children.

use fastrand::Rng;
use serde_json::{Map, Value, json};

use super::{
    PORT, one_of,
    secured::{has_tls, verify_mode},
};

/// Draws `spec.metrics`, and sometimes `spec.networkPolicy` with peers. No `ServiceMonitor` is drawn: these clusters do not have the
/// kind.
pub(super) fn draw(rng: &mut Rng) -> Map<String, Value> {
    let mut metrics = json!({"enabled": rng.u8(..4) > 0});
    if rng.bool() {
        metrics["port"] = json!(9_150 + i64::from(rng.u8(..3)));
    }
    if rng.u8(..3) == 0 {
        metrics["image"] = json!(format!("example.com/exporter:{}", rng.u8(..2)));
    }
    if rng.u8(..3) == 0 {
        metrics["from"] = draw_peers("monitoring", rng);
    }
    let mut fields = Map::new();
    fields.insert("metrics".to_owned(), if rng.u8(..4) == 0 { metrics } else { Value::Null });
    if rng.u8(..6) == 0 {
        let policy = json!({"enabled": rng.u8(..4) > 0, "from": draw_peers("shop", rng)});
        fields.insert("networkPolicy".to_owned(), policy);
    }
    fields
}

fn draw_peers(app: &str, rng: &mut Rng) -> Value {
    let zone = one_of(rng, &["north", "south"]);
    json!([{"namespaceSelector": {"matchLabels": {"zone": zone}}, "podSelector": {"matchLabels": {"app": app}}}])
}

/// The port of the exporters, if there are any.
pub(super) fn port(spec: &Value) -> Option<i64> {
    let metrics = &spec["metrics"];
    (metrics["enabled"] == true).then(|| metrics["port"].as_i64().unwrap_or(9_150))
}

/// Section 2.3 of the specification, and the field's description for the resources: the container that the pods have beside memcached.
pub(super) fn exporter(spec: &Value) -> Option<Value> {
    let (port, memcached) = (port(spec)?, spec["port"].as_i64().unwrap_or(PORT));
    let mut args = vec![format!("--memcached.address=127.0.0.1:{memcached}"), format!("--web.listen-address=:{port}")];
    if has_tls(spec) {
        args.extend(["--memcached.tls.enable", "--memcached.tls.insecure-skip-verify"].map(str::to_owned));
    }
    let mut exporter = json!({
        "name": "exporter",
        "image": spec["metrics"]["image"].as_str().unwrap_or("docker.io/prom/memcached-exporter:v0.15.4"),
        "ports": [{"name": "metrics", "containerPort": port, "protocol": "TCP"}],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": true,
            "readOnlyRootFilesystem": true,
        },
    });
    if verify_mode(spec).is_some() {
        let file = |(flag, key)| format!("--memcached.tls.{flag}-file=/etc/memcached/tls/{key}");
        args.extend([("cert", "tls.crt"), ("key", "tls.key")].map(file));
        exporter["volumeMounts"] = json!([{"name": "tls", "mountPath": "/etc/memcached/tls", "readOnly": true}]);
    }
    exporter["args"] = json!(args);
    Some(exporter)
}

/// Section 2.1 of the specification, `networkPolicy`: the peers reach the ports of memcached and of the exporters, and no other ones.
/// Without peers, these are the pods of the namespace. `metrics.from` are other peers for the exporters.
pub(super) fn ingress(spec: &Value) -> Value {
    let rule = |from: &Value, ports: &[&str]| {
        let port = |name: &&str| json!({"port": name, "protocol": "TCP"});
        let from = if from.is_null() { json!([{"podSelector": {}}]) } else { from.clone() };
        json!({"from": from, "ports": ports.iter().map(port).collect::<Vec<_>>()})
    };
    let (from, metrics) = (&spec["networkPolicy"]["from"], &spec["metrics"]["from"]);
    match port(spec) {
        None => json!([rule(from, &["memcached"])]),
        Some(_) if metrics.is_null() => json!([rule(from, &["memcached", "metrics"])]),
        Some(_) => json!([rule(from, &["memcached"]), rule(metrics, &["metrics"])]),
    }
}
