//! Tests of changes of the offset, of fixed offsets, and of the names of zones.

use jiff::tz::TimeZoneDatabase;
use schedule::{Effect, Schedule, Zone};

use crate::random::zones;
use crate::{at, schedule, zone};

/// A description, an expression, a zone, an instant, and the next times.
type Case = (&'static str, &'static str, &'static str, &'static str, &'static [&'static str]);

const CASES: &[Case] = &[
    (
        "an hour is missing",
        "30 * * * *",
        "Europe/Berlin",
        "2026-03-29T00:00:00Z",
        &["2026-03-29T01:30:00+01:00", "2026-03-29T03:30:00+02:00"],
    ),
    (
        "an hour comes again",
        "30 2 * * *",
        "Europe/Berlin",
        "2026-10-24T12:00:00Z",
        &["2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00", "2026-10-26T02:30:00+01:00"],
    ),
    (
        "half an hour is missing",
        "15 2 * * *",
        "Australia/Lord_Howe",
        "2026-10-03T00:00:00Z",
        &["2026-10-05T02:15:00+11:00", "2026-10-06T02:15:00+11:00"],
    ),
    (
        "half an hour comes again",
        "0,40 1 * * *",
        "Australia/Lord_Howe",
        "2026-04-04T12:00:00Z",
        &[
            "2026-04-05T01:00:00+11:00",
            "2026-04-05T01:40:00+11:00",
            "2026-04-05T01:40:00+10:30",
            "2026-04-06T01:00:00+10:30",
        ],
    ),
    (
        "midnight is missing",
        "0 0 * * *",
        "Africa/Cairo",
        "2026-04-22T12:00:00Z",
        &["2026-04-23T00:00:00+02:00", "2026-04-25T00:00:00+03:00"],
    ),
    (
        "a day is missing",
        "0 12 * * *",
        "Pacific/Apia",
        "2011-12-29T00:00:00Z",
        &["2011-12-29T12:00:00-10:00", "2011-12-31T12:00:00+14:00"],
    ),
    (
        "a day comes again",
        "0 18 18 10 *",
        "America/Juneau",
        "1867-10-17T00:00:00Z",
        &["1867-10-18T18:00:00+15:02:19", "1867-10-18T18:00:00-08:57:41", "1868-10-18T18:00:00-08:57:41"],
    ),
    (
        "an offset has seconds",
        "0 0 * * *",
        "Africa/Monrovia",
        "1972-01-05T00:00:00Z",
        &["1972-01-05T00:44:30Z", "1972-01-06T00:44:30Z", "1972-01-08T00:00:00Z"],
    ),
    (
        "clocks are no longer changed",
        "30 2 * * *",
        "Europe/Moscow",
        "2030-03-30T00:00:00Z",
        &["2030-03-31T02:30:00+03:00", "2030-04-01T02:30:00+03:00"],
    ),
    (
        "Ramadan: clocks go back for a month",
        "30 2 * * *",
        "Africa/Casablanca",
        "2026-02-14T12:00:00Z",
        &["2026-02-15T02:30:00+01:00", "2026-02-15T02:30:00Z", "2026-02-16T02:30:00Z"],
    ),
    (
        "Apia had no 30 December once",
        "0 0 30 12 *",
        "Pacific/Apia",
        "2011-01-01T00:00:00Z",
        &["2012-12-30T00:00:00+14:00"],
    ),
];

#[test]
fn clock_changes_skip_or_repeat_runs() {
    for (what, text, name, from, expected) in CASES {
        let (schedule, zone, from) = (schedule(text), zone(name), at(from));
        let times = schedule.times(&zone, from);
        let expected: Vec<_> = expected.iter().map(|it| at(it)).collect();
        assert_eq!(times.iter_after(from).take(expected.len()).collect::<Vec<_>>(), expected, "{what}");
        let last = expected[expected.len() - 1];
        assert_eq!(times.count(from, last), expected.len() as u64, "{what}");
    }
}

/// For each zone from 1970 to 2037: the number of minutes equals the local time that passed, corrected by the effects of all
/// changes.
#[test]
fn clock_change_effects_match_run_counts() {
    let minutely = schedule("* * * * *");
    let (mut skipped, mut repeated) = (0, 0);
    for zone in zones() {
        let (start, end) = (at("1970-01-01T00:00:00Z"), at("2037-12-31T00:00:00Z"));
        let times = minutely.times(&zone, start);
        let balance: i64 = zone
            .changes(start, end)
            .filter_map(|change| times.effect(&change))
            .map(|effect| match effect {
                Effect::Skipped(n) => {
                    skipped += 1;
                    -i64::try_from(n).expect("small")
                }
                Effect::Repeated(n) => {
                    repeated += 1;
                    i64::try_from(n).expect("small")
                }
            })
            .sum();
        let shown = |instant| zone.time_zone().to_datetime(instant);
        let on_the_wall = shown(end).duration_since(shown(start)).as_mins();
        let count = i64::try_from(times.count(start, end)).expect("small");
        assert!((count - on_the_wall - balance).abs() <= 1, "{zone}: {count} minutes, {on_the_wall} and {balance}");
    }
    assert!(skipped > 5000 && repeated > 5000, "{skipped} and {repeated}");
}

/// Also before 1970, where the seconds of an instant are negative.
#[test]
fn fractional_seconds_round_to_the_right_minute() {
    let (minutely, utc) = (schedule("* * * * *"), Zone::utc());
    for (from, next, latest) in [
        ("2026-01-01T00:14:59.9Z", "2026-01-01T00:15:00Z", "2026-01-01T00:14:00Z"),
        ("1969-12-31T23:59:59.5Z", "1970-01-01T00:00:00Z", "1969-12-31T23:59:00Z"),
        ("1969-12-31T23:58:59.999Z", "1969-12-31T23:59:00Z", "1969-12-31T23:58:00Z"),
        ("1969-12-31T23:59:00.001Z", "1970-01-01T00:00:00Z", "1969-12-31T23:59:00Z"),
    ] {
        let times = minutely.times(&utc, at(from));
        assert_eq!((times.after(at(from)), times.until(at(from))), (Some(at(next)), Some(at(latest))), "{from}");
    }
}

#[test]
fn period_ignores_clock_changes() {
    let (schedule, berlin) = (schedule("@every 6h"), zone("Europe/Berlin"));
    let base = at("2026-03-28T20:00:00Z");
    let times = schedule.times(&berlin, base);
    assert_eq!(times.after(base), Some(at("2026-03-29T02:00:00Z")));
    assert_eq!(times.after(at("2026-03-28T12:00:00Z")), Some(at("2026-03-29T02:00:00Z")));
    assert_eq!(times.until(at("2026-03-29T01:59:59.9Z")), None);
    assert_eq!(times.until(at("2026-03-29T02:00:00Z")), Some(at("2026-03-29T02:00:00Z")));
    assert_eq!(times.count(at("2026-03-01T00:00:00Z"), at("2026-03-30T02:00:00Z")), 5);
}

#[test]
fn zone_names_must_match_exactly() {
    for name in TimeZoneDatabase::bundled().available() {
        assert_eq!(Zone::named(name.as_str()).map(|it| it.name().to_owned()), Ok(name.to_string()));
    }
    for name in [
        "UTC",
        "Etc/UTC",
        "GMT",
        "Europe/Kyiv",
        "Europe/Kiev",
        "US/Pacific",
        "EST5EDT",
        "America/Argentina/Buenos_Aires",
    ] {
        assert!(Zone::named(name).is_ok(), "{name}");
    }
    let wrong = [
        "",
        " ",
        "Local",
        "LOCAL",
        "local",
        " Europe/Rome",
        "Europe/Rome ",
        "Europe/InvalidRome",
        "broken",
        "/Europe/Rome",
        "Europe/../Rome",
        ".",
        "-Europe/Rome",
        "europe/rome",
        "utc",
        "+05:30",
        "Z",
        "CET-1CEST",
        "posixrules",
        "Etc/Unknown",
    ];
    for name in wrong {
        let error = Zone::named(name).expect_err(name).to_string();
        assert!(error.starts_with(&format!("unknown time zone \"{name}\"")), "{error}");
    }
}

#[test]
fn unknown_zone_gets_advice() {
    for (name, advice) in [
        ("europe/berlin", "write Europe/Berlin"),
        ("Local", "use the name of a place, such as Europe/Berlin"),
        ("+05:30", "a fixed offset has no name; use UTC or a place"),
        ("Europe/Belrin", "perhaps you mean Europe/Berlin"),
        ("Amerika/New_York", "perhaps you mean America/New_York"),
        ("Europe/Berlin ", "perhaps you mean Europe/Berlin"),
        ("America/New York", "perhaps you mean America/New_York"),
        ("Berlin", "perhaps you mean Europe/Berlin"),
        ("new york", "perhaps you mean America/New_York"),
        ("Buenos Aires", "perhaps you mean America/Argentina/Buenos_Aires"),
        ("Munich", "use a name of the IANA time zone database, such as Europe/Berlin"),
        ("Mars/Base", "use a name of the IANA time zone database, such as Europe/Berlin"),
        // An abbreviation is near to many other ones.
        ("PST", "use a name of the IANA time zone database, such as Europe/Berlin"),
        ("", "use a name of the IANA time zone database, such as Europe/Berlin"),
    ] {
        let error = Zone::named(name).expect_err(name).to_string();
        assert_eq!(error, format!("unknown time zone \"{name}\"; {advice}"));
    }
    let error = Zone::named(&"x".repeat(10_000)).expect_err("too long").to_string();
    assert!(error.starts_with(&format!("unknown time zone \"{}…\"; use a name", "x".repeat(64))), "{error}");
}

#[test]
fn fixed_offsets() {
    let midnight: Schedule = schedule("0 0 * * *");
    let from = at("2026-01-01T12:00:00Z");
    let offsets = [
        ("+05:30", "2026-01-01T18:30:00Z"),
        ("+0530", "2026-01-01T18:30:00Z"),
        ("-03", "2026-01-02T03:00:00Z"),
        ("+00:00", "2026-01-02T00:00:00Z"),
    ];
    for (text, expected) in offsets {
        assert_eq!(midnight.times(&zone(text), from).after(from), Some(at(expected)), "{text}");
    }
    for text in ["+5", "+05:3", "+24:00", "+05:60", "+-5:30", "+05.30", "05:30", "+", "+٠٥"] {
        assert!(Zone::named_or_offset(text).is_err(), "{text}");
    }
}
