//! Formats times for users: the table of `next`, and single lines.

use jiff::Timestamp;
use jiff::tz::AmbiguousOffset;

use super::{Effect, Schedule, Times, explain};
use crate::zone::Change;

/// Formats a table of times: in the zone, in UTC, and relative to now, with notes.
pub(super) fn table(
    schedule: &Schedule,
    times: &Times<'_>,
    from: Timestamp,
    now: Timestamp,
    found: &[Timestamp],
) -> String {
    let zone = times.zone;
    let head = format!("{schedule} in {zone}: {}\n\n", explain::sentence(schedule));
    if found.is_empty() {
        return head + "It never fires.\n";
    }
    let befores = [from].into_iter().chain(found.iter().copied());
    let rows = befores.zip(found).map(|(before, time)| {
        [local(times, *time), time.to_string(), relative(*time, now), notes(schedule, times, before, *time)]
    });
    let heads = ["LOCAL", "UTC", "WHEN", "NOTES"].map(str::to_owned);
    let rows: Vec<_> = [heads].into_iter().chain(rows).collect();
    let width = |n: usize| rows.iter().map(|row| row[n].len()).max().unwrap_or_default();
    let (local, utc, when) = (width(0), width(1), width(2));
    let line =
        |[a, b, c, d]: &[String; 4]| format!("{a:<local$}  {b:<utc$}  {c:<when$}  {d}").trim_end().to_owned() + "\n";
    head + &rows.iter().map(line).collect::<String>()
}

/// Formats one line about the next time.
pub(super) fn next(times: &Times<'_>, now: Timestamp) -> String {
    match times.after(now) {
        Some(time) => format!("Next: {} ({})", local(times, time), relative(time, now)),
        None => "Next: never".to_owned(),
    }
}

/// Formats a change of the offset and its effect.
pub(super) fn change(change: &Change, effect: Effect) -> String {
    let (day, from, to) = (change.from.date(), change.from.strftime("%H:%M"), change.to.strftime("%H:%M"));
    match effect {
        Effect::Skipped(times) => format!("On {day} clocks go from {from} to {to}: {} skipped.", runs(times)),
        Effect::Repeated(times) => format!("On {day} clocks go from {from} to {to}: {} repeated.", runs(times)),
    }
}

fn runs(times: u64) -> String {
    if times == 1 { "1 run is".to_owned() } else { format!("{times} runs are") }
}

fn local(times: &Times<'_>, time: Timestamp) -> String {
    let seconds = if time.as_second() % 60 == 0 { "" } else { ":%S" };
    let local = time.to_zoned(times.zone.time_zone().clone());
    local.strftime(&format!("%a %Y-%m-%d %H:%M{seconds} %:z")).to_string()
}

/// Returns notes about a time: runs skipped since the time before it, and whether it occurs twice.
fn notes(schedule: &Schedule, times: &Times<'_>, before: Timestamp, time: Timestamp) -> String {
    let skipped = times.zone.changes(before, time).filter_map(|it| match times.effect(&it)? {
        effect @ Effect::Skipped(_) => Some(change(&it, effect)),
        Effect::Repeated(_) => None,
    });
    let zone = times.zone.time_zone();
    let twice = match zone.to_ambiguous_timestamp(zone.to_datetime(time)).offset() {
        AmbiguousOffset::Fold { before, .. } if !schedule.goes_by_elapsed_time() => {
            let nth = if zone.to_offset(time) == before { "first" } else { "second" };
            Some(format!("Clock goes back: runs twice, the {nth} time."))
        }
        _ => None,
    };
    skipped.chain(twice).collect::<Vec<_>>().join(" ")
}

/// Formats a relative time such as "in 3 h 20 min": the largest unit that is not zero, and the next smaller one.
fn relative(time: Timestamp, now: Timestamp) -> String {
    let seconds = time.duration_since(now).as_secs();
    let units = [("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)];
    let mut rest = seconds.unsigned_abs();
    let mut parts = Vec::new();
    for (name, size) in units {
        let n = rest / size;
        rest %= size;
        // Two adjacent units at most: "1 d 5 min" would be too exact.
        if n > 0 && parts.len() < 2 {
            parts.push(format!("{n} {name}"));
        } else if !parts.is_empty() {
            break;
        }
    }
    match (parts.is_empty(), seconds < 0) {
        (true, _) => "now".to_owned(),
        (false, true) => format!("{} ago", parts.join(" ")),
        (false, false) => format!("in {}", parts.join(" ")),
    }
}
