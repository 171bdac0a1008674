//! Rules for a valid Memcached that the schema cannot express. The webhook applies them. The controller applies the same rules,
//! because a cluster may run no webhook and an object may be older than the rules.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use manager::{FieldError, ValidationResult};
use workloads::runs_latest;

use crate::{
    api::{
        Memcached,
        v1::{AntiAffinity, ClientAuth, MemcachedSpec},
    },
    command_line::{PROCESS_MIB, check_extra_args},
};

// ANCHOR: review
/// Returns all errors of the object.
pub fn errors(memcached: &Memcached) -> Vec<FieldError> {
    let found = [extra_args(memcached), memory_limit(memcached), metrics_port(memcached), client_auth(memcached)];
    found.into_iter().flatten().collect()
}

/// Returns the errors and warnings for the webhook. The runtime ignores errors that the stored object already has in fields that
/// the update does not change.
pub fn review(_: Option<&Memcached>, memcached: &Memcached) -> ValidationResult {
    ValidationResult { errors: errors(memcached), warnings: warnings(memcached) }
}
// ANCHOR_END: review

fn extra_args(memcached: &Memcached) -> Option<FieldError> {
    let refused = check_extra_args(&memcached.spec.config().extra_args, memcached.spec.has_tls());
    let (index, refusal) = refused.err()?;
    Some(FieldError { field: format!("spec.config.extraArgs[{index}]"), why: refusal.to_string() })
}

/// Refuses a memory limit below the amount that memcached may use: the kernel would kill the pod sooner or later.
fn memory_limit(memcached: &Memcached) -> Option<FieldError> {
    let limit = memcached.spec.resources.as_ref()?.limits.as_ref()?.get("memory")?;
    let least = i64::from(memcached.spec.config().memory_mb) + PROCESS_MIB;
    match workloads::quantity::whole(limit) {
        Some(bytes) if bytes >= i128::from(least) << 20 => None,
        _ => Some(FieldError {
            field: "spec.resources.limits.memory".to_owned(),
            why: format!("must be at least {least}Mi (memoryMB + {PROCESS_MIB}Mi)"),
        }),
    }
}

/// Repeats a rule of the schema, for objects that the API server stored under an older schema. The same is true for
/// [`client_auth`].
fn metrics_port(memcached: &Memcached) -> Option<FieldError> {
    let clash = memcached.spec.metrics().is_some_and(|it| it.port == memcached.spec.port());
    clash.then(|| FieldError { field: "spec.metrics.port".to_owned(), why: "must differ from spec.port".to_owned() })
}

fn client_auth(memcached: &Memcached) -> Option<FieldError> {
    let tls = memcached.spec.tls.as_ref();
    let asks = tls.is_some_and(|tls| tls.client_auth != ClientAuth::None && tls.secret_name.is_none());
    asks.then(|| FieldError { field: "spec.tls.clientAuth".to_owned(), why: "needs spec.tls.secretName".to_owned() })
}

fn warnings(memcached: &Memcached) -> Vec<String> {
    let spec = &memcached.spec;
    let mut warnings = Vec::new();
    if let Some(image) = spec.image.as_deref().filter(|image| runs_latest(image) && !image.contains('@')) {
        warnings
            .push(format!("spec.image: \"{image}\" has no fixed tag: pods that start later may run another version"));
    }
    if needs_spare_node(spec) {
        warnings.push(format!(
            "spec.antiAffinity: Hard needs more than {} Kubernetes nodes for a rollout; with fewer, set rollout.maxSurge: 0 and \
             rollout.maxUnavailable: 1",
            spec.size
        ));
    }
    if spec.metrics().is_some() && spec.auth.is_some() {
        warnings.push("spec.metrics: the exporter has no password, so it reports every pod as down".to_owned());
    }
    warnings
}

/// Whether a rollout has to start a pod before it stops one, while no two pods may share a Kubernetes node: on as many nodes as
/// pods, it never ends. The Deployment rounds a percentage of `maxUnavailable` down.
fn needs_spare_node(spec: &MemcachedSpec) -> bool {
    let may_stop_first = match spec.rollout().max_unavailable {
        IntOrString::Int(pods) => pods > 0,
        IntOrString::String(percent) => {
            percent.trim_end_matches('%').parse::<i32>().is_ok_and(|percent| percent * spec.size >= 100)
        }
    };
    spec.anti_affinity() == AntiAffinity::Hard && spec.size > 0 && !may_stop_first
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::samples;

    fn check(spec: &Value) -> Result<(), String> {
        review(None, &samples::with_spec(spec)).check().map_err(|it| it.to_string())
    }

    #[test]
    fn extra_args_errors_name_the_index() {
        let refused = check(&json!({"config": {"extraArgs": ["-o", "modern", "-m64"]}}));
        let expected = r#"spec.config.extraArgs[2]: "-m" is set by the operator; use spec.config.memoryMB"#;
        assert_eq!(refused, Err(expected.to_owned()));
        assert_eq!(check(&json!({"config": {"extraArgs": ["-o", "modern", "--max-reqs-per-event=40"]}})), Ok(()));
        let options = json!({"extraArgs": ["-o", "ssl_key=a"]});
        assert_eq!(check(&json!({"config": options, "tls": {}})), Ok(()));
        let refused = check(&json!({"config": options, "tls": {"secretName": "a"}}));
        let expected = r#"spec.config.extraArgs[1]: "ssl_key" is set by the operator; use spec.tls"#;
        assert_eq!(refused, Err(expected.to_owned()));
    }

    #[test]
    fn surprising_values_are_warned_about() {
        let warned = |spec: &Value| review(None, &samples::with_spec(spec)).warnings;
        for (image, count) in
            [("memcached", 1), ("a.example:5000/memcached", 1), ("memcached:latest", 1), ("memcached:1.6", 0)]
        {
            assert_eq!(warned(&json!({"image": image})).len(), count, "{image}");
        }
        for name in ["memcached", "memcached:latest"] {
            let pinned = format!("{name}@sha256:{}", "0".repeat(64));
            assert_eq!(warned(&json!({"image": pinned})), Vec::<String>::new());
        }
        let exporter = json!({"metrics": {"enabled": true}, "auth": {"secretName": "a"}});
        assert!(warned(&exporter)[0].starts_with("spec.metrics: the exporter has no password"), "{exporter}");
        let budget = json!({"size": 1, "podDisruptionBudget": {"mode": "Always"}});
        assert_eq!(warned(&budget), Vec::<String>::new(), "the budget lets a drain evict one pod");
    }

    #[test]
    fn hard_anti_affinity_is_warned_about_if_a_rollout_needs_a_spare_node() {
        let warned = |size: i32, rollout: &Value| {
            let spec = json!({"size": size, "antiAffinity": "Hard", "rollout": rollout});
            review(None, &samples::with_spec(&spec)).warnings
        };
        let told = warned(3, &json!({}));
        assert_eq!(
            told,
            [
                "spec.antiAffinity: Hard needs more than 3 Kubernetes nodes for a rollout; with fewer, set rollout.maxSurge: 0 and \
              rollout.maxUnavailable: 1"
            ]
        );
        for (size, rollout, count) in [
            (0, json!({}), 0),
            (3, json!({"maxUnavailable": 1}), 0),
            (3, json!({"maxUnavailable": "33%"}), 1),
            (3, json!({"maxUnavailable": "34%"}), 0),
            (4, json!({"maxUnavailable": "0%"}), 1),
        ] {
            assert_eq!(warned(size, &rollout).len(), count, "{size} {rollout}");
        }
        let soft = review(None, &samples::with_spec(&json!({"size": 3, "antiAffinity": "Soft"}))).warnings;
        assert_eq!(soft, Vec::<String>::new());
    }

    #[test]
    fn contradictory_fields_are_rejected() {
        let metrics = |port: i32| check(&json!({"port": 9150, "metrics": {"enabled": true, "port": port}}));
        assert_eq!(metrics(9150), Err("spec.metrics.port: must differ from spec.port".to_owned()));
        assert_eq!(metrics(9151), Ok(()));
        assert_eq!(check(&json!({"port": 9150, "metrics": {"port": 9150}})), Ok(()));
        let asked = check(&json!({"tls": {"clientAuth": "Request"}}));
        assert_eq!(asked, Err("spec.tls.clientAuth: needs spec.tls.secretName".to_owned()));
        assert_eq!(check(&json!({"tls": {"clientAuth": "Request", "secretName": "a"}})), Ok(()));
    }

    #[test]
    fn memory_limit_must_leave_room_for_the_process() {
        let limited = |limit: &str| check(&json!({"resources": {"limits": {"memory": limit}}}));
        let refused = Err("spec.resources.limits.memory: must be at least 96Mi (memoryMB + 32Mi)".to_owned());
        assert_eq!(limited("96Mi"), Ok(()));
        assert_eq!(limited("0.1Gi"), Ok(()));
        assert_eq!(limited("95Mi"), refused);
        assert_eq!(limited("100M"), refused);
        assert_eq!(check(&json!({"resources": {"limits": {"cpu": 1}}})), Ok(()));
        assert_eq!(check(&json!({})), Ok(()));
    }
}
