//! The command line `schedule next`, `schedule explain` and `schedule check`.
//!
//! A binary hangs [`Command`] below its own `schedule` and hands it to [`run`]. The clock and the streams come from outside.

mod table;

use std::io::{self, Write};

use clap::{Args, Subcommand, ValueEnum};
use jiff::Timestamp;
use jiff::civil::DateTime;

use crate::error::shown;
use crate::explain;
use crate::schedule::{Effect, Schedule, Times};
use crate::zone::Zone;

/// The exit code for a schedule, a zone or an instant that is wrong.
const WRONG: u8 = 2;
/// How far `explain` looks for changes of clocks.
const DAYS_OF_NOTES: i64 = 400;

/// Look at a cronSpec before a cluster does.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Print the next times of a schedule
    #[command(after_help = "\
Examples:
  schedule next '0 9 * * mon-fri' --time-zone Europe/Berlin
  schedule next '*/15 * * * *' --from 2026-10-25T00:30:00Z --count 8
  schedule next @daily --time-zone=+05:30 --output json

Quote the expression, or else the shell puts file names in the place of *.
A schedule that never fires has no times: the list is empty, and the exit code 0.")]
    Next(Next),
    /// Say in words what a schedule means, and what may surprise
    #[command(after_help = "\
Examples:
  schedule explain '* * * * */5'
  schedule explain '30 2 * * *' --time-zone America/New_York")]
    Explain(Subject),
    /// Refuse a schedule that is wrong or never fires, with exit code 2
    #[command(after_help = "\
Examples:
  schedule check '0 0 30 2 *'
  schedule check \"$(yq .spec.cronSpec crontab.yaml)\" && kubectl apply -f crontab.yaml")]
    Check(Subject),
}

/// A schedule in a zone.
#[derive(Args, Debug)]
pub struct Subject {
    /// Five fields (minute, hour, day of month, month, day of week), @daily and the like, or @every 1h30m
    #[arg(value_name = "cronSpec")]
    cron_spec: String,
    /// The clocks to go by: a name such as Europe/Berlin, or an offset such as +05:30
    #[arg(long, value_name = "ZONE", default_value = "UTC", allow_hyphen_values = true)]
    time_zone: String,
}

/// What `schedule next` takes.
#[derive(Args, Debug)]
pub struct Next {
    #[command(flatten)]
    subject: Subject,
    /// Print times after this one: RFC 3339, or local such as 2026-10-25T00:30 [default: now]
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// How many to print
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    count: u16,
    /// A table for people, or a JSON array of instants in UTC
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Output {
    #[default]
    Table,
    Json,
}

/// Runs the command. Answers go to `out`, and what is wrong to `err`. Gives the exit code.
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
    lines.extend(explain::fields(&schedule).iter().map(|(field, said)| format!("  {:<13} {said}", field.name())));
    if lines.len() > 2 {
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

/// With an offset, or else on the clocks of the zone.
fn instant(text: &str, zone: &Zone) -> Result<Timestamp, String> {
    let local = || zone.time_zone().to_timestamp(text.parse::<DateTime>().ok()?).ok();
    text.parse().ok().or_else(local).ok_or_else(|| {
        let text = shown(text);
        format!(
            "error: --from: \"{text}\" is no time\n  write it as 2026-10-25T00:30:00Z, or without Z as time in {zone}\n"
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
