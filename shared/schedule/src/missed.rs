//! From what is remembered and the clock to a decision: nothing, start, or skip and why.
//!
//! Values in, a value out. Each time is decided on at most once, because the caller remembers every time that was started or
//! skipped and gives the latest as [`Situation::last`]. Of times that passed while nobody looked, only the newest counts.

use std::time::Duration;

use jiff::Timestamp;
use xxhash_rust::xxh3::Xxh3Default;

use crate::schedule::{Schedule, Times};
use crate::zone::Zone;

/// Longer sleeps are cut, so that changed clocks and suspended machines heal.
const LONGEST_WAIT: Duration = Duration::from_hours(1);
/// Whoever wakes up must find the run due.
const PADDING: Duration = Duration::from_millis(100);
/// A deadline below is too short for anybody to be in time.
const SHORTEST_DEADLINE: u64 = 10;
/// More times than these skipped at once are worth a warning.
const MANY: u64 = 100;

/// Since when a schedule has been as it is: nothing before is ever made up for.
///
/// It is memory, and belongs into the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// Of all that starts a new life when it changes.
    pub hash: String,
    /// Times after this count.
    pub since: Timestamp,
}

impl Anchor {
    /// The anchor now, from the one that is remembered. It moves when the text or the zone changes, and when the schedule
    /// begins to run again after it was held (suspended, or without replicas): what passed before does not fire.
    /// With nothing remembered it is the creation.
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

/// Whether it is held is part of it, so the end of a pause is an edit like any other, and is seen even after a restart.
fn hash(text: &str, zone: &Zone, held: bool) -> String {
    let mut hasher = Xxh3Default::new();
    for part in [text, zone.name(), if held { "held" } else { "" }] {
        hasher.update(part.as_bytes());
        hasher.update(&[0xff]);
    }
    format!("{:016x}", hasher.digest())
}

/// What happens while the previous run goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concurrency {
    /// Both run.
    Allow,
    /// The new one is skipped.
    Forbid,
    /// The old one is ended first.
    Replace,
}

/// All that a decision depends on.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The schedule.
    pub schedule: &'a Schedule,
    /// The clocks that it goes by.
    pub zone: &'a Zone,
    /// The clock.
    pub now: Timestamp,
    /// [`Anchor::since`].
    pub anchor: Timestamp,
    /// The latest time that was started or skipped.
    pub last: Option<Timestamp>,
    /// Suspended, or nothing to start: no time is due.
    pub held: bool,
    /// `startingDeadlineSeconds`.
    pub starting_deadline: Option<u64>,
    /// `concurrencyPolicy`.
    pub concurrency: Concurrency,
    /// Runs that go on.
    pub active: u32,
    /// `maxActiveJobs`, which stops [`Concurrency::Allow`].
    pub max_active: u32,
}

/// The newest time that passed since the last decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// Its time.
    pub time: Timestamp,
    /// How many older ones there were that are never started.
    pub missed: u64,
}

impl Due {
    /// Whether so many were missed that somebody should know.
    pub fn has_missed_many(&self) -> bool {
        self.missed > MANY
    }
}

/// Why a time that is due is not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skip {
    /// It is older than `startingDeadlineSeconds`.
    TooLate,
    /// The previous run goes on and `Forbid` holds.
    StillRunning,
    /// `maxActiveJobs` are running.
    TooManyActive,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// No time is due.
    Nothing,
    /// Start the run of this time; for [`Concurrency::Replace`] end the active ones first.
    Start(Due),
    /// Remember this time as skipped.
    Skip(Due, Skip),
}

/// A reason to skip a time that is due.
type Check = fn(&Situation<'_>, Due) -> bool;

/// In the order in which they are asked; the first that holds is told.
const CHECKS: [(Skip, Check); 3] =
    [(Skip::TooLate, is_too_late), (Skip::StillRunning, is_forbidden), (Skip::TooManyActive, has_too_many)];

fn is_too_late(it: &Situation<'_>, due: Due) -> bool {
    it.starting_deadline.is_some_and(|deadline| {
        let deadline = Duration::from_secs(deadline.max(SHORTEST_DEADLINE));
        // A deadline beyond the end of time is none.
        due.time.checked_add(deadline).is_ok_and(|latest| latest < it.now)
    })
}

fn is_forbidden(it: &Situation<'_>, _: Due) -> bool {
    it.concurrency == Concurrency::Forbid && it.active > 0
}

fn has_too_many(it: &Situation<'_>, _: Due) -> bool {
    it.concurrency == Concurrency::Allow && it.active >= it.max_active
}

impl<'a> Situation<'a> {
    /// Where the grid of `@every` begins: at the last run, so that restarts, edits of the period and pauses keep it.
    pub fn base(&self) -> Timestamp {
        self.last.unwrap_or(self.anchor)
    }

    /// The times that this is about.
    pub fn times(&self) -> Times<'a> {
        self.schedule.times(self.zone, self.base())
    }

    /// Times until here are settled: decided on, or from before this schedule.
    fn settled(&self) -> Timestamp {
        self.last.map_or(self.anchor, |last| last.max(self.anchor))
    }

    /// The newest time that is not settled, if there is one and nothing holds the schedule.
    pub fn due(&self) -> Option<Due> {
        let time = self.times().until(self.now).filter(|time| *time > self.settled() && !self.held)?;
        Some(Due { time, missed: self.times().count(self.settled(), time).saturating_sub(1) })
    }

    /// What to do now.
    pub fn decide(&self) -> Decision {
        let Some(due) = self.due() else { return Decision::Nothing };
        match CHECKS.iter().find(|(_, holds)| holds(self, due)) {
            Some((reason, _)) => Decision::Skip(due, *reason),
            None => Decision::Start(due),
        }
    }

    /// The next time that will be due, for people: after now, and after all that is settled, should the clock have gone back.
    /// None when held, and for a schedule that never fires.
    pub fn next(&self) -> Option<Timestamp> {
        self.times().after(self.now.max(self.settled())).filter(|_| !self.held)
    }

    /// How long to wait before this is asked again: until the next time and a little more, but an hour at most.
    pub fn wait(&self) -> Option<Duration> {
        let wait = self.next()?.duration_since(self.now).unsigned_abs();
        Some((wait + PADDING).min(LONGEST_WAIT))
    }
}
