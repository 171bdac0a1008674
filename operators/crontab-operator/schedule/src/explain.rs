//! Explains schedules in words.

use crate::cron::{Cron, progression, runs};
use crate::crons::Crons;
use crate::every;
use crate::field::{Field, MONTHS, Set, WEEKDAYS};
use crate::schedule::{Schedule, When};

/// The maximum number of times of a day that a sentence lists one by one.
const LISTED: u32 = 6;

/// Returns the meaning of a schedule in one sentence, without a full stop.
///
/// ```
/// let said = |text: &str| text.parse().map(|it| schedule::explain::sentence(&it));
/// assert_eq!(said("* * * * */5")?, "every minute, on Sunday and Friday");
/// assert_eq!(said("30 9,17 * jan-mar mon-fri")?, "at 09:30 and 17:30, Monday to Friday, in January to March");
/// assert_eq!(said("0 0 1,15 * 0")?, "at 00:00, on days 1 and 15 of the month, and on Sunday");
/// assert_eq!(said("*/20 9-17 * * *")?, "every 20 minutes, from 09:00 to 17:59");
/// assert_eq!(said("0 9 * * mon-fri; 0 12 * * sat")?, "at 09:00, Monday to Friday; and at 12:00, on Saturday");
/// assert_eq!(said("@every 90m")?, "every 1h30m, counted from the last run");
/// # Ok::<(), schedule::Error>(())
/// ```
pub fn sentence(schedule: &Schedule) -> String {
    match &schedule.0 {
        When::Every(period) => format!("every {}, counted from the last run", every::written(*period)),
        When::Crons(crons) => crons.all().iter().map(meaning).collect::<Vec<_>>().join("; and "),
    }
}

fn meaning(cron: &Cron) -> String {
    let parts = [Some(times(cron)), days(cron), months(cron)];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Returns each expression with the values of its fields in words; empty for `@every`.
pub fn fields(schedule: &Schedule) -> Vec<(String, [(Field, String); 5])> {
    let When::Crons(crons) = &schedule.0 else { return Vec::new() };
    let said = |cron: &Cron, field| match field {
        _ if cron.is_star(field) => "any".to_owned(),
        _ => numbers(field, cron.set(field)),
    };
    crons.all().iter().map(|cron| (cron.to_string(), Field::ALL.map(|field| (field, said(cron, field))))).collect()
}

/// Returns notes about effects that the user may not expect.
pub fn notes(schedule: &Schedule) -> Vec<String> {
    let When::Crons(crons) = &schedule.0 else { return Vec::new() };
    if let [cron] = crons.all() {
        return notes_of(cron);
    }
    let of_each =
        crons.all().iter().flat_map(|cron| notes_of(cron).into_iter().map(move |note| format!("{cron}: {note}")));
    twice(crons).into_iter().chain(of_each).collect()
}

/// Returns a note for each expression that occurs again.
fn twice(crons: &Crons) -> Vec<String> {
    let all = crons.all().iter().enumerate();
    let again = all.filter(|(n, cron)| crons.all()[..*n].contains(cron));
    again
        .map(|(_, cron)| format!("{cron} is written twice; a time starts one run, however many expressions name it."))
        .collect()
}

fn notes_of(cron: &Cron) -> Vec<String> {
    let mut notes = Vec::new();
    if cron.never_fires() {
        notes.push("It never fires: none of these months has such a day.".to_owned());
        return notes;
    }
    for (field, length, again) in [(Field::Minute, 60, "every hour"), (Field::Hour, 24, "every day")] {
        let steps = progression(field, cron.set(field)).filter(|(first, step)| *first == 0 && length % step != 0);
        if let Some((_, step)) = steps {
            let rest = length % step;
            notes.push(format!("Steps of {step} start again {again}: the last one is {rest} {}s long.", field.name()));
        }
    }
    if !cron.both_days_must_match() {
        let full = [Field::DayOfMonth, Field::DayOfWeek].into_iter().find(|field| cron.set(*field) == field.all());
        notes.push(match full {
            Some(field) => format!(
                "A {} of {} matches every day; write * so that only the other day field counts.",
                field.name(),
                field.allowed().split(' ').next().unwrap_or_default()
            ),
            None => "Both day fields are set, so a day needs to match only one of them.".to_owned(),
        });
    } else if let Some(last) = cron.days.first().filter(|first| *first > 28) {
        notes.push(format!("Months without a day {last} are skipped."));
    }
    notes
}

fn times(cron: &Cron) -> String {
    let (minutes, hours) = (cron.minutes, cron.hours);
    let every_hour = hours == Field::Hour.all();
    let every_minute = minutes == Field::Minute.all();
    let first = minutes.first().unwrap_or_default();
    if !every_hour && minutes.len() * hours.len() <= LISTED {
        let times = hours.iter().flat_map(|hour| minutes.iter().map(move |minute| format!("{hour:02}:{minute:02}")));
        return format!("at {}", list(times.collect()));
    }
    let stretch = match runs(hours).as_slice() {
        [(from, to)] if !every_hour => Some((*from, *to)),
        _ => None,
    };
    if minutes.len() == 1 {
        return match stretch {
            Some((from, to)) => format!("every hour from {from:02}:{first:02} to {to:02}:{first:02}"),
            None if every_hour && first == 0 => "every hour, on the hour".to_owned(),
            None if every_hour => format!("every hour, at minute {first}"),
            None => format!("at minute {first}, in hours {}", numbers(Field::Hour, hours)),
        };
    }
    let minutes = match progression(Field::Minute, minutes) {
        _ if every_minute => "every minute".to_owned(),
        Some((0, step)) if 60 % step == 0 => format!("every {step} minutes"),
        _ if every_hour => format!("every hour, at minutes {}", numbers(Field::Minute, minutes)),
        _ => format!("at minutes {}", numbers(Field::Minute, minutes)),
    };
    match stretch {
        _ if every_hour => minutes,
        Some((from, to)) => format!("{minutes}, from {from:02}:00 to {to:02}:59"),
        None => format!("{minutes}, in hours {}", numbers(Field::Hour, hours)),
    }
}

fn days(cron: &Cron) -> Option<String> {
    let plural = if cron.days.len() == 1 { "" } else { "s" };
    let of_month = format!("on day{plural} {} of the month", numbers(Field::DayOfMonth, cron.days));
    let weekdays = numbers(Field::DayOfWeek, cron.weekdays);
    // "Monday to Friday", but "on Sunday and Friday".
    let on = if runs(cron.weekdays).len() == 1 && cron.weekdays.len() > 2 { "" } else { "on " };
    match (cron.any_day, cron.any_weekday) {
        (true, true) => (cron.minutes.len() * cron.hours.len() <= LISTED).then(|| "every day".to_owned()),
        (false, true) => Some(of_month),
        (true, false) => Some(format!("{on}{weekdays}")),
        (false, false) => Some(format!("{of_month}, and {on}{weekdays}")),
    }
}

fn months(cron: &Cron) -> Option<String> {
    (cron.months != Field::Month.all()).then(|| format!("in {}", numbers(Field::Month, cron.months)))
}

/// Formats the numbers of a field, by their names if they have any.
fn numbers(field: Field, set: Set) -> String {
    let name = |n: u32| {
        let names: &[&str] = match field {
            Field::Month => &MONTHS,
            Field::DayOfWeek => &WEEKDAYS,
            _ => &[],
        };
        let name = usize::try_from(n - u32::from(field.min())).ok().and_then(|n| names.get(n));
        name.map_or_else(|| n.to_string(), |name| (*name).to_owned())
    };
    let mut parts = Vec::new();
    for (first, last) in runs(set) {
        match last - first {
            0 => parts.push(name(first)),
            1 => parts.extend([name(first), name(last)]),
            _ => parts.push(format!("{} to {}", name(first), name(last))),
        }
    }
    list(parts)
}

/// Joins parts as in "a, b and c".
fn list(mut parts: Vec<String>) -> String {
    let last = parts.pop().unwrap_or_default();
    if parts.is_empty() { last } else { format!("{} and {last}", parts.join(", ")) }
}
