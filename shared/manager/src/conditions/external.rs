//! Conditions of an object that represents something outside of the cluster. It has no children whose health could be
//! combined. Instead the operator states what it found there, which may be unknown.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::{ConditionContext, Verdict};

/// One condition, which may be unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// `None` is Unknown.
    pub status: Option<bool>,
    /// A `CamelCase` word, part of the API.
    pub reason: &'static str,
    /// A sentence for the user.
    pub message: String,
}

/// The findings outside of the cluster: `Ready` and `Synced`, from which `Reconciling` or `Stalled` follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct External {
    /// Whether the external resource is there.
    pub ready: Finding,
    /// Whether the external resource is as the spec says.
    pub synced: Finding,
    /// Whether the operator waits until a user changes something.
    pub stalled: bool,
}

impl External {
    pub(crate) fn conditions(&self, context: ConditionContext<'_>) -> Vec<Condition> {
        let condition = |type_: &str, finding: &Finding| {
            let Finding { status, reason, message } = finding.clone();
            let verdict = Verdict { status: status == Some(true), reason, message };
            let found = context.condition(type_, &verdict);
            match status {
                Some(_) => found,
                None => context.timed(Condition { status: "Unknown".to_owned(), ..found }),
            }
        };
        let mut conditions = vec![condition("Ready", &self.ready), condition("Synced", &self.synced)];
        let still = Finding { status: Some(true), ..self.ready.clone() };
        if self.stalled {
            conditions.push(condition("Stalled", &still));
        } else if self.ready.status != Some(true) {
            conditions.push(condition("Reconciling", &still));
        }
        conditions
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn finding(status: Option<bool>) -> Finding {
        Finding { status, reason: "Because", message: "of it".to_owned() }
    }

    fn said(ready: Option<bool>, stalled: bool, stored: &[Condition], now: Timestamp) -> Vec<Condition> {
        let external = External { ready: finding(ready), synced: finding(None), stalled };
        external.conditions(ConditionContext { stored, generation: 3, now })
    }

    #[test]
    fn unknown_is_reported_and_stalled_excludes_reconciling() {
        let now = "2026-11-21T10:00:00Z".parse().expect("a time");
        let words = |conditions: Vec<Condition>| -> Vec<String> {
            conditions.iter().map(|it| format!("{}={}/{}", it.type_, it.status, it.reason)).collect()
        };
        let of = |ready, stalled| words(said(ready, stalled, &[], now)).join(" ");
        assert_eq!(of(Some(true), false), "Ready=True/Because Synced=Unknown/Because");
        assert_eq!(of(Some(false), false), "Ready=False/Because Synced=Unknown/Because Reconciling=True/Because");
        assert_eq!(of(None, false), "Ready=Unknown/Because Synced=Unknown/Because Reconciling=True/Because");
        assert_eq!(of(Some(false), true), "Ready=False/Because Synced=Unknown/Because Stalled=True/Because");
    }

    #[test]
    fn unknown_condition_keeps_its_transition_time() {
        let (then, now) =
            ("2026-11-21T10:00:00Z".parse().expect("a time"), "2026-11-21T11:00:00Z".parse().expect("a time"));
        let stored = said(None, false, &[], then);
        assert_eq!(said(None, false, &stored, now), stored);
        let ready = said(Some(true), false, &stored, now).remove(0);
        assert_eq!(ready.last_transition_time.0, now);
    }
}
