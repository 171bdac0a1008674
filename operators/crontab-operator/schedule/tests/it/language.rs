//! Tests of the language: valid and invalid schedules, and the error messages.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use schedule::{Field, Schedule};

use crate::random::{Expressions, cases};
use crate::schedule;

/// Two texts of the same schedule.
const SAME: &[(&str, &str)] = &[
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
    ("? ? ? ? ?", "* * * * *"),
    ("  5\t*  * * *\n", "5 * * * *"),
    ("10/20 * * * *", "10,30,50 * * * *"),
    ("1-7/3,3 * * * *", "1,3,4,7 * * * *"),
    ("5-6/2 * * * *", "5 * * * *"),
    ("7/100 * * * *", "7 * * * *"),
    ("7/99999999999999999999999 * * * *", "7 * * * *"),
    ("007 * * * *", "7 * * * *"),
    ("* * * JAN,feb,Mar mOn-FRI", "* * * 1-3 1-5"),
    ("* * * * Mon/2", "* * * * 1,3,5"),
    ("* * */1 * *", "* * * * *"),
    ("* * 5,* * 1", "* * * * 1"),
    ("* * * * */5", "* * * * 0,5"),
    ("@every 1.5h", "@every 90m"),
    ("@every 1h0.5m30s", "@every 3660s"),
    ("@every +10s", "@every 10s"),
    ("@every 10999ms", "@every 10s"),
    ("@every 10.999999999999999999999s", "@every 10s"),
    ("@every .5h", "@every 30m"),
    ("@every 30000000µs", "@every 30s"),
    ("@every 30000000μs", "@every 30s"),
    ("@every 30000000000ns", "@every 30s"),
    ("@every 30000000us1m", "@every 90s"),
    ("@daily;0 9 * * mon-fri", " 0 0 * * *\t; 0 9 * * 1-5 "),
];

/// Two texts that look alike, but mean different days.
const OTHER: &[(&str, &str)] =
    &[("0 0 1-31 * 1", "0 0 * * 1"), ("0 0 1 * 0-6", "0 0 1 * *"), ("0 0 */2 * 1", "0 0 * * 1")];

/// An invalid text, and the beginning of its error message.
const WRONG: &[(&str, &str)] = &[
    ("", "is empty; write five fields: minute, hour, day of month, month, day of week"),
    ("   ", "is empty; write five fields: minute, hour, day of month, month, day of week"),
    ("xyz", "has 1 field; write five fields: minute, hour, day of month, month, day of week"),
    ("* * * *", "has 4 fields; write five fields: minute, hour, day of month, month, day of week"),
    (
        "0 * * * * *",
        "has 6 fields; write five fields: minute, hour, day of month, month, day of week; there is none for seconds or years",
    ),
    ("60 0 * * *", "minute, character 1: 60 is too large; use 0-59"),
    ("0 24 * * *", "hour, character 3: 24 is too large; use 0-23"),
    ("* * 0 * *", "day of month, character 5: 0 is too small; use 1-31"),
    ("* * 32 * *", "day of month, character 5: 32 is too large; use 1-31"),
    ("* * * 13 *", "month, character 7: 13 is too large; use 1-12 or jan-dec"),
    ("* * * 0 *", "month, character 7: 0 is too small; use 1-12 or jan-dec"),
    ("* * * * 7", "day of week, character 9: 7 is too large; use 0 for Sunday"),
    ("* * * * 5-7", "day of week, character 11: 7 is too large; use 0 for Sunday"),
    ("* * * * 8", "day of week, character 9: 8 is too large; use 0-6 or sun-sat"),
    ("* * * * funday", "day of week, character 9: \"funday\" is unknown; use 0-6 or sun-sat"),
    ("* * * * Monday", "day of week, character 9: \"Monday\" is unknown; write mon"),
    ("* * * mon *", "month, character 7: \"mon\" is unknown; use 1-12 or jan-dec"),
    ("* * jan * *", "day of month, character 5: \"jan\" is unknown; use 1-31"),
    ("5 j * * *", "hour, character 3: \"j\" is unknown; use 0-23"),
    ("2-x * * * *", "minute, character 3: \"x\" is unknown; use 0-59"),
    ("1,,2 * * * *", "minute, character 3: has an empty element; remove a comma"),
    (", * * * *", "minute, character 1: has an empty element; remove a comma"),
    ("5- * * * *", "minute, character 3: a number is missing; use 0-59"),
    ("-5 * * * *", "minute, character 1: a number is missing; use 0-59"),
    ("+5 * * * *", "minute, character 1: \"+5\" is unknown; use 0-59"),
    ("5--5 * * * *", "minute, character 1: has too many hyphens; write a range as from-to"),
    ("*-5 * * * *", "minute, character 1: \"*\" is not a number; write * alone, or with a step such as */5"),
    ("** * * * *", "minute, character 1: \"**\" is not a number; write * alone, or with a step such as */5"),
    ("30-10 * * * *", "minute, character 1: 30-10 runs backwards; write it as two: 30-59,0-10"),
    ("* * * * fri-mon", "day of week, character 9: fri-mon runs backwards; write it as two: 5-6,0-1"),
    ("*/0 * * * *", "minute, character 3: a step of 0 is not allowed; use 1 or more"),
    ("*/-12 * * * *", "minute, character 3: \"-12\" is not a step; use 1 or more"),
    ("*/ * * * *", "minute, character 3: lacks the number after /; use 1 or more"),
    ("*//2 * * * *", "minute, character 1: has too many slashes; write one step, such as */5"),
    ("0 0 L * *", "day of month, character 5: \"L\": L, W and # are not supported; use 1-31"),
    ("0 0 15W * *", "day of month, character 5: \"15W\": L, W and # are not supported; use 1-31"),
    ("0 0 * * 5#2", "day of week, character 9: \"5#2\": L, W and # are not supported; use 0-6 or sun-sat"),
    ("TZ=UTC * * * * *", "cannot use TZ or CRON_TZ in cronSpec, use timeZone instead; write the schedule without it"),
    (
        "CRON_TZ=Asia/Tokyo 0 * * * *",
        "cannot use TZ or CRON_TZ in cronSpec, use timeZone instead; write the schedule without it",
    ),
    ("@Daily", "\"@Daily\" is unknown; write @daily"),
    ("@daily 5", "\"5\" is too much; write @daily alone"),
    (
        "@reboot",
        "@reboot is not supported; use @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly or @every <duration>",
    ),
    ("@every", "@every needs a duration; such as @every 1h30m"),
    ("@every 0", "the period 0 is too short; use at least 10s"),
    ("@every 0s", "the period 0s is too short; use at least 10s"),
    ("@every 9.999s", "the period 9.999s is too short; use at least 10s"),
    ("@every -1h", "the period -1h is negative; use at least 10s"),
    ("@every 1h 30m", "\" 30m\" is not a duration"),
    ("@every Xm", "\"Xm\" is not a duration"),
    ("@every 5", "\"5\" lacks a unit"),
    ("@every 5d", "\"d\" is not a unit"),
    ("@every .s", "\".s\" is not a duration"),
    ("@every 1.2.3s", "\"1.2.3s\" lacks a unit"),
    ("@every 9999999999h", "the period 9999999999h is too long; use at most ten years"),
    (";", "expression 1: is empty; remove a semicolon"),
    ("@daily;", "expression 2: is empty; remove a semicolon"),
    ("@daily; ;@hourly", "expression 2: is empty; remove a semicolon"),
    ("@daily; 0 9 * * mon-7", "expression 2, day of week, character 21: 7 is too large; use 0 for Sunday"),
    ("0 9 * *; @daily", "expression 1: has 4 fields; write five fields"),
    ("@daily; 0 9 * * 1 2026", "expression 2: has 6 fields; write five fields"),
    ("@daily; @weekly 5", "expression 2: \"5\" is too much; write @weekly alone"),
    ("@daily; @every 1h", "expression 2: @every cannot be one of several expressions; use it alone"),
    ("@every 1h; @daily", "expression 1: @every cannot be one of several expressions; use it alone"),
    ("@every 1h; @every 2h", "expression 1: @every cannot be one of several expressions; use it alone"),
    ("@daily; TZ=UTC 0 9 * * *", "cannot use TZ or CRON_TZ in cronSpec, use timeZone instead"),
    ("@daily;@daily;@daily;@daily;@daily;@daily;@daily;@daily;@daily", "has 9 expressions; use at most 8"),
];

/// Valid schedules that never fire.
const NEVER: &[&str] = &["0 0 30 2 *", "0 0 31 2,4,6,9,11 ?", "59 23 31 2 *", "0 0 31 Apr ?", "@every 90000h"];
/// Schedules that fire seldom.
const SELDOM: &[&str] = &["0 0 29 2 *", "0 0 30 2 1", "0 0 30 2 0-6", "0 0 31 4,5 *", "@every 80000h"];

#[test]
fn equivalent_texts_parse_to_equal_schedules() {
    for (one, other) in SAME {
        assert_eq!(schedule(one), schedule(other), "{one} and {other}");
    }
    for (one, other) in OTHER {
        assert_ne!(schedule(one), schedule(other), "{one} and {other}");
    }
}

#[test]
fn error_names_field_and_position() {
    for (text, why) in WRONG {
        let error = text.parse::<Schedule>().expect_err(text);
        assert!(error.why().starts_with(why), "{text}: {error}");
        assert!(error.to_string().starts_with("invalid cronSpec \""), "{error}");
        assert!(!error.to_string().contains('\n'), "{error}");
    }
    assert_eq!("* * 0 * *".parse::<Schedule>().map_err(|it| it.field()), Err(Some(Field::DayOfMonth)));
}

#[test]
fn error_arrows_mark_the_mistake() {
    let pointed = |text: &str| text.parse::<Schedule>().expect_err(text).pointed();
    let arrows = |text: &str| {
        let pointed = pointed(text);
        let lines: Vec<_> = pointed.lines().collect();
        let (shown, arrows) = (lines[2].chars(), lines[3].chars());
        shown.zip(arrows).skip(4).filter(|(_, arrow)| *arrow == '^').map(|(shown, _)| shown).collect::<String>()
    };
    assert_eq!(arrows("0 9 * * mon,monday,tue"), "monday");
    assert_eq!(arrows("0 9-25/2 * * *"), "25");
    assert_eq!(arrows("*\t\u{a0}\u{2003}* * * ü-5"), "ü");
    assert_eq!(arrows("0 0 1 1 * 2026 x"), "2026 x");
    assert_eq!(arrows("\u{7}TZ=UTC 0 0 * * *"), "\u{fffd}TZ=UTC");
    assert_eq!(arrows("@daily; 0 0 1 1 * 2026 ;@hourly"), "2026");
    assert_eq!(arrows("@daily; @every 1h;@hourly"), " @every 1h");
    assert_eq!(
        arrows("* * * * 1;* * * * 2;* * * * 3;* * * * 4;* * * * 5;* * * * 6;@daily;@weekly;@yearly;@daily"),
        "@yearly;@daily"
    );
    assert_eq!(
        pointed("0 0 * *").lines().nth(3),
        Some("  |        ^ write five fields: minute, hour, day of month, month, day of week")
    );
    let escaped = pointed("\u{1b}[31m * * * *");
    assert!(!escaped.contains('\u{1b}'), "{escaped}");
    // The message about a very long text is short.
    assert!("* ".repeat(5000).parse::<Schedule>().expect_err("too long").to_string().len() < 400);
    assert!("é".repeat(5000).parse::<Schedule>().expect_err("too long").to_string().len() < 400);
}

#[test]
fn parse_firing_rejects_schedules_that_never_fire() {
    for text in NEVER {
        assert!(schedule(text).never_fires(), "{text}");
        let error = Schedule::parse_firing(text).expect_err(text);
        assert!(error.why().contains("never fires"), "{error}");
        let now = crate::at("2026-11-21T00:00:00Z");
        assert_eq!(schedule(text).times(&schedule::Zone::utc(), now).after(now), None, "{text}");
        assert_eq!(schedule(text).times(&schedule::Zone::utc(), now).until(now), None, "{text}");
        assert_eq!(schedule(text).times(&schedule::Zone::utc(), now).count(crate::at("1970-01-01T00:00:00Z"), now), 0);
    }
    let error = Schedule::parse_firing("@daily; 0 0 30 2 *").expect_err("one never fires");
    assert_eq!(
        error.why(),
        "expression 2, day of month, character 13: never fires; none of these months has such a day"
    );
    assert!(!schedule("@daily; 0 0 30 2 *").never_fires() && schedule("0 0 31 2 *; 0 0 30 2 *").never_fires());
    for text in SELDOM {
        assert!(!schedule(text).never_fires(), "{text}");
        assert_eq!(Schedule::parse_firing(text), Ok(schedule(text)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: u32::try_from(cases(5_000)).unwrap_or(u32::MAX),
        rng_seed: if std::env::var_os("SCHEDULE_CASES").is_some() { RngSeed::Random } else { RngSeed::Fixed(1) },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn arbitrary_text_parses_or_gets_an_error(text in ".*") {
        check_text(&text)?;
    }

    #[test]
    fn text_of_valid_letters_parses_or_gets_an_error(text in "[-0-9*?/,;@#LWTZ=. \t\u{a0}a-mnrsuhvy]{0,40}") {
        check_text(&text)?;
    }

    #[test]
    fn several_expressions_parse_or_get_an_error(text in "(@daily|@every 1h|0 0 30 2 \\*|[0-9*]{1,2}( [0-9*]){3,5}|)( ?; ?(@daily|@every 1h|[0-9*]( [0-9*]){3,5}|)){0,9}") {
        check_text(&text)?;
    }

    #[test]
    fn five_fields_parse_or_get_an_error(text in "([-0-9*?/,]{1,5}|[a-zA-Z]{3}|[0-9]{1,2}[-/,][0-9]{1,2})( ([-0-9*?/,]{1,4}|mon|JAN|é)){4}") {
        check_text(&text)?;
    }

    #[test]
    fn duration_parses_or_gets_an_error(text in "@every [-+]?([0-9]{0,20}(\\.[0-9]{0,30})?(h|m|s|ms|us|µs|ns|d| |)){1,4}") {
        check_text(&text)?;
    }

    #[test]
    fn printed_schedule_parses_to_the_same(seed in any::<u64>()) {
        let text = Expressions::random(&mut fastrand::Rng::with_seed(seed)).text;
        check_text(&text)?;
    }

    #[test]
    fn printed_period_parses_to_the_same(seconds in 10_u64..9_000_000_000) {
        let parsed = schedule(&format!("@every {seconds}s"));
        prop_assert_eq!(&schedule(&parsed.to_string()), &parsed, "{}", parsed);
    }
}

fn check_text(text: &str) -> Result<(), TestCaseError> {
    match Schedule::parse_firing(text) {
        Ok(parsed) => {
            let printed = parsed.to_string();
            // Only several expressions can have a printed form that is too long.
            prop_assert!(printed.len() <= 256 || text.contains(';'), "{} as {}", text, printed);
            if printed.len() <= 256 {
                prop_assert_eq!(&schedule(&printed), &parsed, "{} as {}", text, printed);
            }
        }
        Err(error) => {
            prop_assert!(error.to_string().chars().all(|c| !c.is_control()), "{:?}", error);
            prop_assert_eq!(error.pointed().lines().count(), 4, "{}", error.pointed());
        }
    }
    Ok(())
}
