//! What the schema cannot say of a valid Memcached: the same rules for the webhook and, where none runs or an object is
//! older than its rules, for the controller.

use manager::{FieldError, Findings};
use workloads::BudgetMode;

use crate::{
    api::Memcached,
    command_line::{PROCESS_MIB, check_extra_args},
};

/// Everything that is wrong.
pub fn errors(memcached: &Memcached) -> Vec<FieldError> {
    extra_args(memcached).into_iter().chain(memory_limit(memcached)).collect()
}

/// What the webhook says. The runtime lets pass what was stored before and stays as it is.
pub fn review(_: Option<&Memcached>, memcached: &Memcached) -> Findings {
    Findings { errors: errors(memcached), warnings: warnings(memcached) }
}

fn extra_args(memcached: &Memcached) -> Option<FieldError> {
    let has_tls = memcached.spec.tls.as_ref().is_some_and(|tls| tls.secret_name.is_some());
    let refused = check_extra_args(&memcached.spec.config().extra_args, has_tls);
    let (index, refusal) = refused.err()?;
    Some(FieldError { field: format!("spec.config.extraArgs[{index}]"), why: refusal.to_string() })
}

/// A node whose limit is below what memcached may take is killed sooner or later.
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

fn warnings(memcached: &Memcached) -> Vec<String> {
    let spec = &memcached.spec;
    let mut warnings = Vec::new();
    if let Some(image) = spec.image.as_deref().filter(|image| is_moving(image)) {
        warnings
            .push(format!("spec.image: \"{image}\" has no fixed tag: nodes that start later may run another version"));
    }
    let always = spec.pod_disruption_budget.as_ref().is_some_and(|budget| budget.mode == BudgetMode::Always);
    if always && spec.size == 1 {
        warnings
            .push("spec.podDisruptionBudget.mode: Always with size 1 lets no drain of its machine finish".to_owned());
    }
    warnings
}

/// Whether what is behind the name may change: no tag, or `latest`.
fn is_moving(image: &str) -> bool {
    let name = image.rsplit('/').next().unwrap_or(image);
    !image.contains('@') && name.split_once(':').is_none_or(|(_, tag)| tag == "latest")
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
    fn extra_arguments_are_named_by_index() {
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
    fn what_will_surprise_people_is_a_warning() {
        let warned = |spec: &Value| review(None, &samples::with_spec(spec)).warnings;
        for (image, count) in
            [("memcached", 1), ("a.example:5000/memcached", 1), ("memcached:latest", 1), ("memcached:1.6", 0)]
        {
            assert_eq!(warned(&json!({"image": image})).len(), count, "{image}");
        }
        assert_eq!(warned(&json!({"image": format!("memcached@sha256:{}", "0".repeat(64))})), Vec::<String>::new());
        let blocked = warned(&json!({"size": 1, "podDisruptionBudget": {"mode": "Always"}}));
        assert!(blocked[0].starts_with("spec.podDisruptionBudget.mode: Always with size 1"), "{blocked:?}");
        assert_eq!(warned(&json!({"size": 2, "podDisruptionBudget": {"mode": "Always"}})), Vec::<String>::new());
    }

    #[test]
    fn a_memory_limit_leaves_room_for_the_process() {
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
