//! The warning webhook: kubectl prints its warnings when a user applies a HelloApp with unwise settings.

use manager::ValidationResult;
use workloads::{SecurityProfile, runs_latest};

use crate::{HelloApp, api::v1::HelloAppSpec};

/// Returns the webhook's findings about `new`, which may replace `old`. They are only warnings, so the API server accepts objects
/// without them when the webhook does not answer.
pub fn review(old: Option<&HelloApp>, new: &HelloApp) -> ValidationResult {
    ValidationResult { warnings: warnings(old, new), ..ValidationResult::none() }
}

/// Returns the warnings about `new`, which may replace `old`. It does not repeat warnings that already apply to `old`.
pub fn warnings(old: Option<&HelloApp>, new: &HelloApp) -> Vec<String> {
    let before = old.map(|it| warnings_of(&it.spec)).unwrap_or_default();
    warnings_of(&new.spec).into_iter().filter(|it| !before.contains(it)).collect()
}

fn warnings_of(spec: &HelloAppSpec) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(port) = spec.port.filter(|port| *port < 1024 && runs_restricted(spec)) {
        warnings.push(format!(
            "spec.port: {port} is below 1024, where most images cannot listen under securityProfile Restricted; use a \
             port such as 8080 (the Service can still have port 80)"
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

fn runs_restricted(spec: &HelloAppSpec) -> bool {
    spec.security_profile.unwrap_or_default() == SecurityProfile::Restricted
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::samples;

    fn fields(old: Option<Value>, new: &Value) -> Vec<String> {
        let old = old.map(|spec| samples::with_spec(&spec));
        let warnings = warnings(old.as_ref(), &samples::with_spec(new));
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
        ] {
            assert_eq!(fields(None, &spec), expected, "{spec}");
        }
    }

    #[test]
    fn unchanged_field_is_not_warned_about_again() {
        let latest = json!({"image": "app"});
        assert!(fields(Some(latest.clone()), &json!({"image": "app", "size": 3})).is_empty());
        assert_eq!(fields(Some(latest), &json!({"image": "other"})), ["spec.image"]);
    }
}
