//! The command line `schedule next`, `schedule explain` and `schedule check`.
//!
//! A binary adds [`Command`] to its own subcommand `schedule` and passes it to [`run`], with the current time and the streams.

mod table;

use std::io::{self, Write};

use clap::{Args, Subcommand, ValueEnum};
use jiff::Timestamp;
use jiff::civil::DateTime;

use crate::error::shown;
use crate::explain;
use crate::schedule::{Effect, Schedule, Times};
use crate::zone::Zone;

/// The exit code for an invalid schedule, zone or instant.
const WRONG: u8 = 2;
/// How many days ahead `explain` looks for changes of the zone's offset.
const DAYS_OF_NOTES: i64 = 400;

/// Test a cronSpec without a cluster.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Print the next times of a schedule
    #[command(after_help = "\
Examples:
  schedule next '0 9 * * mon-fri' --time-zone Europe/Berlin
  schedule next '*/15 * * * *' --from 2026-10-25T00:30:00Z --count 8
  schedule next @daily --time-zone=+05:30 --output json
  schedule next '0 9 * * mon-fri; 0 12 * * sat'

Quote the expression, or the shell replaces * by file names and ends the command at a semicolon.
For a schedule that never fires, the list is empty and the exit code is 0.")]
    Next(Next),
    /// Explain a schedule in words, with notes about unexpected effects
    #[command(after_help = "\
Examples:
  schedule explain '* * * * */5'
  schedule explain '30 2 * * *' --time-zone America/New_York")]
    Explain(Subject),
    /// Check a schedule; exit code 2 if it is invalid or never fires
    #[command(after_help = "\
Examples:
  schedule check '0 0 30 2 *'
  schedule check \"$(yq .spec.cronSpec crontab.yaml)\" && kubectl apply -f crontab.yaml")]
    Check(Subject),
}

/// A schedule in a zone.
#[derive(Args, Debug)]
pub struct Subject {
    /// Five fields (minute, hour, day of month, month, day of week) or @daily and the like, or several of them, divided by
    /// semicolons; or @every 1h30m
    #[arg(value_name = "cronSpec")]
    cron_spec: String,
    /// Time zone: a name such as Europe/Berlin, or an offset such as +05:30
    #[arg(long, value_name = "ZONE", default_value = "UTC", allow_hyphen_values = true)]
    time_zone: String,
}

/// The arguments of `schedule next`.
#[derive(Args, Debug)]
pub struct Next {
    #[command(flatten)]
    subject: Subject,
    /// Print times after this time: RFC 3339, or local time such as 2026-10-25T00:30 [default: now]
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// How many times to print
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    count: u16,
    /// Output format: a table, or a JSON array of instants in UTC
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Output {
    #[default]
    Table,
    Json,
}

/// Runs the command, with results to `out` and mistakes of the user to `err`. Returns the exit code: 0, or 2 for a mistake.
///
/// # Errors
///
/// If a write to `out` or `err` fails.
pub fn run(command: &Command, now: Timestamp, out: &mut impl Write, err: &mut impl Write) -> io::Result<u8> {
    let answer = match command {
        Command::Next(next) => self::next(next, now),
        Command::Explain(subject) => explain(subject, now),
        Command::Check(subject) => check(subject, now),
    };
    match answer {
        Ok(text) => out.write_all(text.as_bytes()).map(|()| 0),
        Err(text) => err.write_all(text.as_bytes()).map(|()| WRONG),
    }
}

fn next(next: &Next, now: Timestamp) -> Result<String, String> {
    let (schedule, zone) = read(&next.subject)?;
    let from = match &next.from {
        Some(text) => instant(text, &zone)?,
        None => now,
    };
    let times = schedule.times(&zone, from);
    let found: Vec<_> = times.iter_after(from).take(next.count.into()).collect();
    Ok(match next.output {
        Output::Json => json(&found),
        Output::Table => table::table(&schedule, &times, from, now, &found),
    })
}

fn explain(subject: &Subject, now: Timestamp) -> Result<String, String> {
    let (schedule, zone) = read(subject)?;
    let times = schedule.times(&zone, now);
    let mut lines = vec![explain::sentence(&schedule), String::new()];
    let expressions = explain::fields(&schedule);
    for (expression, fields) in &expressions {
        if expressions.len() > 1 {
            lines.push(expression.clone());
        }
        lines.extend(fields.iter().map(|(field, said)| format!("  {:<13} {said}", field.name())));
        lines.push(String::new());
    }
    lines.push(table::next(&times, now));
    let soon = now + jiff::SignedDuration::from_hours(24 * DAYS_OF_NOTES);
    let changes = zone.changes(now, soon).filter_map(|change| Some(table::change(&change, times.effect(&change)?)));
    lines.extend(explain::notes(&schedule).into_iter().chain(changes).map(|note| format!("Note: {note}")));
    Ok(lines.join("\n") + "\n")
}

fn check(subject: &Subject, now: Timestamp) -> Result<String, String> {
    let (schedule, zone) = read(subject)?;
    Schedule::parse_firing(&subject.cron_spec).map_err(|error| error.pointed())?;
    Ok(format!("ok: {}\n{}\n", explain::sentence(&schedule), table::next(&schedule.times(&zone, now), now)))
}

fn read(subject: &Subject) -> Result<(Schedule, Zone), String> {
    let schedule = subject.cron_spec.parse::<Schedule>().map_err(|error| error.pointed())?;
    let zone = Zone::named_or_offset(&subject.time_zone).map_err(|error| format!("error: {error}\n"))?;
    Ok((schedule, zone))
}

/// Parses an instant with an offset, or a local time in the zone.
fn instant(text: &str, zone: &Zone) -> Result<Timestamp, String> {
    let local = || zone.time_zone().to_timestamp(text.parse::<DateTime>().ok()?).ok();
    text.parse().ok().or_else(local).ok_or_else(|| {
        let text = shown(text);
        format!(
            "error: --from: \"{text}\" is not a time\n  write 2026-10-25T00:30:00Z, or without Z for a time in {zone}\n"
        )
    })
}

fn json(times: &[Timestamp]) -> String {
    if times.is_empty() {
        return "[]\n".to_owned();
    }
    let lines: Vec<_> = times.iter().map(|time| format!("  \"{time}\"")).collect();
    format!("[\n{}\n]\n", lines.join(",\n"))
}
