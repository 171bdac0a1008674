//! Random texts of schedules. A text is either refused with its place, or is a schedule whose times lie after each other.

use fuzz::Target;
use jiff::Timestamp;
use schedule::Schedule;

use crate::zone;

const EXAMPLES: &[&[u8]] = &[
    b"*/5 * * * *",
    b"0 0 1 1 *",
    b"1-7/3,3 9-17 ? JAN,feb mOn-FRI",
    b"@daily",
    b"@every 1h30m0.5s",
    b"59 23 31 12 7",
    b"  5\t*  29 2 *\n",
    b"TZ=Europe/Paris 0 3 * * *",
    b"30 2 * * *; */20 1-3 * * sun ;@monthly",
];
const WORDS: &[&str] = &[
    "*",
    "*/",
    "-",
    ",",
    "?",
    "SUN",
    "mon",
    "DEC",
    "@every ",
    "@",
    "60",
    "31",
    "29 2",
    "0",
    "99999999999999999999",
    "h",
    "ms",
    "µs",
    ".5",
    "+",
    "L",
    "W",
    "#",
    ";",
    "CRON_TZ=",
];

#[test]
fn fuzz_schedules() {
    let zones = ["UTC", "Europe/Paris", "Australia/Lord_Howe"].map(zone);
    // Just before the clocks of Paris go forward.
    let base: Timestamp = "2026-03-29T00:59:30Z".parse().expect("a time");
    Target::new("schedules", env!("CARGO_MANIFEST_DIR")).run(
        |random| fuzz::bytes(random, EXAMPLES, WORDS),
        |bytes| {
            let text = String::from_utf8_lossy(bytes);
            let schedule: Schedule = match text.parse() {
                Ok(schedule) => schedule,
                Err(error) => {
                    assert!(error.position() <= text.chars().count() + 1, "{text:?}: {error}");
                    assert!(!error.why().is_empty() && !error.pointed().is_empty(), "{text:?}");
                    return false;
                }
            };
            let printed = schedule.to_string();
            assert!(printed.len() <= 256 || text.contains(';'), "{text:?} as {printed}");
            if printed.len() <= 256 {
                assert_eq!(printed.parse(), Ok(schedule.clone()), "{text:?}");
            }
            for zone in &zones {
                let times = schedule.times(zone, base);
                let mut last = base;
                for time in times.iter_after(base).take(4) {
                    assert!(time > last, "{text:?}: {time} after {last}");
                    last = time;
                }
                if last > base {
                    assert_eq!(times.until(last), Some(last), "{text:?}");
                    assert!(times.count(base, last) <= 4, "{text:?}");
                }
                assert_eq!(times.after(base).is_none(), schedule.never_fires(), "{text:?}");
            }
            true
        },
    );
}
