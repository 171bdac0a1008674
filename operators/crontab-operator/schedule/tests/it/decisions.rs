//! Tests of decisions: which time is due, which is skipped and why, and since when a schedule is in effect.

use std::{collections::BTreeSet, time::Duration};

use jiff::{Timestamp, ToSpan};
use schedule::{Anchor, Concurrency, Decision, Due, Jitter, Schedule, Situation, Skip, Zone};

use crate::{at, schedule, zone};

/// Returns a situation without earlier runs and without limits, on 19 May 2016, a Thursday.
fn situation<'a>(schedule: &'a Schedule, zone: &'a Zone, now: &str) -> Situation<'a> {
    Situation {
        schedule,
        zone,
        now: at(now),
        anchor: at("2016-05-19T10:00:00Z"),
        last: None,
        held: false,
        jitter: Jitter::default(),
        starting_deadline: None,
        concurrency: Concurrency::Forbid,
        active: 0,
        max_active: 10,
    }
}

fn due(time: &str, missed: u64) -> Due {
    Due { time: at(time), missed }
}

/// A row of `TestNextScheduleTime` or `TestMostRecentScheduleTime` of Kubernetes 1.36: name, expression, creation, last time,
/// now, the due time and the number of missed times. Upstream only estimates: for "another complex schedule" it finds nothing.
type Row = (&'static str, &'static str, &'static str, Option<&'static str>, &'static str, Option<(&'static str, u64)>);

const UPSTREAM: &[Row] = &[
    ("case 1", "0 * * * ?", "2016-05-19T09:50:00Z", None, "2016-05-19T09:53:00Z", None),
    ("case 2", "0 * * * ?", "2016-05-19T09:50:00Z", None, "2016-05-19T10:00:02Z", Some(("2016-05-19T10:00:00Z", 0))),
    ("case 3", "0 * * * ?", "2016-05-19T09:50:00Z", Some("2016-05-19T10:00:00Z"), "2016-05-19T10:02:00Z", None),
    (
        "case 4",
        "0 * * * ?",
        "2016-05-19T09:50:00Z",
        Some("2016-05-19T10:00:00Z"),
        "2016-05-19T11:05:00Z",
        Some(("2016-05-19T11:00:00Z", 0)),
    ),
    (
        "case 5",
        "0 * * * ?",
        "2016-05-19T08:00:00Z",
        Some("2016-05-19T09:00:00Z"),
        "2016-05-19T11:05:00Z",
        Some(("2016-05-19T11:00:00Z", 1)),
    ),
    (
        "case 6",
        "0 * * * ?",
        "2016-05-19T08:00:00Z",
        Some("2016-05-19T09:00:00Z"),
        "2016-05-29T11:00:00Z",
        Some(("2016-05-29T11:00:00Z", 241)),
    ),
    ("case 8", "59 23 31 2 *", "2016-05-19T10:00:10Z", None, "2016-05-19T11:00:00Z", None),
    ("now before next schedule", "0 * * * *", "2016-05-19T10:00:00Z", None, "2016-05-19T10:00:30Z", None),
    (
        "now just after next schedule",
        "0 * * * *",
        "2016-05-19T10:00:00Z",
        None,
        "2016-05-19T11:01:00Z",
        Some(("2016-05-19T11:00:00Z", 0)),
    ),
    (
        "missed 5 schedules",
        "0 * * * *",
        "2016-05-19T10:00:10Z",
        None,
        "2016-05-19T15:01:00Z",
        Some(("2016-05-19T15:00:00Z", 4)),
    ),
    (
        "complex schedule",
        "30 6-16/4 * * 1-5",
        "2016-05-19T10:00:00Z",
        Some("2016-05-19T10:30:00Z"),
        "2016-05-20T10:31:00Z",
        Some(("2016-05-20T10:30:00Z", 2)),
    ),
    (
        "another complex schedule",
        "30 10,11,12 * * 1-5",
        "2016-05-19T10:00:00Z",
        Some("2016-05-19T10:30:00Z"),
        "2016-05-20T16:30:00Z",
        Some(("2016-05-20T12:30:00Z", 4)),
    ),
    (
        "complex schedule with longer diff between executions",
        "30 6-16/4 * * 1-5",
        "2016-05-19T10:00:00Z",
        Some("2016-05-19T10:30:00Z"),
        "2016-05-23T10:31:00Z",
        Some(("2016-05-23T10:30:00Z", 5)),
    ),
    (
        "complex schedule with shorter diff between executions",
        "30 6-16/4 * * 1-5",
        "2016-05-19T10:00:00Z",
        None,
        "2016-05-20T10:31:00Z",
        Some(("2016-05-20T10:30:00Z", 3)),
    ),
    (
        "@every schedule",
        "@every 1h",
        "2016-05-19T09:01:00Z",
        Some("2016-05-19T10:01:00Z"),
        "2016-05-26T10:00:00Z",
        Some(("2016-05-26T09:01:00Z", 166)),
    ),
    (
        "earliestTime being LastScheduleTime",
        "*/5 * * * *",
        "2016-05-19T10:00:00Z",
        Some("2016-05-19T10:30:00Z"),
        "2016-05-19T10:31:00Z",
        None,
    ),
];

#[test]
fn newest_time_is_due_and_older_ones_count_as_missed() {
    let utc = Zone::utc();
    for (name, text, created, last, now, expected) in UPSTREAM {
        let schedule = schedule(text);
        let it = Situation { anchor: at(created), last: last.map(at), ..situation(&schedule, &utc, now) };
        assert_eq!(it.due(), expected.map(|(time, missed)| due(time, missed)), "{name}");
    }
}

/// `TestNextScheduleTimeDuration`, and the row about an edit from `TestControllerV2UpdateCronJob`.
#[test]
fn next_time_matches_upstream() {
    let rows = [
        ("30 6-16/4 * * 1-5", "2016-05-20T10:31:00Z", 14_340),
        ("30 10,11,12 * * 1-5", "2016-05-20T16:30:00Z", 66 * 3600),
        ("0 12 * * 4", "2016-06-07T11:30:00Z", 48 * 3600 + 1800),
        ("0 12 * * 5", "2016-05-19T16:00:00Z", 20 * 3600),
        ("*/1 * * * *", "2016-05-19T09:59:59Z", 1),
    ];
    for (text, now, seconds) in rows {
        let (schedule, utc) = (schedule(text), Zone::utc());
        let it = Situation { anchor: at("2016-05-19T09:00:00Z"), ..situation(&schedule, &utc, now) };
        assert_eq!(it.next().map(|next| next.duration_since(at(now)).as_secs()), Some(seconds), "{text}");
    }
}

#[test]
fn wait_has_a_margin_and_is_capped_at_one_hour() {
    let (hourly, daily, never, utc) = (schedule("@hourly"), schedule("@daily"), schedule("0 0 30 2 *"), Zone::utc());
    let wait = |schedule: &Schedule, now: &str| situation(schedule, &utc, now).wait();
    assert_eq!(wait(&hourly, "2016-05-19T10:59:58.5Z"), Some(Duration::from_millis(1600)));
    assert_eq!(wait(&daily, "2016-05-19T10:00:00Z"), Some(Duration::from_hours(1)));
    assert_eq!(wait(&never, "2016-05-19T10:00:00Z"), None);
    let held = Situation { held: true, ..situation(&hourly, &utc, "2016-05-19T12:00:00Z") };
    assert_eq!((held.decide(), held.next(), held.wait()), (Decision::Nothing, None, None));
}

/// T4 of the failure modes: after an outage of any length, one run starts.
#[test]
fn outage_of_any_length_starts_one_run() {
    let (minutely, utc) = (schedule("* * * * *"), Zone::utc());
    for missed in [0_i64, 1, 99, 100, 101, 100_000, 50_000_000] {
        let now = at("2016-05-19T10:00:00Z") + (missed + 1).minutes();
        let it = Situation { now, ..situation(&minutely, &utc, "2016-05-19T10:00:00Z") };
        let due = Due { time: now, missed: missed.unsigned_abs() };
        assert_eq!(it.decide(), Decision::Start(due));
        assert_eq!(due.has_missed_many(), missed > 100, "{missed}");
        let next = Situation { last: Some(now), ..it };
        assert_eq!(next.decide(), Decision::Nothing);
    }
}

/// T3 of the failure modes: whatever the clock does, no time is decided on twice.
#[test]
fn clock_jump_starts_no_run_twice() {
    let (utc, berlin) = (Zone::utc(), zone("Europe/Berlin"));
    for (text, zone) in [("* * * * *", &utc), ("30 2 * * *", &berlin), ("@every 10m", &utc), ("0 0 29 2 *", &utc)] {
        let schedule = schedule(text);
        let mut rng = fastrand::Rng::with_seed(3);
        let mut decided: Vec<Timestamp> = Vec::new();
        let mut now = at("2026-10-24T12:00:00Z");
        for _ in 0..2000 {
            let jump = [1, 1, 60, 3600, 86_400, 315_569_520][rng.usize(..6)] * if rng.u8(..3) == 0 { -1 } else { 1 };
            // Stays within twenty years of the start.
            let then = now + jump.seconds();
            now = if then.duration_since(at("2026-10-24T12:00:00Z")).as_hours().abs() < 175_000 { then } else { now };
            let last = decided.last().copied();
            let it = Situation {
                now,
                last,
                anchor: at("2026-10-24T11:00:00Z"),
                ..situation(&schedule, zone, "2026-10-24T12:00:00Z")
            };
            if let Decision::Start(due) = it.decide() {
                assert!(due.time <= now && last.is_none_or(|last| last < due.time), "{text}: {due:?} after {last:?}");
                decided.push(due.time);
            }
            let next = it.next().expect("it fires");
            assert!(next > now && last.is_none_or(|last| next > last), "{text}");
        }
        assert!(!decided.is_empty(), "{text}");
    }
}

#[test]
fn reasons_to_skip() {
    let (hourly, utc) = (schedule("@hourly"), Zone::utc());
    let base = situation(&hourly, &utc, "2016-05-19T11:00:30Z");
    let decide = |it: Situation<'_>| match it.decide() {
        Decision::Nothing => panic!("{it:?}"),
        Decision::Start(found) => (found, None),
        Decision::Skip(found, why) => (found, Some(why)),
    };
    let due = due("2016-05-19T11:00:00Z", 0);
    let deadline = |seconds| Situation { starting_deadline: Some(seconds), ..base };
    assert_eq!(decide(base), (due, None));
    assert_eq!(decide(deadline(30)), (due, None));
    assert_eq!(decide(deadline(29)), (due, Some(Skip::TooLate)));
    assert_eq!(decide(deadline(u64::MAX)), (due, None));
    // Deadlines below ten seconds count as ten.
    let soon = |now| Situation { now: at(now), ..deadline(0) };
    assert_eq!(decide(soon("2016-05-19T11:00:10Z")), (due, None));
    assert_eq!(decide(soon("2016-05-19T11:00:10.001Z")), (due, Some(Skip::TooLate)));

    let active = |concurrency, active| Situation { concurrency, active, max_active: 2, ..base };
    assert_eq!(decide(active(Concurrency::Forbid, 1)), (due, Some(Skip::StillRunning)));
    assert_eq!(decide(active(Concurrency::Replace, 5)), (due, None));
    assert_eq!(decide(active(Concurrency::Allow, 1)), (due, None));
    assert_eq!(decide(active(Concurrency::Allow, 2)), (due, Some(Skip::TooManyActive)));
    // If a run is both too late and forbidden, the reason is that it is too late.
    let both = Situation { starting_deadline: Some(20), ..active(Concurrency::Forbid, 1) };
    assert_eq!(decide(both), (due, Some(Skip::TooLate)));
}

#[test]
fn edit_or_resume_starts_no_past_run() {
    let (berlin, utc) = (zone("Europe/Berlin"), Zone::utc());
    let (created, now) = (at("2026-01-01T00:00:00Z"), at("2026-11-21T15:00:00Z"));
    let first = Anchor::now(None, ("0 0 * * *", &utc, false), created, now);
    assert_eq!(first.since, created);
    let same = Anchor::now(Some(&first), ("0 0 * * *", &utc, false), created, now);
    assert_eq!(same, first);
    let edits = [("0 12 * * *", &utc, false), ("0 0 * * *", &berlin, false), ("0 0 * * *", &utc, true)];
    let edited = edits.map(|edit| Anchor::now(Some(&first), edit, created, now));
    assert!(edited.iter().all(|it| it.since == now && it.hash != first.hash));
    assert!(edited[0].hash != edited[1].hash && edited[1].hash != edited[2].hash);
    // The end of the pause is an edit too, even if it happens while the operator is down.
    let later = now + 5.hours();
    assert_eq!(Anchor::now(Some(&edited[2]), ("0 0 * * *", &utc, false), created, later).since, later);

    // An edit at 15:00 from midnight to noon: the next run is at noon of the next day.
    let noon = schedule("0 12 * * *");
    let it = Situation { anchor: edited[0].since, now, ..situation(&noon, &utc, "2016-05-19T00:00:00Z") };
    assert_eq!((it.decide(), it.next()), (Decision::Nothing, Some(at("2026-11-22T12:00:00Z"))));
    // An edit in the same second as a scheduled time comes after it.
    let it = Situation { anchor: at("2026-11-21T12:00:00Z"), now: at("2026-11-21T12:00:00Z"), ..it };
    assert_eq!(it.decide(), Decision::Nothing);
}

/// The status stores the hash, so it must be the same in every build.
#[test]
fn schedule_hash_is_stable_across_builds() {
    let anchor = Anchor::now(None, ("* * * * */5", &Zone::utc(), false), Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH);
    assert_eq!(anchor.hash, "b66f5e927c65d481");
}

#[test]
fn every_grid_survives_restarts_edits_and_pauses() {
    let (hourly, utc) = (schedule("@every 1h"), Zone::utc());
    let it = situation(&hourly, &utc, "2016-05-19T12:20:00Z");
    assert_eq!(it.due(), Some(due("2016-05-19T12:00:00Z", 1)));
    let last = Some(at("2016-05-19T11:30:00Z"));
    // Resumed at 14:10: no run for 12:30 or 13:30, the next one at 14:30.
    let it = Situation { last, anchor: at("2016-05-19T14:10:00Z"), now: at("2016-05-19T14:10:00Z"), ..it };
    assert_eq!((it.due(), it.next()), (None, Some(at("2016-05-19T14:30:00Z"))));
    let edited = schedule("@every 2h");
    let it = Situation { schedule: &edited, now: at("2016-05-19T15:40:00Z"), ..it };
    assert_eq!((it.due(), it.next()), (Some(due("2016-05-19T15:30:00Z", 0)), Some(at("2016-05-19T17:30:00Z"))));
}

/// Each step uses only the stored last time, as after a restart.
#[test]
fn repeated_hour_runs_exactly_twice() {
    let (schedule, zone) = (schedule("30 1 * * *"), zone("America/New_York"));
    let mut last = None;
    let mut started = Vec::new();
    let mut now = at("2026-11-01T04:00:00Z");
    while now < at("2026-11-01T12:00:00Z") {
        let it = Situation {
            anchor: at("2026-10-31T12:00:00Z"),
            last,
            now,
            ..situation(&schedule, &zone, "2026-11-01T04:00:00Z")
        };
        if let Decision::Start(due) = it.decide() {
            started.push(due.time);
            last = Some(due.time);
        }
        now += 7.minutes();
    }
    assert_eq!(started, [at("2026-11-01T01:30:00-04:00"), at("2026-11-01T01:30:00-05:00")]);
}

/// A run starts once, between its time and the longest delay, and before the middle of the gap to the following time. Each
/// decision is made from the stored values alone, as after a restart.
#[test]
fn jitter_delays_each_run_by_a_fixed_share() {
    let berlin = zone("Europe/Berlin");
    for (text, longest) in [("*/10 * * * *", 600), ("* * * * *", 3600), ("3,4,30 * * * *", 300), ("@every 90s", 30)] {
        let schedule = schedule(text);
        let mut delays = BTreeSet::new();
        for uid in ["a", "b"] {
            let mut it = Situation {
                jitter: Jitter { longest, uid },
                anchor: at("2026-10-25T00:00:00Z"),
                ..situation(&schedule, &berlin, "2026-10-25T00:00:00Z")
            };
            let mut announced = it.next().expect("it fires");
            let mut runs = 0;
            while it.now < at("2026-10-25T04:00:00Z") {
                it.now += 1.second();
                let Decision::Start(due) = it.decide() else {
                    assert_eq!(it.next(), Some(announced), "{text} {uid} at {}", it.now);
                    continue;
                };
                assert_eq!((it.now, due.missed), (announced, 0), "{text} {uid}");
                let following = it.times().after(due.time).expect("it fires");
                let delay = it.now.duration_since(due.time).as_secs();
                assert!((0..=longest.into()).contains(&delay), "{text} {uid}: {delay}");
                assert!(2 * delay <= following.duration_since(due.time).as_secs(), "{text} {uid}: {delay}");
                delays.insert(delay);
                it.last = Some(due.time);
                announced = it.next().expect("it fires");
                runs += 1;
            }
            let base = Situation { now: it.now, last: None, jitter: Jitter::default(), ..it };
            let all = base.times().count(base.anchor, it.now);
            assert!((all - 1..=all).contains(&runs), "{text} {uid}: {runs} of {all}");
        }
        assert!(delays.len() > 5, "{text}: the delays differ: {delays:?}");
    }
}

#[test]
fn jitter_moves_the_deadline_and_no_earlier_run_waits_for_it() {
    let (hourly, utc) = (schedule("@hourly"), Zone::utc());
    let noon = "2016-05-19T12:00:00Z";
    let uids: Vec<String> = (0..100).map(|number| format!("uid {number}")).collect();
    let objects = uids.iter().map(|uid| Situation {
        jitter: Jitter { longest: 1000, uid },
        starting_deadline: Some(10),
        ..situation(&hourly, &utc, noon)
    });
    let it = objects.max_by_key(|it| it.start_of(at(noon))).expect("an object");
    let start = it.start_of(at(noon));
    assert!(start > at(noon) + 10.seconds(), "{start}");
    // The run of 11:00 was missed. It does not wait until the delay of the next run has passed.
    assert_eq!(it.decide(), Decision::Skip(due("2016-05-19T11:00:00Z", 0), Skip::TooLate));
    assert_eq!(Situation { starting_deadline: None, ..it }.decide(), Decision::Start(due("2016-05-19T11:00:00Z", 0)));
    let settled = Situation { last: Some(at("2016-05-19T11:00:00Z")), ..it };
    assert_eq!((settled.decide(), settled.next()), (Decision::Nothing, Some(start)));
    let later = |seconds: i64| Situation { now: start + seconds.seconds(), ..settled };
    assert_eq!(later(10).decide(), Decision::Start(due(noon, 0)), "the deadline counts from the start");
    assert_eq!(later(11).decide(), Decision::Skip(due(noon, 0), Skip::TooLate));
    assert_eq!(later(11).next(), Some(it.start_of(at("2016-05-19T13:00:00Z"))));
    let edited = Situation { anchor: at(noon), now: start, ..settled };
    assert_eq!(edited.decide(), Decision::Nothing, "the time lies before the edit, even if its start does not");
}
