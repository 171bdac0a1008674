//! The warning webhook: kubectl prints its warnings when a user applies a HelloApp with unwise settings.

use manager::ValidationResult;
use workloads::{SecurityPolicy, SecurityProfile, runs_latest};

use crate::{
    HelloApp,
    api::v1::{HelloAppSpec, StartupProbe},
};

/// Returns the webhook's findings about `new`, which may replace `old`. They are only warnings, so the API server accepts objects
/// without them when the webhook does not answer. `security` says which profile the object has if it sets none.
pub fn review(old: Option<&HelloApp>, new: &HelloApp, security: SecurityPolicy) -> ValidationResult {
    ValidationResult { warnings: warnings(old, new, security), ..ValidationResult::none() }
}

/// Returns the warnings about `new`, which may replace `old`. It does not repeat warnings that already apply to `old`.
pub fn warnings(old: Option<&HelloApp>, new: &HelloApp, security: SecurityPolicy) -> Vec<String> {
    let before = old.map(|it| warnings_of(&it.spec, security)).unwrap_or_default();
    warnings_of(&new.spec, security).into_iter().filter(|it| !before.contains(it)).collect()
}

fn warnings_of(spec: &HelloAppSpec, security: SecurityPolicy) -> Vec<String> {
    let mut warnings = Vec::new();
    let profile = security.profile(spec.security_profile);
    if let Err(why) = &profile {
        warnings.push(format!("spec.securityProfile: {why}"));
    }
    if let Some(port) = spec.port.filter(|port| *port < 1024 && profile == Ok(SecurityProfile::Restricted)) {
        warnings.push(format!(
            "spec.port: {port} is below 1024, where most images cannot listen under securityProfile Restricted; use a \
             port such as 8080 (the Service can still have port 80)"
        ));
    }
    let deadline = spec.rollout().progress_deadline_seconds;
    if let Some(StartupProbe { period_seconds, failure_threshold }) = &spec.startup_probe
        && i64::from(*period_seconds) * i64::from(*failure_threshold) > i64::from(deadline)
    {
        warnings.push(format!(
            "spec.startupProbe: it lets the app start for longer than rollout.progressDeadlineSeconds ({deadline}), after which a \
             change counts as stalled; raise that deadline too"
        ));
    }
    if runs_latest(&spec.image) {
        warnings.push(format!(
            "spec.image: \"{}\" has no fixed version, so two pods may run different versions and a rollback is \
             impossible; use a version tag or a digest",
            spec.image
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::samples;

    fn fields(old: Option<Value>, new: &Value) -> Vec<String> {
        let old = old.map(|spec| samples::with_spec(&spec));
        let warnings = warnings(old.as_ref(), &samples::with_spec(new), SecurityPolicy::default());
        warnings.iter().map(|it| it.split(':').next().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn risky_values_are_warned_about() {
        for (spec, expected) in [
            (json!({"image": "app:1"}), vec![]),
            (json!({"image": "app:1", "port": 1024}), vec![]),
            (json!({"image": "app:1", "port": 80}), vec!["spec.port"]),
            (json!({"image": "app:1", "port": 80, "securityProfile": "RootAllowed"}), vec![]),
            (json!({"image": "app"}), vec!["spec.image"]),
            (json!({"image": "app:latest", "port": 1023}), vec!["spec.port", "spec.image"]),
            (json!({"image": "app@sha256:0"}), vec![]),
            (json!({"image": "app:1", "port": 8080, "startupProbe": {}}), vec![]),
            (
                json!({"image": "app:1", "port": 8080, "startupProbe": {"failureThreshold": 61}}),
                vec!["spec.startupProbe"],
            ),
        ] {
            assert_eq!(fields(None, &spec), expected, "{spec}");
        }
    }

    #[test]
    fn warnings_follow_the_security_policy_of_the_administrator() {
        use SecurityProfile::{Baseline, Restricted, RootAllowed};
        let warned = |default, weakest, spec: &Value| {
            warnings(None, &samples::with_spec(spec), SecurityPolicy::new(default, weakest))
        };
        let low = json!({"image": "app:1", "port": 80});
        assert_eq!(warned(Baseline, Baseline, &low), Vec::<String>::new());
        assert!(warned(Restricted, Baseline, &low)[0].starts_with("spec.port: 80 is below 1024"));
        let weak = json!({"image": "app:1", "securityProfile": "Baseline"});
        assert!(warned(Restricted, RootAllowed, &weak)[0].starts_with("spec.securityProfile: Baseline is weaker"));
    }

    #[test]
    fn unchanged_field_is_not_warned_about_again() {
        let latest = json!({"image": "app"});
        assert!(fields(Some(latest.clone()), &json!({"image": "app", "size": 3})).is_empty());
        assert_eq!(fields(Some(latest), &json!({"image": "other"})), ["spec.image"]);
    }
}
