//! Random `CronTab`s live through a year, with a clock that sometimes jumps back or forth. The expected runs come from a check of
//! every minute of that year. `CRONTAB_YEARS` sets how many `CronTab`s there are; 200 take some minutes.

use std::iter;

use fastrand::Rng;
use jiff::{SignedDuration, Timestamp, ToSpan, civil::Weekday, tz::TimeZone};
use serde_json::json;

use super::model::World;

const ZONES: [&str; 6] =
    ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "Asia/Kolkata"];
const USUAL: usize = 5;
/// How often the clock jumps in a year.
const JUMPS: usize = 12;

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
            let until = now + rng.i64(20 * 86_400..40 * 86_400).seconds();
            let stretch = (now, until);
            // From two hours back to three days ahead.
            now = until + rng.i64(-7_200..3 * 86_400).seconds();
            stretch
        })
        .collect()
}

#[test]
fn random_crontabs_start_exactly_the_due_runs_for_a_year() {
    let count = std::env::var("CRONTAB_YEARS").map_or(USUAL, |text| text.parse().expect("a number"));
    let mut rng = Rng::with_seed(2026);
    let mut total = 0;
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
        });
        let world = World::new(&begin.to_string(), &spec);
        world.made_at(&begin.to_string());
        let operator = world.replica();
        for (from, until) in stretches {
            world.set_now(&from.to_string());
            operator.live_until(&until.to_string(), World::finish_all);
        }
        let name = |time: &Timestamp| format!("my-new-cron-object-{}", time.as_second());
        assert_eq!(world.state().created, expected.iter().map(name).collect::<Vec<_>>(), "{what}");
        total += expected.len();
    }
    println!("{count} CronTabs for a year: {total} runs");
    assert!(total > count * 5, "{total}");
}
