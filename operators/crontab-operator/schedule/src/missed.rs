//! Decides from the stored memory and the clock: nothing, start, or skip with a reason. Pure: values in, a value out.
//!
//! Each time is decided on at most once, because the caller stores the latest time that it started or skipped and passes it as
//! [`Situation::last`]. Of all times that passed since then, only the newest can be started.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64_with_seed};

use crate::schedule::{Schedule, Times};
use crate::zone::Zone;

/// The longest wait. It is limited so that a clock that was set or a machine that was suspended has an effect soon.
const LONGEST_WAIT: Duration = Duration::from_hours(1);
/// Added to each wait, so that the run is due when the wait ends.
const PADDING: Duration = Duration::from_millis(100);
/// The shortest effective deadline, in seconds. A shorter one would skip runs in normal operation.
const SHORTEST_DEADLINE: u64 = 10;
/// More missed times than this are worth a warning.
const MANY: u64 = 100;

/// Since when a schedule is in effect: no time before is ever started.
///
/// The caller must store it in the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// A hash of expression, zone, and whether the schedule is held. When it changes, the schedule takes effect anew.
    pub hash: String,
    /// Only times after this one can be due.
    pub since: Timestamp,
}

impl Anchor {
    /// Returns the current anchor, from the stored one. It moves to `now` when the text or the zone changes, and when the
    /// schedule becomes held (suspended, or without replicas) or resumes: no time before that fires. Without a stored anchor,
    /// it is the creation time.
    pub fn now(
        remembered: Option<&Self>,
        (text, zone, held): (&str, &Zone, bool),
        created: Timestamp,
        now: Timestamp,
    ) -> Self {
        let hash = hash(text, zone, held);
        let since = match remembered {
            Some(it) if it.hash == hash => it.since,
            Some(_) => now,
            None => created,
        };
        Self { hash, since }
    }
}

/// Includes `held`, so that the end of a pause counts as an edit, even if it happens while the operator is down.
fn hash(text: &str, zone: &Zone, held: bool) -> String {
    let mut hasher = Xxh3Default::new();
    for part in [text, zone.name(), if held { "held" } else { "" }] {
        hasher.update(part.as_bytes());
        hasher.update(&[0xff]);
    }
    format!("{:016x}", hasher.digest())
}

/// What happens if a time is due while the previous run is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concurrency {
    /// Both run.
    Allow,
    /// The new one is skipped.
    Forbid,
    /// The old one is ended first.
    Replace,
}

/// Spreads the starts of many objects with the same schedule. The delay of a run follows from the object and the time, so it is
/// the same in each process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Jitter<'a> {
    /// `jitterSeconds`: the longest delay.
    pub longest: u32,
    /// Distinguishes the object from all others.
    pub uid: &'a str,
}

impl Jitter<'_> {
    /// Returns the delay of the run of `time`: at most half of the gap to the following time, so that runs start in the order of
    /// their times.
    fn delay(&self, time: Timestamp, following: Option<Timestamp>) -> SignedDuration {
        let gap = following.map_or(u64::MAX, |following| following.duration_since(time).unsigned_abs().as_secs());
        let longest = u64::from(self.longest).min(gap / 2);
        let random = xxh3_64_with_seed(self.uid.as_bytes(), time.as_second().cast_unsigned());
        SignedDuration::from_secs((random % (longest + 1)).cast_signed())
    }
}

/// The input of a decision.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The schedule.
    pub schedule: &'a Schedule,
    /// The zone of its local times.
    pub zone: &'a Zone,
    /// The current time.
    pub now: Timestamp,
    /// [`Anchor::since`].
    pub anchor: Timestamp,
    /// The latest time that was started or skipped.
    pub last: Option<Timestamp>,
    /// Suspended, or nothing to start: no time is due.
    pub held: bool,
    /// How the starts of runs are spread.
    pub jitter: Jitter<'a>,
    /// `startingDeadlineSeconds`.
    pub starting_deadline: Option<u64>,
    /// `concurrencyPolicy`.
    pub concurrency: Concurrency,
    /// The number of active runs.
    pub active: u32,
    /// `maxActiveJobs`: the limit of active runs for [`Concurrency::Allow`].
    pub max_active: u32,
}

/// The newest time since the last decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// Its time.
    pub time: Timestamp,
    /// How many older times were missed. They are never started.
    pub missed: u64,
}

impl Due {
    /// Whether more than 100 times were missed, which is worth a warning.
    pub fn has_missed_many(&self) -> bool {
        self.missed > MANY
    }
}

/// Why a due time is not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skip {
    /// It is older than `startingDeadlineSeconds`.
    TooLate,
    /// The previous run is active, and the policy is `Forbid`.
    StillRunning,
    /// `maxActiveJobs` runs are active.
    TooManyActive,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// No time is due.
    Nothing,
    /// Start the run of this time. With [`Concurrency::Replace`], end the active ones first.
    Start(Due),
    /// Do not start this time, and store it as skipped.
    Skip(Due, Skip),
}

/// A check whether a due time must be skipped.
type Check = fn(&Situation<'_>, Due) -> bool;

/// All checks. The first one that holds is the reported reason.
const CHECKS: [(Skip, Check); 3] =
    [(Skip::TooLate, is_too_late), (Skip::StillRunning, is_forbidden), (Skip::TooManyActive, has_too_many)];

fn is_too_late(it: &Situation<'_>, due: Due) -> bool {
    it.starting_deadline.is_some_and(|deadline| {
        let deadline = Duration::from_secs(deadline.max(SHORTEST_DEADLINE));
        // A deadline beyond the range of `Timestamp` never ends.
        it.start_of(due.time).checked_add(deadline).is_ok_and(|latest| latest < it.now)
    })
}

fn is_forbidden(it: &Situation<'_>, _: Due) -> bool {
    it.concurrency == Concurrency::Forbid && it.active > 0
}

fn has_too_many(it: &Situation<'_>, _: Due) -> bool {
    it.concurrency == Concurrency::Allow && it.active >= it.max_active
}

impl<'a> Situation<'a> {
    /// Returns where the grid of `@every` begins: at the latest time that was started or skipped, so that restarts, edits and
    /// pauses do not move the grid.
    pub fn base(&self) -> Timestamp {
        self.last.unwrap_or(self.anchor)
    }

    /// Returns the times of the schedule.
    pub fn times(&self) -> Times<'a> {
        self.schedule.times(self.zone, self.base())
    }

    /// Returns the end of the settled times, which are decided on or lie before the anchor.
    fn settled(&self) -> Timestamp {
        self.last.map_or(self.anchor, |last| last.max(self.anchor))
    }

    /// Returns when the run of this time starts: at this time, or later by its jitter.
    pub fn start_of(&self, time: Timestamp) -> Timestamp {
        if self.jitter.longest == 0 {
            return time;
        }
        time.saturating_add(self.jitter.delay(time, self.times().after(time))).unwrap_or(time)
    }

    /// Returns the newest time that is not settled and whose jitter has passed; `None` if there is none or the schedule is held.
    pub fn due(&self) -> Option<Due> {
        let newest = self.times().until(self.now)?;
        let time = if self.start_of(newest) <= self.now { newest } else { self.before(newest)? };
        if self.held || time <= self.settled() {
            return None;
        }
        Some(Due { time, missed: self.times().count(self.settled(), time).saturating_sub(1) })
    }

    /// Returns the last time before this one.
    fn before(&self, time: Timestamp) -> Option<Timestamp> {
        self.times().until(time.checked_sub(SignedDuration::from_secs(1)).ok()?)
    }

    /// Decides what to do now.
    pub fn decide(&self) -> Decision {
        let Some(due) = self.due() else { return Decision::Nothing };
        match CHECKS.iter().find(|(_, holds)| holds(self, due)) {
            Some((reason, _)) => Decision::Skip(due, *reason),
            None => Decision::Start(due),
        }
    }

    /// Returns when the next run starts, for the status. It is after now, and its time is after all settled times, which may lie in
    /// the future if the clock has gone back. `None` if the schedule is held or never fires.
    pub fn next(&self) -> Option<Timestamp> {
        if self.held {
            return None;
        }
        let waits = |time: &Timestamp| *time > self.settled() && self.start_of(*time) > self.now;
        let delayed = self.times().until(self.now).filter(waits);
        Some(self.start_of(delayed.or_else(|| self.times().after(self.now.max(self.settled())))?))
    }

    /// Returns how long to wait until the next decision: until just after the next start, but at most an hour.
    pub fn wait(&self) -> Option<Duration> {
        let wait = self.next()?.duration_since(self.now).unsigned_abs();
        Some((wait + PADDING).min(LONGEST_WAIT))
    }
}
