//! What happens in a world: drawn from a seed, or read from a file.

use std::{fmt, fmt::Write as _, str::FromStr, time::Duration};

use fastrand::Rng;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    disturbance::{Disturbance, milliseconds},
    network::Effects,
    subject::Subject,
    trace::Line,
    world,
};

/// What a seed makes: a world before anything has happened in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Draws everything that the plan leaves open.
    pub seed: u64,
    /// How many objects users work with.
    pub objects: usize,
    /// How many processes of the operator there are; of several, one is elected to work.
    #[serde(default = "alone")]
    pub replicas: usize,
    /// The time of day when it begins.
    #[serde(default = "new_year")]
    pub starts: Timestamp,
    /// How long a pod takes to become ready.
    #[serde(with = "milliseconds")]
    pub pace: Duration,
    /// What happens, in order of time.
    #[serde(skip)]
    pub disturbances: Vec<Disturbance>,
}

/// What came of a plan.
#[derive(Debug)]
pub struct Played {
    /// What was wrong, if anything was.
    pub failure: Option<String>,
    /// Everything that happened.
    pub trace: Vec<Line>,
    /// How often each disturbance had an effect.
    pub(crate) effects: Effects,
    /// How much simulated time has passed.
    pub simulated: Duration,
}

fn alone() -> usize {
    1
}

fn new_year() -> Timestamp {
    Timestamp::constant(1_767_225_600, 0)
}

/// When clocks are put forward or back in 2026: in Berlin, and on Lord Howe Island by half an hour.
const CHANGES_OF_TIME: [i64; 4] = [1_774_746_000, 1_792_890_000, 1_775_314_800, 1_791_041_400];

impl Plan {
    /// The plan of a seed.
    pub fn of(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let objects = rng.usize(1..4);
        let pace = Duration::from_millis([0, 500, 2_000, 15_000][rng.usize(..4)]);
        let length = Duration::from_mins(rng.u64(3..30));
        let disturbances = Disturbance::draw(&mut rng, length, objects);
        let replicas = [1, 1, 1, 2, 2, 3][rng.usize(..6)];
        let starts = if rng.u8(..3) > 0 {
            let change = CHANGES_OF_TIME[rng.usize(..CHANGES_OF_TIME.len())];
            Timestamp::from_second(change - rng.i64(0..90 * 60)).unwrap_or_default()
        } else {
            new_year()
        };
        Self { seed, objects, replicas, starts, pace, disturbances }
    }

    /// Plays the world twice.
    ///
    /// # Panics
    ///
    /// When the second trace is not, byte by byte, the first one.
    pub fn is_repeatable(&self, subject: &'static dyn Subject) {
        let (one, other) = (self.play(subject).trace, self.play(subject).trace);
        for (one, other) in one.iter().zip(&other) {
            assert_eq!(one.to_string(), other.to_string(), "seed {}", self.seed);
        }
        assert_eq!(one.len(), other.len(), "seed {}", self.seed);
        assert!(one.len() > 100, "seed {}: {} lines", self.seed, one.len());
    }

    /// Lets it happen, in a runtime of its own whose time is simulated.
    ///
    /// # Panics
    ///
    /// When no runtime can be made.
    pub fn play(&self, subject: &'static dyn Subject) -> Played {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(world::play(self, subject))
    }
}

impl Plan {
    /// The plan as lines of JSON: the world before anything happens, and each disturbance. Unlike the seed, it stays what it is
    /// when disturbances are added to what can be drawn.
    pub fn to_lines(&self) -> String {
        let mut lines = json(self);
        for disturbance in &self.disturbances {
            write!(lines, "\n{}", json(disturbance)).ok();
        }
        lines + "\n"
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

impl FromStr for Plan {
    type Err = serde_json::Error;

    /// Reads what [`to_lines`](Plan::to_lines) has written.
    fn from_str(lines: &str) -> Result<Self, Self::Err> {
        let mut lines = lines.lines();
        let mut plan: Self = serde_json::from_str(lines.next().unwrap_or_default())?;
        plan.disturbances = lines.map(serde_json::from_str).collect::<Result<_, _>>()?;
        Ok(plan)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { objects, replicas, starts, pace, .. } = self;
        writeln!(f, "{objects} objects, {replicas} replicas, pods are ready after {pace:?}, from {starts}")?;
        self.disturbances.iter().try_for_each(|disturbance| writeln!(f, "{disturbance}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_read_as_it_was_written() {
        let plan = Plan::of(fastrand::u64(..));
        assert_eq!(plan.to_lines().parse::<Plan>().expect("a plan"), plan);
    }
}
