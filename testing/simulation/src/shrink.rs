//! Shortens a failing plan to the disturbances that the failure needs.

use std::time::{Duration, Instant};

use crate::{
    disturbance::Disturbance,
    plan::{Plan, Played},
    subjects::Subjects,
};

/// Leaves out halves, quarters and smaller parts of the disturbances as long as the plan still fails (delta debugging, Zeller
/// 1999). Stops after `limit` in real time. Returns the shortest plan that it found, and the result of that plan.
pub(crate) fn shrink(plan: &Plan, played: Played, subjects: &Subjects, limit: Duration) -> (Plan, Played) {
    let (begun, mut plan, mut played) = (Instant::now(), plan.clone(), played);
    let mut parts = 2;
    while !plan.disturbances.is_empty() {
        let size = plan.disturbances.len().div_ceil(parts);
        let mut shorter = None;
        for start in (0..plan.disturbances.len()).step_by(size) {
            if begun.elapsed() > limit {
                return (plan, played);
            }
            let without = |(index, disturbance): (usize, &Disturbance)| {
                (index < start || index >= start + size).then_some(*disturbance)
            };
            let kept = plan.disturbances.iter().enumerate().filter_map(without).collect();
            let candidate = Plan { disturbances: kept, ..plan.clone() };
            let outcome = candidate.play(subjects.clone());
            if outcome.failure.is_some() {
                shorter = Some((candidate, outcome));
                break;
            }
        }
        match shorter {
            Some(found) => {
                (plan, played) = found;
                parts = parts.saturating_sub(1).max(2);
            }
            None if size == 1 => break,
            None => parts = (2 * parts).min(plan.disturbances.len()),
        }
    }
    (plan, played)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{disturbance::Act, toy::Books};

    #[test]
    fn failure_shrinks_to_the_only_one_of_thirty_disturbances_that_it_needs() {
        static BOOKS: Books =
            Books { is_wrong: |object| !object["metadata"]["labels"]["team"].is_null(), claims_wrongly: |_| false };
        let act = |number: u64| (5 * number, if number == 17 { Act::Label } else { Act::Annotate }, number);
        let plan = Plan::scripted(1, &(1..=30).map(act).collect::<Vec<_>>());
        let played = plan.play(&BOOKS);
        let (short, played) = shrink(&plan, played, &Subjects::from(&BOOKS), Duration::MAX);
        assert!(matches!(&short.disturbances[..], [only] if only.act == Act::Label), "{short}");
        assert_eq!(played.failure.as_deref(), Some("object 0: the object is wrong"));
    }
}
