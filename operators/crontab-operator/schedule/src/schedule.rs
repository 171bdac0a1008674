//! A schedule, and the instants at which it fires in a zone.

use std::fmt::{Display, Formatter};

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

use crate::crons::Crons;
use crate::every;
use crate::zone::{Change, Zone};

/// More than the largest offset from UTC that any zone has ever had, in seconds.
const FARTHEST: i64 = 26 * 3600;
/// Ten years, in seconds. A longer period counts as never firing.
const HORIZON: u64 = 3653 * 86_400;

/// When to run: one or more cron expressions, or a period, without a zone.
///
/// `Display` writes the shortest form, which parses to an equal schedule. (That of several expressions may be too long to be
/// parsed, because `*/2,*/3` has a long one.)
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
    Crons(Crons),
    /// `@every` with this number of seconds.
    Every(u64),
}

impl Schedule {
    /// Whether it has no times: its days never come, such as 30 February, or its period is above ten years.
    pub fn never_fires(&self) -> bool {
        match &self.0 {
            When::Crons(crons) => crons.never_fires(),
            When::Every(period) => *period > HORIZON,
        }
    }

    /// Whether it is `@every`, which counts elapsed seconds and ignores local clocks.
    pub fn goes_by_elapsed_time(&self) -> bool {
        matches!(self.0, When::Every(_))
    }

    /// Returns its times in a zone. `base` is where the grid of `@every` begins, one period before its first time; expressions
    /// of five fields ignore it. [`Situation::base`](crate::Situation::base) returns the right one.
    pub fn times<'a>(&'a self, zone: &'a Zone, base: Timestamp) -> Times<'a> {
        Times { schedule: self, zone, base: floor(base) }
    }
}

impl Display for Schedule {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            When::Crons(crons) => crons.fmt(f),
            When::Every(period) => write!(f, "@every {}", every::written(*period)),
        }
    }
}

/// The effect of a change of a zone's offset on a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// This number of times does not occur on that day.
    Skipped(u64),
    /// This number of times occurs twice.
    Repeated(u64),
}

/// The times of a schedule in a zone: exact instants, in order.
///
/// A zone is a sequence of periods with a constant offset. Within each period, the search runs on the wall clock; between
/// periods, local times are missing or occur again. So a local time that does not occur is skipped, one that occurs twice counts
/// twice, and daylight saving time needs no special case.
#[derive(Clone, Copy, Debug)]
pub struct Times<'a> {
    schedule: &'a Schedule,
    pub(crate) zone: &'a Zone,
    base: i64,
}

impl Times<'_> {
    /// Returns the first time after an instant.
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
        let found = match self.crons() {
            Ok(crons) => self.crons_at_or_after(crons, last + 1)?,
            Err(period) => self.base + (self.steps(period?, last) + 1) * period?,
        };
        to_timestamp(found)
    }

    /// Returns the latest time at or before an instant.
    pub fn until(&self, instant: Timestamp) -> Option<Timestamp> {
        let last = floor(instant);
        let found = match self.crons() {
            Ok(crons) => self.crons_at_or_before(crons, last),
            Err(period) => Some(self.base + self.steps(period?, last) * period?).filter(|it| *it > self.base),
        };
        found.and_then(to_timestamp)
    }

    /// Counts the times after one instant, up to and including another.
    pub fn count(&self, after: Timestamp, until: Timestamp) -> u64 {
        let (first, last) = (floor(after) + 1, floor(until));
        match self.crons() {
            Ok(crons) => self.count_crons(crons, first, last),
            Err(None) => 0,
            Err(Some(period)) => {
                u64::try_from(self.steps(period, last) - self.steps(period, first - 1)).unwrap_or_default()
            }
        }
    }

    /// Iterates over the times after an instant.
    pub fn iter_after(self, instant: Timestamp) -> impl Iterator<Item = Timestamp> {
        std::iter::successors(self.after(instant), move |time| self.after(*time))
    }

    /// Returns the effect of a change of the offset; `None` if there is none, as always for `@every`.
    pub fn effect(&self, change: &Change) -> Option<Effect> {
        let crons = self.crons().ok()?;
        let wall = |shown: DateTime| Offset::UTC.to_timestamp(shown).ok().map(floor);
        let (from, to) = (wall(change.from)?, wall(change.to)?);
        match (crons.count(from, to), crons.count(to, from)) {
            (0, 0) => None,
            (0, times) => Some(Effect::Repeated(times)),
            (times, _) => Some(Effect::Skipped(times)),
        }
    }

    /// Returns the expressions; as `Err`, the period of `@every`, or `None` if that never fires.
    fn crons(&self) -> Result<&Crons, Option<i64>> {
        match &self.schedule.0 {
            When::Crons(crons) => Ok(crons),
            When::Every(period) => Err(i64::try_from(*period).ok().filter(|_| !self.schedule.never_fires())),
        }
    }

    /// Counts the times of the grid up to and including this second.
    fn steps(&self, period: i64, second: i64) -> i64 {
        (second - self.base).div_euclid(period).max(0)
    }

    fn crons_at_or_after(&self, crons: &Crons, mut from: i64) -> Option<i64> {
        loop {
            let (offset, end) = self.zone.stretch_from(from)?;
            let wall = crons.at_or_after(from + offset)?;
            if wall - offset < end {
                return Some(wall - offset);
            }
            // No local time from the start of the search to `wall` fires. If this period ends so late that no later offset can
            // bring the clock back to before that start, the search skips ahead to `wall`.
            from = if end >= from + 2 * FARTHEST { end.max(wall - FARTHEST) } else { end };
        }
    }

    fn crons_at_or_before(&self, crons: &Crons, mut until: i64) -> Option<i64> {
        loop {
            let (offset, start) = self.zone.stretch_until(until)?;
            let wall = crons.at_or_before(until + offset)?;
            if wall - offset >= start {
                return Some(wall - offset);
            }
            until = if start <= until - 2 * FARTHEST { (start - 1).min(wall + FARTHEST) } else { start - 1 };
        }
    }

    /// Counts the times from one second to another, both included.
    fn count_crons(&self, crons: &Crons, mut from: i64, last: i64) -> u64 {
        let mut count = 0;
        while from <= last
            && let Some((offset, end)) = self.zone.stretch_from(from)
        {
            let end = end.min(last + 1);
            count += crons.count(from + offset, end + offset);
            from = end;
        }
        count
    }
}

/// Returns the whole second at or before an instant.
fn floor(instant: Timestamp) -> i64 {
    instant.as_second() - i64::from(instant.subsec_nanosecond() < 0)
}

fn to_timestamp(second: i64) -> Option<Timestamp> {
    Timestamp::from_second(second).ok()
}
