//! What the schema cannot say of a valid Memcached.

use std::fmt;

use crate::{
    api::Memcached,
    command_line::{PROCESS_MIB, check_extra_args},
};

/// A field that cannot be what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// The path of the field, as the user writes it.
    pub field: String,
    /// What is wrong, and what would be right.
    pub why: String,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.why)
    }
}

impl From<Invalid> for manager::Error {
    fn from(Invalid { field, why }: Invalid) -> Self {
        Self::Invalid { field, why }
    }
}

/// Names the first thing that is wrong.
pub fn validate(memcached: &Memcached) -> Result<(), Invalid> {
    extra_args(memcached)?;
    memory_limit(memcached)
}

fn extra_args(memcached: &Memcached) -> Result<(), Invalid> {
    check_extra_args(&memcached.spec.config().extra_args).map_err(|(index, refusal)| Invalid {
        field: format!("spec.config.extraArgs[{index}]"),
        why: refusal.to_string(),
    })
}

/// A node whose limit is below what memcached may take is killed sooner or later.
fn memory_limit(memcached: &Memcached) -> Result<(), Invalid> {
    let limits = memcached.spec.resources.as_ref().and_then(|it| it.limits.as_ref());
    let Some(limit) = limits.and_then(|it| it.get("memory")) else { return Ok(()) };
    let least = i64::from(memcached.spec.config().memory_mb) + PROCESS_MIB;
    match workloads::quantity::whole(limit) {
        Some(bytes) if bytes >= i128::from(least) << 20 => Ok(()),
        _ => Err(Invalid {
            field: "spec.resources.limits.memory".to_owned(),
            why: format!("must be at least {least}Mi (memoryMB + {PROCESS_MIB}Mi)"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::samples;

    fn check(spec: &Value) -> Result<(), String> {
        validate(&samples::with_spec(spec)).map_err(|it| it.to_string())
    }

    #[test]
    fn extra_arguments_are_named_by_index() {
        let refused = check(&json!({"config": {"extraArgs": ["-o", "modern", "-m64"]}}));
        let expected = r#"spec.config.extraArgs[2]: "-m" is set by the operator; use spec.config.memoryMB"#;
        assert_eq!(refused, Err(expected.to_owned()));
        assert_eq!(check(&json!({"config": {"extraArgs": ["-o", "modern", "--max-reqs-per-event=40"]}})), Ok(()));
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
