//! The table of `TestControllerV2SyncCronJob` of Kubernetes 1.36: what the controller starts, and when it requeues.
//!
//! `sync.txt` omits rows about errors, about missing jobs, and about schedules and zones that do not parse. `next` is in seconds
//! from now. Here a column has the reason why a run is skipped; the original checks events.

use jiff::Timestamp;
use schedule::{Concurrency, Decision, Jitter, Situation, Skip};

use crate::{at, schedule, zone};

#[test]
fn sync() {
    let mut rows = 0;
    for line in include_str!("sync.txt").lines().skip(1) {
        let row: Vec<_> = line.split('|').map(str::trim).collect();
        let [name, text, zone_name, policy, deadline, created, last, active, now, outcome, next] = row[..] else {
            panic!("{line}");
        };
        let given = |text: &str| (text != "-").then(|| text.to_owned());
        let number = |text: String| text.parse().expect("a number");
        let (schedule, zone) = (schedule(text), zone(zone_name));
        let situation = Situation {
            schedule: &schedule,
            zone: &zone,
            now: at(now),
            anchor: at(created),
            last: given(last).map(|last| at(&last)),
            held: outcome == "held",
            jitter: Jitter::default(),
            starting_deadline: given(deadline).map(number),
            concurrency: match policy {
                "Allow" => Concurrency::Allow,
                "Forbid" => Concurrency::Forbid,
                _ => Concurrency::Replace,
            },
            active: active.parse().expect("a number"),
            max_active: 10,
        };
        let decided = match situation.decide() {
            Decision::Nothing if situation.held => "held",
            Decision::Nothing => "nothing",
            Decision::Start(_) => "start",
            Decision::Skip(_, Skip::TooLate) => "too late",
            Decision::Skip(_, Skip::StillRunning) => "still running",
            Decision::Skip(_, Skip::TooManyActive) => "too many",
        };
        assert_eq!(decided, outcome, "{name}");
        let seconds = |next: Timestamp| next.duration_since(at(now)).as_secs().unsigned_abs();
        assert_eq!(situation.next().map(seconds), given(next).map(number), "{name}");
        rows += 1;
    }
    assert_eq!(rows, 55);
}
