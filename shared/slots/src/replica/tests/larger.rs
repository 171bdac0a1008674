//! Checks larger groups, only on request, because each takes hours. Each group is a test of its own, so that a run shows which of them
//! have ended.

use super::model::{Group, Pace};
use super::{check, check_beginnings};

/// Whether this run checks the larger groups. If not, it records why.
fn is_asked() -> bool {
    let is_asked = std::env::var("SLOTS_MODEL").is_ok_and(|value| value == "all");
    if !is_asked {
        skip::unasked("takes hours: set SLOTS_MODEL=all");
    }
    is_asked
}

#[test]
fn all_runs_of_two_replicas_that_pause_at_any_time() {
    if is_asked() {
        check(Group::new(2, 2, Pace::Any, 0));
    }
}

#[test]
fn beginnings_of_two_replicas_that_pause_at_any_time_and_meet_a_fault() {
    if is_asked() {
        check_beginnings(Group::new(2, 2, Pace::Any, 1), 20);
    }
}

#[test]
fn beginnings_of_three_replicas_that_pause_at_any_time() {
    if is_asked() {
        check_beginnings(Group::new(3, 3, Pace::Any, 0), 16);
    }
}

#[test]
fn two_replicas_share_two_slots_after_any_two_faults() {
    if is_asked() {
        check(Group::new(2, 2, Pace::Rounds, 2));
    }
}

#[test]
fn three_replicas_share_three_slots_after_any_fault() {
    if is_asked() {
        check(Group::new(3, 3, Pace::Rounds, 1));
    }
}
