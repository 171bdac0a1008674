//! The admission webhook: refuses what the schema cannot, and warns of settings that may surprise the user.

use manager::ValidationResult;
use schedule::explain;

use crate::{CronTab, api::v1::ConcurrencyPolicy, timing::Timing};

/// The shortest effective `startingDeadlineSeconds`. Shorter ones count as this.
const SHORTEST_DEADLINE: i64 = 10;

/// Returns the errors and warnings for `new`, which may replace `old`. The runtime admits errors that the stored object already
/// had.
pub fn review(old: Option<&CronTab>, new: &CronTab) -> ValidationResult {
    let mut findings = ValidationResult::none();
    match Timing::of(&new.spec) {
        Err(wrong) => findings.refuse(wrong.field(), wrong.why()),
        Ok(timing) => {
            for note in explain::notes(&timing.schedule) {
                findings.warn(format!("spec.cronSpec: {note}"));
            }
        }
    }
    if let Some(seconds) = new.spec.starting_deadline_seconds.filter(|seconds| *seconds < SHORTEST_DEADLINE) {
        findings.warn(format!("spec.startingDeadlineSeconds: {seconds} counts as {SHORTEST_DEADLINE}"));
    }
    let policy = new.spec.concurrency_policy;
    if new.spec.max_active_jobs.is_some() && policy != ConcurrencyPolicy::Allow {
        findings.warn(format!("spec.maxActiveJobs: has no effect with concurrencyPolicy {policy:?}"));
    }
    // An edit repeats no warning about what it does not change.
    if let Some(old) = old {
        let earlier = review(None, old).warnings;
        findings.warnings.retain(|warning| !earlier.contains(warning));
    }
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::samples;

    fn crontab(spec: &Value) -> CronTab {
        let mut whole = json!({"cronSpec": "@daily", "image": "a"});
        whole.as_object_mut().expect("an object").extend(spec.as_object().expect("an object").clone());
        samples::with_spec(&whole)
    }

    #[test]
    fn invalid_specs_are_rejected() {
        for (spec, field, words) in [
            (json!({"cronSpec": "* * * *"}), "spec.cronSpec", "five"),
            (json!({"cronSpec": "60 * * * *"}), "spec.cronSpec", "minute"),
            (json!({"cronSpec": "* * * * 7"}), "spec.cronSpec", "day of week"),
            (json!({"cronSpec": "TZ=UTC * * * * *"}), "spec.cronSpec", "use timeZone instead"),
            (json!({"cronSpec": "0 0 31 2 *"}), "spec.cronSpec", "never fires"),
            (json!({"cronSpec": "@every 1s"}), "spec.cronSpec", "10"),
            (json!({"cronSpec": "@daily; 0 9 * * 7"}), "spec.cronSpec", "expression 2, day of week"),
            (json!({"cronSpec": "@daily;"}), "spec.cronSpec", "expression 2: is empty"),
            (json!({"cronSpec": "@daily; @every 1h"}), "spec.cronSpec", "cannot be one of several"),
            (json!({"cronSpec": (["@daily"; 9].join(";"))}), "spec.cronSpec", "at most 8"),
            (json!({"timeZone": "europe/berlin"}), "spec.timeZone", "write Europe/Berlin"),
        ] {
            let errors = review(None, &crontab(&spec)).errors;
            assert_eq!(errors.len(), 1, "{spec}");
            assert_eq!(errors[0].field, field);
            assert!(errors[0].why.contains(words), "{spec}: {}", errors[0].why);
        }
    }

    #[test]
    fn surprising_values_are_warned_about_once() {
        let surprising = crontab(&json!({
            "cronSpec": "*/7 * * * *", "startingDeadlineSeconds": 5, "concurrencyPolicy": "Forbid", "maxActiveJobs": 3,
        }));
        let warnings = review(None, &surprising).warnings;
        assert_eq!(warnings.len(), 3, "{warnings:?}");
        assert!(warnings[0].starts_with("spec.cronSpec: Steps of 7"), "{warnings:?}");
        assert_eq!(warnings[1], "spec.startingDeadlineSeconds: 5 counts as 10");
        assert_eq!(warnings[2], "spec.maxActiveJobs: has no effect with concurrencyPolicy Forbid");
        let allowed = crontab(&json!({"concurrencyPolicy": "Allow", "maxActiveJobs": 3}));
        assert_eq!(review(None, &allowed), ValidationResult::none());
        assert_eq!(review(Some(&surprising), &surprising).warnings, Vec::<String>::new());
        assert_eq!(review(None, &crontab(&json!({}))), ValidationResult::none());
    }
}
