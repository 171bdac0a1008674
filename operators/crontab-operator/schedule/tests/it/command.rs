//! Tests of the output and the exit codes of the command line.

use clap::{CommandFactory, Parser};
use schedule::command::{Command, run};

use crate::at;

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// Runs the command on 21 November 2026, 16:25:57 UTC. Returns the exit code, the output and the errors.
fn said(arguments: &[&str]) -> (u8, String, String) {
    let arguments = Arguments::try_parse_from(["schedule"].iter().chain(arguments)).unwrap_or_else(|it| panic!("{it}"));
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code =
        run(&arguments.command, at("2026-11-21T16:25:57Z"), &mut out, &mut err).expect("a write to memory cannot fail");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (code, text(out), text(err))
}

fn prints(arguments: &[&str], expected: &str) {
    let (code, out, err) = said(arguments);
    assert_eq!((code, out.as_str(), err.as_str()), (0, expected, ""), "{arguments:?}");
}

fn refuses(arguments: &[&str], expected: &str) {
    let (code, out, err) = said(arguments);
    assert_eq!((code, out.as_str(), err.as_str()), (2, "", expected), "{arguments:?}");
}

#[test]
fn several_expressions_are_explained_one_by_one() {
    prints(
        &["explain", "*/7 9 * * mon-fri; 0 12 31 * *; 0 12 31 * ?", "--time-zone", "Europe/Berlin"],
        "\
at minutes 0, 7, 14, 21, 28, 35, 42, 49 and 56, from 09:00 to 09:59, Monday to Friday; and at 12:00, on day 31 of the month; \
and at 12:00, on day 31 of the month

*/7 9 * * 1-5
  minute        0, 7, 14, 21, 28, 35, 42, 49 and 56
  hour          9
  day of month  any
  month         any
  day of week   Monday to Friday

0 12 31 * *
  minute        0
  hour          12
  day of month  31
  month         any
  day of week   any

0 12 31 * *
  minute        0
  hour          12
  day of month  31
  month         any
  day of week   any

Next: Mon 2026-11-23 09:00 +01:00 (in 1 d 15 h)
Note: 0 12 31 * * is written twice; a time starts one run, however many expressions name it.
Note: */7 9 * * 1-5: Steps of 7 start again every hour: the last one is 4 minutes long.
Note: 0 12 31 * *: Months without a day 31 are skipped.
Note: 0 12 31 * *: Months without a day 31 are skipped.
",
    );
    prints(
        &[
            "next",
            "30 2 * * *; 30 1 * * sun",
            "--time-zone",
            "America/New_York",
            "--from",
            "2026-10-31T12:00",
            "--count",
            "4",
        ],
        "\
30 2 * * *; 30 1 * * 0 in America/New_York: at 02:30, every day; and at 01:30, on Sunday

LOCAL                        UTC                   WHEN           NOTES
Sun 2026-11-01 01:30 -04:00  2026-11-01T05:30:00Z  20 d 10 h ago  Clock goes back: runs twice, the first time.
Sun 2026-11-01 01:30 -05:00  2026-11-01T06:30:00Z  20 d 9 h ago   Clock goes back: runs twice, the second time.
Sun 2026-11-01 02:30 -05:00  2026-11-01T07:30:00Z  20 d 8 h ago
Mon 2026-11-02 02:30 -05:00  2026-11-02T07:30:00Z  19 d 8 h ago
",
    );
    refuses(
        &["check", "@daily; 0 9 * * 7"],
        "error: expression 2: day of week: 7 is too large\n  |\n  | @daily; 0 9 * * 7\n  |                 ^ use 0 for Sunday\n",
    );
}

#[test]
fn json_is_an_array_of_instants() {
    prints(
        &["next", "* * * * */5", "--from", "2026-11-19T12:34:56Z", "--count", "2", "--output", "json"],
        "[\n  \"2026-11-20T00:00:00Z\",\n  \"2026-11-20T00:01:00Z\"\n]\n",
    );
    prints(&["next", "0 0 30 2 *", "--output", "json"], "[]\n");
    // The time `--from` itself is excluded. Its default is the clock.
    prints(
        &["next", "@hourly", "--from", "2026-01-01T10:00:00Z", "--count", "1", "--output=json"],
        "[\n  \"2026-01-01T11:00:00Z\"\n]\n",
    );
    prints(&["next", "@every 1h", "--count", "1", "--output", "json"], "[\n  \"2026-11-21T17:25:57Z\"\n]\n");
    prints(
        &["next", "@daily", "--time-zone", "+05:30", "--count", "1", "--output", "json"],
        "[\n  \"2026-11-21T18:30:00Z\"\n]\n",
    );
    prints(
        &["next", "@daily", "--time-zone", "-05:30", "--count", "1", "--output", "json"],
        "[\n  \"2026-11-22T05:30:00Z\"\n]\n",
    );
    // Without an offset, it is a local time of the zone.
    prints(
        &[
            "next",
            "@hourly",
            "--time-zone",
            "Asia/Tokyo",
            "--from",
            "2026-01-01T10:00",
            "--count",
            "1",
            "--output",
            "json",
        ],
        "[\n  \"2026-01-01T02:00:00Z\"\n]\n",
    );
}

#[test]
fn table_notes_clock_changes() {
    prints(
        &["next", "30 2 * * *", "--time-zone", "America/New_York", "--from", "2027-03-13T00:00", "--count", "3"],
        "\
30 2 * * * in America/New_York: at 02:30, every day

LOCAL                        UTC                   WHEN           NOTES
Sat 2027-03-13 02:30 -05:00  2027-03-13T07:30:00Z  in 111 d 15 h
Mon 2027-03-15 02:30 -04:00  2027-03-15T06:30:00Z  in 113 d 14 h  On 2027-03-14 clocks go from 02:00 to 03:00: 1 run is skipped.
Tue 2027-03-16 02:30 -04:00  2027-03-16T06:30:00Z  in 114 d 14 h
",
    );
    prints(
        &[
            "next",
            "30 1 * * *",
            "--time-zone",
            "America/New_York",
            "--from",
            "2026-10-31T23:00:00-04:00",
            "--count",
            "2",
        ],
        "\
30 1 * * * in America/New_York: at 01:30, every day

LOCAL                        UTC                   WHEN           NOTES
Sun 2026-11-01 01:30 -04:00  2026-11-01T05:30:00Z  20 d 10 h ago  Clock goes back: runs twice, the first time.
Sun 2026-11-01 01:30 -05:00  2026-11-01T06:30:00Z  20 d 9 h ago   Clock goes back: runs twice, the second time.
",
    );
    prints(
        &["next", "@every 90s", "--count", "3"],
        "\
@every 1m30s in UTC: every 1m30s, counted from the last run

LOCAL                           UTC                   WHEN           NOTES
Sat 2026-11-21 16:27:27 +00:00  2026-11-21T16:27:27Z  in 1 min 30 s
Sat 2026-11-21 16:28:57 +00:00  2026-11-21T16:28:57Z  in 3 min
Sat 2026-11-21 16:30:27 +00:00  2026-11-21T16:30:27Z  in 4 min 30 s
",
    );
    prints(
        &["next", "0 0 30 2 *"],
        "0 0 30 2 * in UTC: at 00:00, on day 30 of the month, in February\n\nIt never fires.\n",
    );
}

#[test]
fn errors_point_at_the_mistake() {
    let pointed = "error: minute: 61 is too large\n  |\n  | 61 * * * *\n  | ^^ use 0-59\n";
    for command in ["next", "explain", "check"] {
        refuses(&[command, "61 * * * *"], pointed);
        refuses(
            &[command, "* * * * *", "--time-zone", "europe/berlin"],
            "error: unknown time zone \"europe/berlin\"; write Europe/Berlin\n",
        );
    }
    refuses(
        &["check", "0 0 30 2 *"],
        "error: day of month: never fires\n  |\n  | 0 0 30 2 *\n  |     ^^^^ none of these months has such a day\n",
    );
    refuses(
        &["next", "* * * * *", "--from", "noon"],
        "error: --from: \"noon\" is not a time\n  write 2026-10-25T00:30:00Z, or without Z for a time in UTC\n",
    );
}

#[test]
fn valid_schedule_is_explained_in_words() {
    prints(
        &["check", "0 9 * * mon-fri", "--time-zone", "Europe/Berlin"],
        "ok: at 09:00, Monday to Friday\nNext: Mon 2026-11-23 09:00 +01:00 (in 1 d 15 h)\n",
    );
    prints(
        &["explain", "*/7 2 1,15 * sun", "--time-zone", "Europe/Berlin"],
        "\
at minutes 0, 7, 14, 21, 28, 35, 42, 49 and 56, from 02:00 to 02:59, on days 1 and 15 of the month, and on Sunday

  minute        0, 7, 14, 21, 28, 35, 42, 49 and 56
  hour          2
  day of month  1 and 15
  month         any
  day of week   Sunday

Next: Sun 2026-11-22 02:00 +01:00 (in 8 h 34 min)
Note: Steps of 7 start again every hour: the last one is 4 minutes long.
Note: Both day fields are set, so a day needs to match only one of them.
Note: On 2027-03-28 clocks go from 02:00 to 03:00: 9 runs are skipped.
Note: On 2027-10-31 clocks go from 03:00 to 02:00: 9 runs are repeated.
",
    );
    prints(
        &["explain", "@every 36h"],
        "every 36h, counted from the last run\n\nNext: Mon 2026-11-23 04:25:57 +00:00 (in 1 d 12 h)\n",
    );
}

/// Runs clap's own checks too.
#[test]
fn help_examples_run_as_written() {
    Arguments::command().debug_assert();
    let help = |name: &str| {
        let mut command = Arguments::command();
        command.find_subcommand_mut(name).expect("a subcommand").render_long_help().to_string()
    };
    for name in ["next", "explain", "check"] {
        let help = help(name);
        assert!(help.contains("Examples:") && help.contains("--time-zone"), "{help}");
        // Runs each example that needs no shell.
        for example in
            help.lines().filter_map(|line| line.trim().strip_prefix("schedule ")).filter(|it| !it.contains('$'))
        {
            let words: Vec<_> = example
                .split('\'')
                .enumerate()
                .flat_map(|(n, part)| if n % 2 == 1 { vec![part] } else { part.split_whitespace().collect() })
                .collect();
            let expected = if example.contains("30 2 *'") && name == "check" { 2 } else { 0 };
            assert_eq!(said(&words).0, expected, "{example}");
        }
    }
    for count in ["0", "-1", "10001", "many"] {
        let refused = Arguments::try_parse_from(["schedule", "next", "@daily", "--count", count]);
        assert_eq!(refused.map(|_| ()).map_err(|it| it.exit_code()), Err(2), "{count}");
    }
}
