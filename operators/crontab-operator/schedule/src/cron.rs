//! A parsed expression of five fields, and its canonical text.

use std::fmt::{Display, Formatter, Result};

use crate::field::{Field, Set};

/// The numbers of the five fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cron {
    pub(crate) minutes: Set,
    pub(crate) hours: Set,
    pub(crate) days: Set,
    pub(crate) months: Set,
    pub(crate) weekdays: Set,
    /// Whether the field is `*` or `?` without a step. The set alone does not tell: `1-31` has the same numbers, but another
    /// meaning together with the other day field.
    pub(crate) any_day: bool,
    pub(crate) any_weekday: bool,
}

impl Cron {
    /// Whether a day must match both day fields: if one of them is a star. Otherwise one match is enough.
    pub(crate) fn both_days_must_match(&self) -> bool {
        self.any_day || self.any_weekday
    }

    /// Whether none of the months has any of the days, as in 30 February.
    pub(crate) fn never_fires(&self) -> bool {
        const LEAP_YEAR: [u32; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let longest =
            LEAP_YEAR.iter().zip(1..).filter(|(_, month)| self.months.contains(*month)).map(|(days, _)| *days).max();
        // A day-of-week field fires in every month, because every month has every day of the week.
        self.any_weekday && self.days.first() > longest
    }

    pub(crate) fn set(&self, field: Field) -> Set {
        match field {
            Field::Minute => self.minutes,
            Field::Hour => self.hours,
            Field::DayOfMonth => self.days,
            Field::Month => self.months,
            Field::DayOfWeek => self.weekdays,
        }
    }

    /// Whether to print the field as a star. A full day field without a star prints as a range, which has another meaning.
    pub(crate) fn is_star(&self, field: Field) -> bool {
        match field {
            Field::DayOfMonth => self.any_day,
            Field::DayOfWeek => self.any_weekday,
            _ => self.set(field) == field.all(),
        }
    }
}

impl Display for Cron {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        for (n, field) in Field::ALL.into_iter().enumerate() {
            let blank = if n == 0 { "" } else { " " };
            let written = if self.is_star(field) { "*".to_owned() } else { written(field, self.set(field)) };
            write!(f, "{blank}{written}")?;
        }
        Ok(())
    }
}

/// Formats a set in the shortest usual way: with a step, or as ranges and single numbers.
fn written(field: Field, set: Set) -> String {
    if let Some((first, step)) = progression(field, set) {
        let first = if first == field.min().into() { "*".to_owned() } else { first.to_string() };
        return format!("{first}/{step}");
    }
    let mut parts = Vec::new();
    for (first, last) in runs(set) {
        match last - first {
            0 => parts.push(first.to_string()),
            1 => parts.extend([first.to_string(), last.to_string()]),
            _ => parts.push(format!("{first}-{last}")),
        }
    }
    parts.join(",")
}

/// Returns the first number and the step, if the set has at least three numbers at equal steps up to the end of the field.
pub(crate) fn progression(field: Field, set: Set) -> Option<(u32, u32)> {
    let (first, second) = (set.first()?, set.from(set.first()? + 1).first()?);
    let step = second - first;
    let same = Set::range(u8::try_from(first).ok()?, field.max(), step.into()) == set;
    (step > 1 && same && set.len() > 2).then_some((first, step))
}

/// Returns the ranges of consecutive numbers.
pub(crate) fn runs(set: Set) -> Vec<(u32, u32)> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for n in set.iter() {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == n => *last = n,
            _ => runs.push((n, n)),
        }
    }
    runs
}
