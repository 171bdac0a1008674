//! Several expressions as one: they fire at the union of their times, each time once.
//!
//! The union is made on the wall clock, so that the changes of a zone have the same effect as on a single expression.

use std::fmt::{Display, Formatter, Result};
use std::ops::Range;

use crate::cron::Cron;
use crate::field::Set;
use crate::wall::{CYCLE, DAY, clock, first_day, month_of, split};

/// At least one expression, at most [`MOST`](Self::MOST).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Crons(Vec<Cron>);

/// Which of the expressions fire on a day: a bit for each.
type Which = u8;

impl Crons {
    /// The largest number of expressions.
    pub(crate) const MOST: usize = Which::BITS as usize;

    pub(crate) fn one(cron: Cron) -> Self {
        Self(vec![cron])
    }

    /// Joins expressions. `None` if there are none, or too many.
    pub(crate) fn new(all: Vec<Cron>) -> Option<Self> {
        (1..=Self::MOST).contains(&all.len()).then_some(Self(all))
    }

    pub(crate) fn all(&self) -> &[Cron] {
        &self.0
    }

    pub(crate) fn never_fires(&self) -> bool {
        self.0.iter().all(Cron::never_fires)
    }

    /// Returns the first moment at or after this one at which one of them fires.
    pub(crate) fn at_or_after(&self, wall: i64) -> Option<i64> {
        self.0.iter().filter_map(|cron| cron.at_or_after(wall)).min()
    }

    /// Returns the last moment at or before this one at which one of them fires.
    pub(crate) fn at_or_before(&self, wall: i64) -> Option<i64> {
        self.0.iter().filter_map(|cron| cron.at_or_before(wall)).max()
    }

    /// Counts the moments from one (included) to another (excluded) at which at least one of them fires.
    pub(crate) fn count(&self, from: i64, until: i64) -> u64 {
        if let [cron] = self.0.as_slice() {
            return cron.count(from, until);
        }
        if until <= from {
            return 0;
        }
        let ((first, start), (last, end)) = (split(from), split(until));
        let before = |day, second| self.times(self.on(day), second);
        let cycles = (last - first) / CYCLE;
        let a_cycle = if cycles > 0 { self.days(first..first + CYCLE) } else { 0 };
        let whole = cycles.unsigned_abs() * a_cycle + self.days(first + cycles * CYCLE..last);
        // All whole days from the first one, minus the times before the start, plus the times of the last day before the end.
        whole + before(last, end) - before(first, start)
    }

    /// Counts the times of whole days. Iterates over the days, because on each of them other expressions may fire together; but
    /// computes the times of a day only once for each set of expressions.
    fn days(&self, days: Range<i64>) -> u64 {
        let mut known = [None; 1 << Which::BITS];
        let mut count = 0;
        let mut day = days.start;
        while day < days.end {
            let (month, of_month) = month_of(day);
            let fire: Vec<_> = self.0.iter().map(|cron| cron.days_of(month)).collect();
            let end = days.end.min(first_day(month + 1));
            for of_month in (of_month..).take(usize::try_from(end - day).unwrap_or_default()) {
                let which = which(fire.iter().map(|days| days.contains(of_month)));
                count += *known[usize::from(which)].get_or_insert_with(|| self.times(which, DAY));
            }
            day = end;
        }
        count
    }

    /// Counts the times of a day before a second of it, at which at least one of these expressions fires.
    fn times(&self, which: Which, second: i64) -> u64 {
        let chosen: Vec<_> = self.0.iter().enumerate().filter(|(n, _)| which & (1 << n) != 0).collect();
        let of_hour = |hour| {
            let fire = chosen.iter().filter(|(_, cron)| cron.hours.contains(hour));
            fire.fold(Set::default(), |minutes, (_, cron)| minutes | cron.minutes)
        };
        let (hour, minute) = clock(second + 59);
        let whole: u32 = (0..hour).map(|hour| of_hour(hour).len()).sum();
        u64::from(whole + of_hour(hour).below(minute).len())
    }

    fn on(&self, day: i64) -> Which {
        let (month, of_month) = month_of(day);
        which(self.0.iter().map(|cron| cron.days_of(month).contains(of_month)))
    }
}

fn which(fire: impl Iterator<Item = bool>) -> Which {
    fire.enumerate().fold(0, |bits, (n, fires)| bits | Which::from(fires) << n)
}

impl Display for Crons {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        for (n, cron) in self.0.iter().enumerate() {
            write!(f, "{}{cron}", if n == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}
