//! Compares the results with brute force: over every minute of some days, and over every day of many years.

use fastrand::Rng;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::AmbiguousOffset;
use jiff::{Timestamp, ToSpan};
use schedule::Zone;

use crate::random::{Expression, Expressions, cases, instant, zones};
use crate::{at, schedule};

/// How many expressions each window of time is compared with.
const PER_WINDOW: u64 = 250;

/// Returns the instants at which the local time is a full minute, with that local time.
fn minutes(zone: &Zone, after: i64, until: i64) -> Vec<(Timestamp, DateTime)> {
    let mut found = Vec::new();
    let mut second = after + 1;
    while second <= until {
        let instant = Timestamp::from_second(second).expect("in range");
        let wall = zone.time_zone().to_datetime(instant);
        if wall.second() == 0 {
            found.push((instant, wall));
        }
        // Historical offsets had seconds: near a change of the offset, check every second.
        second += if wall.second() == 0 && is_steady(zone, second) { 60 } else { 1 };
    }
    found
}

fn is_steady(zone: &Zone, second: i64) -> bool {
    let offset = |second| zone.time_zone().to_offset(Timestamp::from_second(second).expect("in range"));
    offset(second) == offset(second + 60)
}

#[test]
fn times_match_brute_force_by_minute() {
    let mut rng = Rng::with_seed(20_261_121);
    let zones = zones();
    let mut fired = 0;
    for window in 0..cases(20_000).div_ceil(PER_WINDOW) {
        let zone = &zones[rng.usize(..zones.len())];
        let after = instant(&mut rng, zone);
        let until = after + rng.i64(60..200_000).seconds();
        let floor = |it: Timestamp| i64::try_from(it.as_nanosecond().div_euclid(1_000_000_000)).expect("in range");
        let minutes = minutes(zone, floor(after), floor(until));
        for _ in 0..PER_WINDOW {
            let expression = Expressions::random(&mut rng);
            let schedule = schedule(&expression.text);
            let expected: Vec<_> =
                minutes.iter().filter(|(_, wall)| expression.fires(*wall)).map(|(instant, _)| *instant).collect();
            let times = schedule.times(zone, after);
            let context = || format!("{} in {zone} after {after} until {until}, window {window}", expression.text);
            let forwards: Vec<_> = times.iter_after(after).take_while(|it| *it <= until).collect();
            assert_eq!(forwards, expected, "forwards: {}", context());
            assert_eq!(times.count(after, until), expected.len() as u64, "count: {}", context());
            let earlier = |it: Timestamp| times.until(it - 1.nanosecond());
            let backwards = std::iter::successors(times.until(until), |it| earlier(*it)).take_while(|it| *it > after);
            let mut backwards: Vec<_> = backwards.collect();
            backwards.reverse();
            assert_eq!(backwards, expected, "backwards: {}", context());
            fired += expected.len();
        }
    }
    assert!(fired > 0, "nothing was compared");
}

/// Searches the next and the latest time day by day, and each minute of a day with its two possible offsets.
#[test]
fn next_and_latest_match_brute_force_by_day() {
    let mut rng = Rng::with_seed(4);
    let zones = zones();
    for _ in 0..cases(20_000) / 100 {
        let zone = &zones[rng.usize(..zones.len())];
        let expressions = Expressions::random(&mut rng);
        let schedule = schedule(&expressions.text);
        let from = instant(&mut rng, zone);
        let today = zone.time_zone().to_datetime(from).date();
        let context = format!("{} in {zone} from {from}", expressions.text);
        let instants =
            |day: Date| expressions.all.iter().flat_map(move |it| instants(zone, it, day)).collect::<Vec<_>>();

        let days =
            |step: i64| std::iter::successors(Some(today), move |day| day.checked_add(step.days()).ok()).take(366 * 9);
        // Looks at further days too, because an offset can change by a whole day.
        let near = |day: Date, step: i64| (0..3).map(move |n| day + (n * step).days());
        let next = days(1).find_map(|day| near(day, 1).flat_map(instants).filter(|it| *it > from).min());
        let latest = days(-1).find_map(|day| near(day, -1).flat_map(instants).filter(|it| *it <= from).max());
        let times = schedule.times(zone, from);
        assert_eq!(times.after(from), next, "next: {context}");
        assert_eq!(times.until(from), latest, "latest: {context}");
        assert_eq!(schedule.never_fires(), next.is_none(), "never: {context}");
    }
}

/// Returns the instants at which the expression fires on a local day.
fn instants(zone: &Zone, expression: &Expression, day: Date) -> Vec<Timestamp> {
    let mut found = Vec::new();
    if !expression.fires_on(day) {
        return found;
    }
    let hours = (0..24).filter(|hour| expression.hour.take(*hour));
    let times = hours.flat_map(|hour| (0..60).map(move |minute| (hour, minute)));
    for (hour, minute) in times.filter(|(_, minute)| expression.minute.take(*minute)) {
        let wall = day.to_datetime(Time::constant(hour, minute, 0, 0));
        match zone.time_zone().to_ambiguous_timestamp(wall).offset() {
            AmbiguousOffset::Unambiguous { offset } => found.extend(offset.to_timestamp(wall)),
            AmbiguousOffset::Gap { .. } => {}
            AmbiguousOffset::Fold { before, after } => {
                found.extend([before, after].into_iter().filter_map(|it| it.to_timestamp(wall).ok()));
            }
        }
    }
    found
}

/// Leap days far away, and counts over centuries.
#[test]
fn centuries() {
    let utc = Zone::utc();
    let leap = schedule("0 0 29 2 *");
    let times = leap.times(&utc, at("2000-01-01T00:00:00Z"));
    assert_eq!(times.after(at("2096-03-01T00:00:00Z")), Some(at("2104-02-29T00:00:00Z")));
    assert_eq!(times.until(at("2104-02-28T23:59:59Z")), Some(at("2096-02-29T00:00:00Z")));
    // 97 leap days in each 400 years, and 20,871 weeks.
    assert_eq!(times.count(at("2000-01-01T00:00:00Z"), at("2400-01-01T00:00:00Z")), 97);
    assert_eq!(times.count(at("0001-01-01T00:00:00Z"), at("9999-12-30T00:00:00Z")), 2424);
    let weekly = schedule("@weekly");
    let times = weekly.times(&utc, at("2000-01-01T00:00:00Z"));
    assert_eq!(times.count(at("2000-01-01T00:00:00Z"), at("2400-01-01T00:00:00Z")), 20_871);
    let minutely = schedule("* * * * *");
    let times = minutely.times(&utc, at("2000-01-01T00:00:00Z"));
    assert_eq!(times.count(at("1600-01-01T00:00:00Z"), at("9600-01-01T00:00:00Z")), 20 * 146_097 * 1440);
}

/// A time that two expressions name counts once, also over whole cycles of the calendar.
#[test]
fn times_of_several_expressions_are_a_union() {
    // Three times 400 years.
    let (from, until) = (at("2000-01-01T00:00:00Z"), at("3200-01-01T00:00:00Z"));
    for zone in [Zone::utc(), crate::zone("Europe/Berlin")] {
        let count = |text: &str| schedule(text).times(&zone, from).count(from, until);
        // In 400 years 20,871 weeks and 4,800 months begin, and 688 of these months on a Sunday.
        assert_eq!(count("@weekly; @monthly"), 3 * (20_871 + 4_800 - 688), "{zone}");
        assert_eq!(count("0 0 30 2 *; @monthly"), 3 * 4_800, "{zone}");
        assert_eq!(count("*/2 * * * *; */3 * * * *; 0 0 1 1 *"), 3 * 146_097 * 24 * 40, "{zone}");
    }
}

#[test]
fn searches_stay_within_the_timestamp_range() {
    for zone in zones() {
        for text in [
            "* * * * *",
            "0 0 29 2 *",
            "30 12 1 1 *",
            "@every 10s",
            "@every 80000h",
            "0 0 30 2 *",
            "@daily; 7 7 29 2 *",
        ] {
            let schedule = schedule(text);
            for base in [Timestamp::MIN, Timestamp::UNIX_EPOCH, Timestamp::MAX] {
                let times = schedule.times(&zone, base);
                assert_eq!(times.after(Timestamp::MAX), None, "{text} in {zone}");
                assert_eq!(times.until(Timestamp::MIN), None, "{text} in {zone}");
                assert_eq!(times.count(Timestamp::MAX, Timestamp::MIN), 0, "{text} in {zone}");
                let first = times.after(Timestamp::MIN);
                assert_eq!(first.is_some(), times.until(Timestamp::MAX).is_some(), "{text} in {zone}");
            }
        }
    }
}
