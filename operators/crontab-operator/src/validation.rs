//! What the schema cannot say of a valid CronTab, and what is unwise.

use manager::Findings;
use schedule::explain;

use crate::{CronTab, timing::Timing};

/// The shortest `startingDeadlineSeconds` that means something.
const SHORTEST_DEADLINE: i64 = 10;

/// What the webhook says of `new`, which may replace `old`. The runtime lets pass what was stored before and stays as it is.
pub fn review(old: Option<&CronTab>, new: &CronTab) -> Findings {
    let mut findings = Findings::none();
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
    // Nobody is told twice of what has not changed.
    if let Some(old) = old {
        let told = review(None, old).warnings;
        findings.warnings.retain(|warning| !told.contains(warning));
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
    fn what_is_refused() {
        for (spec, field, words) in [
            (json!({"cronSpec": "* * * *"}), "spec.cronSpec", "five"),
            (json!({"cronSpec": "60 * * * *"}), "spec.cronSpec", "minute"),
            (json!({"cronSpec": "* * * * 7"}), "spec.cronSpec", "day of week"),
            (json!({"cronSpec": "TZ=UTC * * * * *"}), "spec.cronSpec", "use timeZone instead"),
            (json!({"cronSpec": "0 0 31 2 *"}), "spec.cronSpec", "never fires"),
            (json!({"cronSpec": "@every 1s"}), "spec.cronSpec", "10"),
            (json!({"timeZone": "europe/berlin"}), "spec.timeZone", "write Europe/Berlin"),
        ] {
            let errors = review(None, &crontab(&spec)).errors;
            assert_eq!(errors.len(), 1, "{spec}");
            assert_eq!(errors[0].field, field);
            assert!(errors[0].why.contains(words), "{spec}: {}", errors[0].why);
        }
    }

    #[test]
    fn what_will_surprise_people_is_a_warning_once() {
        let surprising = crontab(&json!({"cronSpec": "*/7 * * * *", "startingDeadlineSeconds": 5}));
        let warnings = review(None, &surprising).warnings;
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(warnings[0].starts_with("spec.cronSpec: Steps of 7"), "{warnings:?}");
        assert_eq!(warnings[1], "spec.startingDeadlineSeconds: 5 counts as 10");
        assert_eq!(review(Some(&surprising), &surprising).warnings, Vec::<String>::new());
        assert_eq!(review(None, &crontab(&json!({}))), Findings::none());
    }
}
