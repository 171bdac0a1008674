use super::*;

const NOW: &str = "2026-01-01T00:10:00Z";

fn time(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

fn health() -> Health {
    Health {
        available: Some(Verdict::yes("MinimumNodesAvailable", "3/3 nodes are ready")),
        progressing: Some(Verdict::no("Stable", "")),
        problems: Vec::new(),
        ready: Verdict::yes("Ready", "all 3 nodes are ready"),
        stays_ready: false,
        is_settled: true,
        own: Vec::new(),
        recheck: None,
    }
}

fn at<'a>(stored: &'a [Condition], now: &str) -> ConditionContext<'a> {
    ConditionContext { stored, generation: 7, now: time(now) }
}

fn show(conditions: &[Condition]) -> Vec<String> {
    conditions.iter().map(|c| format!("{}={}/{}", c.type_, c.status, c.reason)).collect()
}

#[test]
fn healthy_object_is_ready() {
    let (conditions, recheck) = combine(&health(), &[], at(&[], NOW));
    assert_eq!(
        show(&conditions),
        [
            "Available=True/MinimumNodesAvailable",
            "Progressing=False/Stable",
            "Degraded=False/AsExpected",
            "Ready=True/Ready"
        ]
    );
    assert_eq!(recheck, None);
    assert!(conditions.iter().all(|condition| condition.observed_generation == Some(7)));
}

#[test]
fn progressing_object_is_reconciling_and_not_ready() {
    let health = Health { progressing: Some(Verdict::yes("RollingOut", "1/3 nodes updated")), ..health() };
    let (conditions, _) = combine(&health, &[], at(&[], NOW));
    assert_eq!(
        show(&conditions)[1..],
        [
            "Progressing=True/RollingOut",
            "Degraded=False/AsExpected",
            "Ready=False/RollingOut",
            "Reconciling=True/RollingOut"
        ]
    );
}

#[test]
fn degraded_object_can_stay_ready() {
    let health = Health {
        available: None,
        progressing: None,
        problems: vec![Problem::new(ProblemKind::new("TooManyActiveJobs", 110), "2 jobs are active")],
        stays_ready: true,
        ..health()
    };
    let (conditions, stalled) = combine(&health, &[], at(&[], NOW));
    assert_eq!(show(&conditions), ["Degraded=True/TooManyActiveJobs", "Ready=True/Ready"]);
    assert_eq!(stalled, Some(time("2026-01-01T00:11:00Z")), "it is stalled after a minute all the same");
}

/// A failed run of an object with a schedule: the next run starts all the same.
#[test]
fn problem_that_never_stalls_only_degrades() {
    let failed = Problem::new(ProblemKind::new("LastRunFailed", 120).never_stalls(), "job a-1 failed");
    let health = Health { available: None, progressing: None, problems: vec![failed], stays_ready: true, ..health() };
    let (first, recheck) = combine(&health, &[], at(&[], NOW));
    assert_eq!(recheck, None, "time alone changes nothing");
    let (later, recheck) = combine(&health, &[], at(&first, "2026-01-01T01:00:00Z"));
    assert_eq!(show(&later), ["Degraded=True/LastRunFailed", "Ready=True/Ready"]);
    assert_eq!(recheck, None);

    // Another problem stalls the object after a minute of its own, also if it is not the one that Degraded shows.
    let refused = [Problem::new(ProblemKind::new("QuotaExceeded", 30), "no quota")];
    let (both, recheck) = combine(&health, &refused, at(&later, "2026-01-01T02:00:00Z"));
    assert_eq!(show(&both)[1..], ["Ready=True/Ready", "Stalled=False/QuotaExceeded"]);
    assert_eq!(recheck, Some(time("2026-01-01T02:01:00Z")));
    let (soon, recheck) = combine(&health, &refused, at(&both, "2026-01-01T02:00:30Z"));
    assert_eq!((show(&soon), recheck), (show(&both), Some(time("2026-01-01T02:01:00Z"))));
    let (stalled, recheck) = combine(&health, &refused, at(&soon, "2026-01-01T02:01:00Z"));
    assert_eq!((show(&stalled).last().map(String::as_str), recheck), (Some("Stalled=True/QuotaExceeded"), None));
    // It stays so after the failed run is history, and ends with its cause.
    let (alone, _) =
        combine(&Health { problems: Vec::new(), ..health.clone() }, &refused, at(&stalled, "2026-01-01T02:02:00Z"));
    assert_eq!(show(&alone).last().map(String::as_str), Some("Stalled=True/QuotaExceeded"));
    let (ended, _) = combine(&health, &[], at(&stalled, "2026-01-01T02:03:00Z"));
    assert_eq!(show(&ended), ["Degraded=True/LastRunFailed", "Ready=True/Ready"]);
}

#[test]
fn own_conditions_come_last_and_stay_while_the_object_is_halted() {
    let own = vec![("LastRunSucceeded", Verdict::no("JobFailed", "job a-1 failed"))];
    let health = Health { available: None, progressing: None, own, ..health() };
    let (stored, _) = combine(&health, &[], at(&[], NOW));
    let own = "LastRunSucceeded=False/JobFailed";
    assert_eq!(show(&stored), ["Degraded=False/AsExpected", "Ready=True/Ready", own]);
    let paused = halted(&NotReconciled::Paused("paused".to_owned()), at(&stored, NOW));
    assert_eq!(show(&paused), ["Degraded=False/AsExpected", "Ready=Unknown/Paused", own]);
    let invalid = NotReconciled::Invalid(Problem::new(ProblemKind::INVALID_SPEC, "no"));
    assert_eq!(
        show(&halted(&invalid, at(&paused, NOW))),
        ["Degraded=True/InvalidSpec", "Ready=False/InvalidSpec", "Stalled=True/InvalidSpec", own]
    );
}

#[test]
fn strongest_problem_is_the_reason_and_others_are_listed() {
    let problems = vec![
        Problem::new(ProblemKind::not_ready("NodesNotReady"), "2/3"),
        Problem::new(ProblemKind::IMAGE_PULL_FAILED, "cannot pull"),
    ];
    let health = Health { problems, ..health() };
    let refused = [Problem::new(ProblemKind::RESOURCE_CONFLICT, "taken")];
    let (conditions, _) = combine(&health, &refused, at(&[], NOW));
    let degraded = conditions.iter().find(|condition| condition.type_ == "Degraded").expect("Degraded");
    assert_eq!(degraded.reason, "ResourceConflict");
    assert_eq!(degraded.message, "taken; also: ImagePullFailed, NodesNotReady");
    let curable = [Problem::new(ProblemKind::RESOURCE_CONFLICT, "taken").with_cure("rename it")];
    let (conditions, _) = combine(&health, &curable, at(&[], NOW));
    let degraded = conditions.iter().find(|condition| condition.type_ == "Degraded").expect("Degraded");
    assert_eq!(degraded.message, "taken; rename it; also: ImagePullFailed, NodesNotReady");
    assert_eq!(show(&conditions).last().map(String::as_str), Some("Ready=False/ResourceConflict"));
}

#[test]
fn problem_stalls_the_object_after_one_minute() {
    let health = Health { problems: vec![Problem::new(ProblemKind::IMAGE_PULL_FAILED, "cannot pull")], ..health() };
    let (first, recheck) = combine(&health, &[], at(&[], NOW));
    assert!(!is_true(&first, "Stalled"));
    assert_eq!(recheck, Some(time("2026-01-01T00:11:00Z")));
    let (later, recheck) = combine(&health, &[], at(&first, "2026-01-01T00:11:00Z"));
    assert!(is_true(&later, "Stalled"));
    assert_eq!(recheck, None);
}

/// Found by a simulated world: `Stalled` came an hour late.
#[test]
fn problem_from_before_a_clock_step_back_stalls_the_object() {
    let health = Health { problems: vec![Problem::new(ProblemKind::IMAGE_PULL_FAILED, "cannot pull")], ..health() };
    let (first, _) = combine(&health, &[], at(&[], "2026-01-01T01:00:00Z"));
    let (behind, recheck) = combine(&health, &[], at(&first, "2026-01-01T00:59:40Z"));
    assert!(!is_true(&behind, "Stalled"), "a replica whose clock is behind");
    assert_eq!(recheck, Some(time("2026-01-01T01:01:00Z")));
    let (back, recheck) = combine(&health, &[], at(&first, "2026-01-01T00:00:00Z"));
    assert!(is_true(&back, "Stalled"));
    assert_eq!(recheck, None);
    let stalled = back.iter().find(|condition| condition.type_ == "Stalled").expect("Stalled");
    assert_eq!(stalled.last_transition_time.0, time("2026-01-01T01:00:00Z"), "times show the order of changes");
    let (same, recheck) = combine(&health, &[], at(&back, "2026-01-01T00:59:40Z"));
    assert!(is_true(&same, "Stalled"), "time that passes does not mend it");
    assert_eq!(recheck, None);
}

#[test]
fn transition_time_changes_only_with_the_status() {
    let (first, _) = combine(&health(), &[], at(&[], NOW));
    let reworded = Health { ready: Verdict::yes("ScaledToZero", "all 0 nodes are ready"), ..health() };
    let (second, _) = combine(&reworded, &[], at(&first, "2026-01-01T00:20:00Z"));
    let ready = second.iter().find(|condition| condition.type_ == "Ready").expect("Ready");
    assert_eq!(ready.reason, "ScaledToZero");
    assert_eq!(ready.last_transition_time.0, time(NOW));
    let (again, _) = combine(&health(), &[], at(&first, "2026-01-01T00:30:00Z"));
    assert_eq!(again, first, "a second look at the same facts changes nothing");
}

/// A replica whose clock is ahead has written the first status. Found by a simulated world.
#[test]
fn transition_time_never_goes_back() {
    let (first, _) = combine(&health(), &[], at(&[], NOW));
    let unready = Health { ready: Verdict::no("NotYet", "2/3 nodes are ready"), ..health() };
    let (second, _) = combine(&unready, &[], at(&first, "2026-01-01T00:09:45Z"));
    let ready = second.iter().find(|condition| condition.type_ == "Ready").expect("Ready");
    assert_eq!((&*ready.status, ready.last_transition_time.0), ("False", time(NOW)));
}

#[test]
fn paused_object_has_unknown_readiness() {
    let (stored, _) = combine(&health(), &[], at(&[], NOW));
    let paused = halted(&NotReconciled::Paused("paused by annotation".to_owned()), at(&stored, NOW));
    assert_eq!(
        show(&paused),
        [
            "Available=True/MinimumNodesAvailable",
            "Progressing=False/Paused",
            "Degraded=False/AsExpected",
            "Ready=Unknown/Paused"
        ]
    );
    assert_eq!(
        halted(&NotReconciled::Paused("paused by annotation".to_owned()), at(&paused, "2026-01-01T00:20:00Z")),
        paused
    );
}

/// The columns of `kubectl get` show the first condition that is not true.
#[test]
fn paused_external_object_has_its_conditions_in_the_usual_order() {
    let finding = |reason| Finding { status: Some(false), reason, message: String::new() };
    let external = External { ready: finding("Pending"), synced: finding("NotBooked"), stalled: false };
    let stored = external.conditions(at(&[], NOW));
    let paused = halted(&NotReconciled::Paused("paused".to_owned()), at(&stored, NOW));
    assert_eq!(show(&paused), ["Ready=Unknown/Paused", "Synced=False/NotBooked"]);
}

/// Found by a simulated world: a restored object, which was paused, got a status from the lost time.
#[test]
fn kept_conditions_never_report_a_future_generation() {
    let (mut stored, _) = combine(&health(), &[], at(&[], NOW));
    let present = at(&[], NOW).generation;
    for condition in &mut stored {
        condition.observed_generation = Some(present + 3);
    }
    for halt in [
        NotReconciled::Paused("paused".to_owned()),
        NotReconciled::Invalid(Problem::new(ProblemKind::INVALID_SPEC, "no")),
    ] {
        let conditions = halted(&halt, at(&stored, NOW));
        assert!(conditions.iter().all(|it| it.observed_generation == Some(present)), "{conditions:#?}");
    }
}

#[test]
fn an_invalid_object_is_stalled_at_once() {
    let (stored, _) = combine(&health(), &[], at(&[], NOW));
    let invalid =
        halted(&NotReconciled::Invalid(Problem::new(ProblemKind::INVALID_SPEC, "spec.x: no")), at(&stored, NOW));
    assert_eq!(
        show(&invalid)[2..],
        ["Degraded=True/InvalidSpec", "Ready=False/InvalidSpec", "Stalled=True/InvalidSpec"]
    );
}

#[test]
fn waiting_for_garbage_collection_is_progress_not_degraded() {
    let refused = [Problem::new(WAITING, "an earlier Deployment is being deleted")];
    let (conditions, _) = combine(&health(), &refused, at(&[], NOW));
    assert_eq!(show(&conditions)[1..3], ["Progressing=True/WaitingForGarbageCollection", "Degraded=False/AsExpected"]);
}
