//! Clocks that jump, and days on which they change.

use std::{iter, time::Duration};

use fastrand::Rng;
use jiff::{SignedDuration, Timestamp, ToSpan, civil::Weekday, tz::TimeZone};
use serde_json::json;

use crate::kit::{begun, created, finish, job, time, until_finishing};

/// Longer than it takes the operator to notice that the clock has jumped.
const NOTICED: Duration = Duration::from_secs(15);

#[tokio::test(start_paused = true)]
async fn t15_clock_change_days_repeat_or_skip_runs() {
    for (spec, from, until, times) in [
        (
            "30 1 * * *",
            "2026-11-01T00:00:00-04:00",
            "2026-11-01T23:00:00-05:00",
            vec!["2026-11-01T01:30:00-04:00", "2026-11-01T01:30:00-05:00"],
        ),
        ("30 2 * * *", "2027-03-14T00:00:00-05:00", "2027-03-14T23:00:00-04:00", vec![]),
    ] {
        let mut memory = begun(from, &json!({"cronSpec": spec, "timeZone": "America/New_York"})).await;
        memory.start();
        until_finishing(&mut memory, until).await;
        assert_eq!(created(&memory), times.into_iter().map(job).collect::<Vec<_>>(), "{spec}");
    }
}

#[tokio::test(start_paused = true)]
async fn t16_clock_jump_repeats_no_run_and_starts_the_newest() {
    let mut memory = begun("2026-11-20T09:59:30Z", &json!({"cronSpec": "0 * * * *"})).await;
    memory.start();
    until_finishing(&mut memory, "2026-11-20T12:00:30Z").await;
    let before = created(&memory);
    assert_eq!(before.len(), 3);
    memory.model.set_time(time("2026-11-20T10:00:30Z"));
    until_finishing(&mut memory, "2026-11-20T12:30:00Z").await;
    assert_eq!(created(&memory), before, "clock two hours back: no run is repeated");
    memory.model.set_time(time("2026-11-23T12:30:00Z"));
    until_finishing(&mut memory, "2026-11-23T12:31:00Z").await;
    assert_eq!(created(&memory)[3..], [job("2026-11-23T12:00:00Z")], "clock three days ahead: only the newest run");
    for (now, runs) in [("2036-11-23T12:31:00Z", 1), ("2026-11-23T12:31:01Z", 0), ("2036-11-23T12:31:01Z", 0)] {
        let before = created(&memory).len();
        memory.model.set_time(time(now));
        memory.pass(NOTICED).await;
        assert_eq!(created(&memory).len() - before, runs, "{now}");
    }
}

const ZONES: [&str; 6] =
    ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "Asia/Kolkata"];
/// How many objects a usual test run takes. `CRONTABS` sets another number; each takes some seconds.
const USUAL: usize = 2;
/// How often the clock jumps.
const JUMPS: usize = 8;

/// The five fields of a cron expression, each with its lowest and highest value.
#[derive(Debug)]
struct Fields([(String, i8, i8); 5]);

impl Fields {
    fn random(rng: &mut Rng) -> Self {
        let mut choice = |low: i8, high: i8, is_seldom: bool| {
            let one = |rng: &mut Rng| rng.i8(low..=high);
            let from = one(rng);
            let text = match rng.u8(if is_seldom { 1..3 } else { 0..7 }) {
                1 => from.to_string(),
                2 => format!("{from},{}", one(rng)),
                3 => format!("{from}-{high}"),
                4 => format!("{from}-{high}/{}", rng.i8(1..=4)),
                5 => format!("*/{}", rng.i8(2..=9)),
                _ => "*".to_owned(),
            };
            (text, low, high)
        };
        Self([
            choice(0, 59, true),
            choice(0, 23, true),
            choice(1, 31, false),
            choice(1, 12, false),
            choice(0, 6, false),
        ])
    }

    fn text(&self) -> String {
        self.0.each_ref().map(|(text, ..)| text.as_str()).join(" ")
    }

    fn holds(&self, field: usize, value: i8) -> bool {
        let (text, low, high) = &self.0[field];
        text.split(',').any(|element| {
            let (range, step) = element.split_once('/').unwrap_or((element, "1"));
            let number = |text: &str| text.parse::<i8>().expect("a number");
            let (from, to) = match range.split_once('-') {
                _ if range == "*" => (*low, *high),
                Some((from, to)) => (number(from), number(to)),
                None => (number(range), number(range)),
            };
            (from..=to).contains(&value) && (value - from) % number(step) == 0
        })
    }

    fn is_wild(&self, field: usize) -> bool {
        self.0[field].0 == "*"
    }

    /// Whether the schedule fires in the minute that begins at `time`.
    fn fires(&self, time: Timestamp, zone: &TimeZone) -> bool {
        let local = zone.to_datetime(time);
        let weekday = local.weekday().since(Weekday::Sunday);
        let (day, weekday) = (self.holds(2, local.day()), self.holds(4, weekday));
        let is_day = if self.is_wild(2) || self.is_wild(4) { day && weekday } else { day || weekday };
        local.second() == 0
            && self.holds(0, local.minute())
            && self.holds(1, local.hour())
            && self.holds(3, local.month())
            && is_day
    }
}

/// Returns the periods between the jumps of the clock.
fn stretches(rng: &mut Rng, begin: Timestamp) -> Vec<(Timestamp, Timestamp)> {
    let mut now = begin;
    (0..JUMPS)
        .map(|_| {
            let until = now + rng.i64(86_400..4 * 86_400).seconds();
            let stretch = (now, until);
            // From two hours back to three days ahead.
            now = until + rng.i64(-7_200..3 * 86_400).seconds();
            stretch
        })
        .collect()
}

/// The expected runs come from a check of every minute. The clock sometimes jumps back or forth.
#[tokio::test(start_paused = true)]
async fn random_crontabs_start_exactly_the_due_runs() {
    let count = std::env::var("CRONTABS").map_or(USUAL, |text| text.parse().expect("a number"));
    let seed = manager_testing::seed();
    println!("SEED={seed}");
    let mut rng = Rng::with_seed(seed);
    for _ in 0..count {
        let (fields, zone) = (Fields::random(&mut rng), ZONES[rng.usize(..ZONES.len())]);
        let begin = Timestamp::from_second(1_767_225_600 + rng.i64(0..31_536_000) / 60 * 60 + 30).expect("a time");
        let what = format!("{} in {zone} from {begin}", fields.text());
        let time_zone = TimeZone::get(zone).expect("a zone");
        let stretches = stretches(&mut rng, begin);
        let end = stretches.iter().map(|it| it.1).max().expect("some");
        let first_minute = begin + SignedDuration::from_secs(30);
        let minutes = iter::successors(Some(first_minute), |time| Some(*time + SignedDuration::from_secs(60)));
        let times: Vec<Timestamp> =
            minutes.take_while(|time| *time <= end).filter(|time| fields.fires(*time, &time_zone)).collect();

        let mut expected: Vec<Timestamp> = Vec::new();
        for (from, until) in &stretches {
            let last = expected.last().copied().unwrap_or(begin);
            // Of all times that a jump ahead passes over, only the newest is started.
            expected.extend(times.iter().copied().rfind(|time| last < *time && time <= from));
            let last = expected.last().copied().unwrap_or(begin).max(*from);
            expected.extend(times.iter().filter(|time| last < **time && *time <= until));
        }

        // Without a Job history, only the status records past runs.
        let spec = json!({
            "cronSpec": fields.text(), "timeZone": zone, "concurrencyPolicy": "Allow", "successfulJobsHistoryLimit": 0,
            "maxActiveJobs": 100,
        });
        let mut memory = begun(&begin.to_string(), &spec).await;
        memory.start();
        let mut runs = Vec::new();
        for (from, until) in stretches {
            memory.model.set_time(from);
            memory.pass(NOTICED).await;
            while memory.model.now() < until {
                let left: Duration = until.duration_since(memory.model.now()).try_into().expect("a time in the future");
                memory.pass(left.min(Duration::from_mins(50))).await;
                finish(&memory).await;
            }
            runs.extend(created(&memory));
            memory.model.clear_requests();
        }
        let name = |time: &Timestamp| format!("my-new-cron-object-{}", time.as_second());
        assert_eq!(runs, expected.iter().map(name).collect::<Vec<_>>(), "{what}");
        println!("{what}: {} runs", runs.len());
    }
}
