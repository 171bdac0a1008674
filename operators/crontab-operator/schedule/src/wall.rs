//! Searches and counts the times of an expression on a wall clock without changes, where every day has 1440 minutes.
//!
//! A moment is a number of seconds since 1970-01-01T00:00 on that clock. No search iterates over minutes, hours or days: the days
//! of a month are the bits of one word, and the longest search, from leap day to leap day, looks at nine months.

use crate::cron::Cron;
use crate::field::Set;

pub(crate) const DAY: i64 = 86_400;
/// The calendar, including the days of the week, repeats after this many days (400 years).
pub(crate) const CYCLE: i64 = 146_097;

impl Cron {
    /// Returns the first moment at or after this one at which it fires.
    pub(crate) fn at_or_after(&self, wall: i64) -> Option<i64> {
        // Rounds up to the next full minute.
        let (day, second) = split(wall.checked_add(59)?);
        if self.fires_on(day)
            && let Some(second) = self.first_of_day(second)
        {
            return Some(day * DAY + second);
        }
        Some(self.day_from(day + 1)? * DAY + self.first_of_day(0)?)
    }

    /// Returns the last moment at or before this one at which it fires.
    pub(crate) fn at_or_before(&self, wall: i64) -> Option<i64> {
        let (day, second) = split(wall);
        if self.fires_on(day)
            && let Some(second) = self.last_of_day(second)
        {
            return Some(day * DAY + second);
        }
        Some(self.day_until(day - 1)? * DAY + self.last_of_day(DAY - 1)?)
    }

    /// Counts how often it fires from one moment (included) to another (excluded).
    pub(crate) fn count(&self, from: i64, until: i64) -> u64 {
        if until <= from {
            return 0;
        }
        let ((first, start), (last, end)) = (split(from), split(until));
        let before = |day, second| if self.fires_on(day) { self.runs_before(second) } else { 0 };
        let whole = self.days(first, last) * u64::from(self.hours.len() * self.minutes.len());
        // All whole days from the first one, minus the times before the start, plus the times of the last day before the end.
        whole + before(last, end) - before(first, start)
    }

    /// Returns the first time of a day in or after the minute of a second.
    fn first_of_day(&self, second: i64) -> Option<i64> {
        let (hour, minute) = clock(second);
        if self.hours.contains(hour)
            && let Some(minute) = self.minutes.from(minute).first()
        {
            return Some(seconds(hour, minute));
        }
        Some(seconds(self.hours.from(hour + 1).first()?, self.minutes.first()?))
    }

    /// Returns the last time of a day at or before a second.
    fn last_of_day(&self, second: i64) -> Option<i64> {
        let (hour, minute) = clock(second);
        if self.hours.contains(hour)
            && let Some(minute) = self.minutes.below(minute + 1).last()
        {
            return Some(seconds(hour, minute));
        }
        Some(seconds(self.hours.below(hour).last()?, self.minutes.last()?))
    }

    /// Counts the times of a day before a second of it.
    fn runs_before(&self, second: i64) -> u64 {
        let (hour, minute) = clock(second + 59);
        let of_this_hour = if self.hours.contains(hour) { self.minutes.below(minute).len() } else { 0 };
        u64::from(self.hours.below(hour).len() * self.minutes.len() + of_this_hour)
    }

    fn fires_on(&self, day: i64) -> bool {
        let (month, of_month) = month_of(day);
        self.days_of(month).contains(of_month)
    }

    /// Returns the first day at or after this one on which it fires.
    fn day_from(&self, day: i64) -> Option<i64> {
        if self.never_fires() {
            return None;
        }
        let (mut month, of_month) = month_of(day);
        let mut days = self.days_of(month).from(of_month);
        loop {
            if let Some(day) = days.first() {
                return Some(first_day(month) + i64::from(day) - 1);
            }
            month = self.month_after(month)?;
            days = self.days_of(month);
        }
    }

    /// Returns the last day at or before this one on which it fires.
    fn day_until(&self, day: i64) -> Option<i64> {
        if self.never_fires() {
            return None;
        }
        let (mut month, of_month) = month_of(day);
        let mut days = self.days_of(month).below(of_month + 1);
        loop {
            if let Some(day) = days.last() {
                return Some(first_day(month) + i64::from(day) - 1);
            }
            month = self.month_before(month)?;
            days = self.days_of(month);
        }
    }

    /// Counts the days on which it fires, from one day (included) to another (excluded).
    fn days(&self, from: i64, until: i64) -> u64 {
        let cycles = (until - from) / CYCLE;
        let rest = from + cycles * CYCLE;
        let a_cycle = if cycles > 0 { self.days_within(from, from + CYCLE) } else { 0 };
        cycles.unsigned_abs() * a_cycle + self.days_within(rest, until)
    }

    /// Like [`days`](Self::days), by adding up months.
    fn days_within(&self, from: i64, until: i64) -> u64 {
        let ((first, start), (last, end)) = (month_of(from), month_of(until));
        let whole: u32 = (first..last).map(|month| self.days_of(month).len()).sum();
        u64::from(whole + self.days_of(last).below(end).len() - self.days_of(first).below(start).len())
    }

    /// Returns the days of a month, 1-31, on which it fires.
    pub(crate) fn days_of(&self, month: i64) -> Set {
        if !self.months.contains(of_year(month)) {
            return Set::default();
        }
        let first = first_day(month);
        let exist = Set(u64::MAX).from(1).below(length(first, month) + 1);
        // The days of the week, repeated, then shifted so that they begin with the first day of the month.
        let weeks = (0..9).fold(0, |bits, week| bits | self.weekdays.0 << (7 * week));
        let by_weekday = Set((weeks >> weekday(first)) << 1);
        exist & if self.both_days_must_match() { self.days & by_weekday } else { self.days | by_weekday }
    }

    fn month_after(&self, month: i64) -> Option<i64> {
        let year = month.div_euclid(12);
        match self.months.from(of_year(month) + 1).first() {
            Some(n) => Some(year * 12 + i64::from(n) - 1),
            None => Some((year + 1) * 12 + i64::from(self.months.first()?) - 1),
        }
    }

    fn month_before(&self, month: i64) -> Option<i64> {
        let year = month.div_euclid(12);
        match self.months.below(of_year(month)).last() {
            Some(n) => Some(year * 12 + i64::from(n) - 1),
            None => Some((year - 1) * 12 + i64::from(self.months.last()?) - 1),
        }
    }
}

/// Returns the day since 1970-01-01, and the second of that day.
pub(crate) fn split(wall: i64) -> (i64, i64) {
    (wall.div_euclid(DAY), wall.rem_euclid(DAY))
}

/// Returns the hour and the minute of a second of a day.
pub(crate) fn clock(second: i64) -> (u32, u32) {
    let minute = u32::try_from(second / 60).unwrap_or_default();
    (minute / 60, minute % 60)
}

fn seconds(hour: u32, minute: u32) -> i64 {
    i64::from(hour * 3600 + minute * 60)
}

/// Returns the day of the week, 0 for Sunday.
fn weekday(day: i64) -> u32 {
    // 1970 began on a Thursday.
    u32::try_from((day + 4).rem_euclid(7)).unwrap_or_default()
}

/// Returns the month of the year, from 1.
fn of_year(month: i64) -> u32 {
    u32::try_from(month.rem_euclid(12)).unwrap_or_default() + 1
}

/// Returns the number of days of a month that begins with the day `first`.
fn length(first: i64, month: i64) -> u32 {
    u32::try_from(first_day(month + 1) - first).unwrap_or_default()
}

/// Returns the first day of a month, counted from 1970-01-01. Months are counted from January of the year 0.
///
/// The calculation lets the year begin in March. Then leap days are at its end, and every five months have 153 days.
pub(crate) fn first_day(month: i64) -> i64 {
    let since_march = month - 2;
    let (year, of_year) = (since_march.div_euclid(12), since_march.rem_euclid(12));
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + (153 * of_year + 2) / 5 - 719_468
}

/// Returns the month of a day, and the day of that month, from 1.
pub(crate) fn month_of(day: i64) -> (i64, u32) {
    // A first guess that is never too late and at most one month too early: the mean month has 30.436875 days.
    let mut month = ((day + 719_528) * 10_000).div_euclid(304_369) - 1;
    while first_day(month + 1) <= day {
        month += 1;
    }
    (month, u32::try_from(day - first_day(month)).unwrap_or_default() + 1)
}

#[cfg(test)]
mod tests {
    use jiff::civil::{Date, date};

    use super::*;

    /// Covers every day in the range of instants.
    #[test]
    fn calendar_matches_jiff() {
        let mut day: Date = date(-9999, 1, 1);
        let mut n = i64::from((day - date(1970, 1, 1)).get_days());
        loop {
            let (month, of_month) = month_of(n);
            let found = (month.div_euclid(12), of_year(month), of_month, i64::from(weekday(n)));
            let weekday = day.weekday().to_sunday_zero_offset();
            let expected =
                (day.year().into(), day.month().unsigned_abs().into(), day.day().unsigned_abs().into(), weekday.into());
            assert_eq!(found, expected, "day {n}, {day}");
            let Ok(tomorrow) = day.tomorrow() else { break };
            (day, n) = (tomorrow, n + 1);
        }
    }
}
