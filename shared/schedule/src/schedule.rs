//! A schedule, and its times in a zone.

use std::fmt::{Display, Formatter};
use std::str::FromStr;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

use crate::cron::Cron;
use crate::error::Error;
use crate::zone::{Change, Zone};
use crate::{every, parse};

/// No zone has ever been this far from UTC, in seconds.
const FARTHEST: i64 = 26 * 3600;
/// What fires less often counts as never firing: ten years, in seconds.
const HORIZON: u64 = 3653 * 86_400;

/// When to run: a cron expression or a period, without zone.
///
/// It prints in its shortest form, which parses to an equal schedule:
///
/// ```
/// let schedule: schedule::Schedule = "00 9-17/2 ? JAN-mar mon-fri".parse()?;
/// assert_eq!(schedule.to_string(), "0 9,11,13,15,17 * 1-3 1-5");
/// # Ok::<(), schedule::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Schedule(pub(crate) When);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum When {
    Cron(Cron),
    /// So many seconds.
    Every(u64),
}

impl Schedule {
    /// Parses, and refuses also what [never fires](Self::never_fires): for the places where people write schedules.
    ///
    /// ```
    /// let error = schedule::Schedule::parse_firing("0 0 30 2 *").unwrap_err();
    /// assert_eq!(error.why(), "day of month, character 5: never fires; no such month has such a day");
    /// ```
    pub fn parse_firing(text: &str) -> Result<Self, Error> {
        parse::parse_firing(text)
    }

    /// Whether it names no day that ever comes, such as 30 February, or a period above ten years. It has no times then.
    pub fn never_fires(&self) -> bool {
        match &self.0 {
            When::Cron(cron) => cron.never_fires(),
            When::Every(period) => *period > HORIZON,
        }
    }

    /// Whether it is `@every`: seconds that pass, whatever clocks show.
    pub fn goes_by_elapsed_time(&self) -> bool {
        matches!(self.0, When::Every(_))
    }

    /// Its times on the clocks of a zone. `base` is where the grid of `@every` begins, one period before its first time; an
    /// expression of five fields has no use for it. See [`base`](crate::Situation::base) for the right one.
    pub fn times<'a>(&'a self, zone: &'a Zone, base: Timestamp) -> Times<'a> {
        Times { schedule: self, zone, base: floor(base) }
    }
}

impl FromStr for Schedule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        parse::parse(text)
    }
}

impl Display for Schedule {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            When::Cron(cron) => cron.fmt(f),
            When::Every(period) => write!(f, "@every {}", every::written(*period)),
        }
    }
}

/// What a change of clocks does to a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// So many times do not exist that day.
    Skipped(u64),
    /// So many times exist twice.
    Repeated(u64),
}

/// The times of a schedule: instants, exact, in order.
///
/// A zone is a row of stretches in which its offset does not change. In each of them the wall clock runs like any other, and
/// the question is one about the wall clock; between them hours are missing or come again. So a time that does not exist is
/// left out, one that exists twice counts twice, and nobody has to treat the change of clocks as a special case.
#[derive(Clone, Copy, Debug)]
pub struct Times<'a> {
    schedule: &'a Schedule,
    pub(crate) zone: &'a Zone,
    base: i64,
}

impl Times<'_> {
    /// The first time after an instant.
    ///
    /// ```
    /// # use schedule::{Schedule, Zone};
    /// let schedule: Schedule = "30 2 * * *".parse()?;
    /// let zone = Zone::named("America/New_York")?;
    /// let now = "2026-03-07T12:00:00Z".parse()?;
    /// // On 8 March clocks go from 02:00 to 03:00.
    /// let next = schedule.times(&zone, now).after(now);
    /// assert_eq!(next, Some("2026-03-09T02:30:00-04:00".parse()?));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn after(&self, instant: Timestamp) -> Option<Timestamp> {
        let last = floor(instant);
        let found = match self.cron() {
            Ok(cron) => self.cron_at_or_after(cron, last + 1)?,
            Err(period) => self.base + (self.steps(period?, last) + 1) * period?,
        };
        to_timestamp(found)
    }

    /// The latest time until an instant, itself included.
    pub fn until(&self, instant: Timestamp) -> Option<Timestamp> {
        let last = floor(instant);
        let found = match self.cron() {
            Ok(cron) => self.cron_at_or_before(cron, last),
            Err(period) => Some(self.base + self.steps(period?, last) * period?).filter(|it| *it > self.base),
        };
        found.and_then(to_timestamp)
    }

    /// How many times there are after one instant and until another, that one included.
    pub fn count(&self, after: Timestamp, until: Timestamp) -> u64 {
        let (first, last) = (floor(after) + 1, floor(until));
        match self.cron() {
            Ok(cron) => self.count_cron(cron, first, last),
            Err(None) => 0,
            Err(Some(period)) => {
                u64::try_from(self.steps(period, last) - self.steps(period, first - 1)).unwrap_or_default()
            }
        }
    }

    /// The times after an instant, one after the other.
    pub fn iter_after(self, instant: Timestamp) -> impl Iterator<Item = Timestamp> {
        std::iter::successors(self.after(instant), move |time| self.after(*time))
    }

    /// What a change of clocks does to it. The grid of `@every` goes by no clock on a wall.
    pub fn effect(&self, change: &Change) -> Option<Effect> {
        let cron = self.cron().ok()?;
        let wall = |shown: DateTime| Offset::UTC.to_timestamp(shown).ok().map(floor);
        let (from, to) = (wall(change.from)?, wall(change.to)?);
        match (cron.count(from, to), cron.count(to, from)) {
            (0, 0) => None,
            (0, times) => Some(Effect::Repeated(times)),
            (times, _) => Some(Effect::Skipped(times)),
        }
    }

    /// The expression, or else the period of one that fires.
    fn cron(&self) -> Result<&Cron, Option<i64>> {
        match &self.schedule.0 {
            When::Cron(cron) => Ok(cron),
            When::Every(period) => Err(i64::try_from(*period).ok().filter(|_| !self.schedule.never_fires())),
        }
    }

    /// How many times of the grid there are until this second.
    fn steps(&self, period: i64, second: i64) -> i64 {
        (second - self.base).div_euclid(period).max(0)
    }

    fn cron_at_or_after(&self, cron: &Cron, mut from: i64) -> Option<i64> {
        loop {
            let (offset, end) = self.zone.stretch_from(from)?;
            let wall = cron.at_or_after(from + offset)?;
            if wall - offset < end {
                return Some(wall - offset);
            }
            // Once clocks are ahead of where they were at the beginning, whatever they have been turned back meanwhile,
            // they show nothing that fires before they show `wall`.
            from = if end >= from + 2 * FARTHEST { end.max(wall - FARTHEST) } else { end };
        }
    }

    fn cron_at_or_before(&self, cron: &Cron, mut until: i64) -> Option<i64> {
        loop {
            let (offset, start) = self.zone.stretch_until(until)?;
            let wall = cron.at_or_before(until + offset)?;
            if wall - offset >= start {
                return Some(wall - offset);
            }
            until = if start <= until - 2 * FARTHEST { (start - 1).min(wall + FARTHEST) } else { start - 1 };
        }
    }

    /// How many there are from a second until another, that one included.
    fn count_cron(&self, cron: &Cron, mut from: i64, last: i64) -> u64 {
        let mut count = 0;
        while from <= last
            && let Some((offset, end)) = self.zone.stretch_from(from)
        {
            let end = end.min(last + 1);
            count += cron.count(from + offset, end + offset);
            from = end;
        }
        count
    }
}

/// The whole second at or before an instant.
fn floor(instant: Timestamp) -> i64 {
    instant.as_second() - i64::from(instant.subsec_nanosecond() < 0)
}

fn to_timestamp(second: i64) -> Option<Timestamp> {
    Timestamp::from_second(second).ok()
}
