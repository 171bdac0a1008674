//! The plan of a world: what happens in it, drawn from a seed or read from a file.

use std::{fmt, fmt::Write as _, str::FromStr, time::Duration};

use fastrand::Rng;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    disturbance::{Act, Disturbance, Phase, milliseconds},
    namespaces::Watched,
    network::Effects,
    subjects::Subjects,
    trace::Line,
};

/// A world before anything has happened in it, and the disturbances that will happen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Draws everything that the other fields leave open.
    pub seed: u64,
    /// The names of the operators that run together in each process, in this order. Empty: all that [`play`](Self::play) gets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operators: Vec<String>,
    /// Number of objects that users work with. Several operators in one process have them in turn.
    pub objects: usize,
    /// Number of processes. Several processes elect a leader.
    #[serde(default = "alone")]
    pub replicas: usize,
    /// Date and time at which the world begins.
    #[serde(default = "new_year")]
    pub starts: Timestamp,
    /// How the operator chooses the namespaces that it watches, if its objects have a namespace.
    #[serde(default)]
    pub watched: Watched,
    /// Time that a pod takes to become ready.
    #[serde(with = "milliseconds")]
    pub pace: Duration,
    /// Whether users also write what [`further_fields`](crate::Subject::further_fields) and
    /// [`further_input`](crate::Subject::further_input) draw. Worlds that were saved before these existed, and scripted ones, stay
    /// without.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_further_fields: bool,
    /// The disturbances, in order of time.
    #[serde(skip)]
    pub disturbances: Vec<Disturbance>,
}

/// The result of a plan.
#[derive(Debug)]
pub struct Played {
    /// What was wrong, if anything.
    pub failure: Option<String>,
    /// Everything that happened.
    pub trace: Vec<Line>,
    /// How often each disturbance had an effect.
    pub(crate) effects: Effects,
    /// How often objects were judged.
    pub(crate) judged: Judged,
    /// The simulated time that has passed.
    pub simulated: Duration,
}

/// How often objects were judged. A world in which none was cannot find a wrong one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Judged {
    /// Of objects whose condition `Ready` was true.
    pub(crate) claims: u64,
    /// Of objects at the end of the world, three times each.
    pub(crate) ends: u64,
}

fn alone() -> usize {
    1
}

fn new_year() -> Timestamp {
    Timestamp::constant(1_767_225_600, 0)
}

/// Changes between summer and winter time in 2026, in seconds since 1970: two in Berlin, and two on Lord Howe Island, where
/// clocks move by half an hour.
const CHANGES_OF_TIME: [i64; 4] = [1_774_746_000, 1_792_890_000, 1_775_314_800, 1_791_041_400];

/// How many operators share a process, in worlds of several. Half of these worlds have two: what goes wrong between more of them
/// mostly goes wrong between two as well.
const TOGETHER: [usize; 6] = [2, 2, 2, 3, 4, usize::MAX];
/// A world of several operators has at most this many objects, or one for each operator: more only make it slower.
const MOST_OBJECTS: usize = 6;

impl Played {
    /// How often this disturbance had an effect.
    pub fn effects_of(&self, act: Act) -> u64 {
        self.effects.iter().filter(|((other, _), _)| *other == act).map(|(_, count)| count).sum()
    }
}

impl Plan {
    /// Returns the plan of a world with one object and one process, in which only these acts happen: each at its second, whatever
    /// the operator does, and with its seed. The seed of the world draws the spec of the object.
    pub fn scripted(seed: u64, acts: &[(u64, Act, u64)]) -> Self {
        let act = |&(second, act, seed): &(u64, Act, u64)| Disturbance {
            at: Duration::from_secs(second),
            phase: Phase::AnyTime,
            act,
            object: 0,
            seed,
        };
        let disturbances = acts.iter().map(act).collect();
        let (starts, watched, pace) = (new_year(), Watched::All, Duration::from_millis(500));
        let (operators, has_further_fields) = (Vec::new(), false);
        Self { seed, operators, objects: 1, replicas: 1, starts, watched, pace, has_further_fields, disturbances }
    }

    /// Draws the plan of a seed, for one operator.
    pub fn of(seed: u64) -> Self {
        Self::draw(seed, &[])
    }

    /// Draws the plan of a seed, in which two or more of these operators run together. If there is only one, this is the same as
    /// [`of`](Self::of).
    pub fn of_some(seed: u64, subjects: impl Into<Subjects>) -> Self {
        Self::draw(seed, &subjects.into().names())
    }

    fn draw(seed: u64, all: &[&str]) -> Self {
        let mut rng = Rng::with_seed(seed);
        let operators = draw_together(all, &mut rng);
        let count = operators.len().max(1);
        let objects = count * rng.usize(1..4).min(MOST_OBJECTS / count).max(1);
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
        let watched = Watched::draw(&mut rng);
        let has_further_fields = true;
        Self { seed, operators, objects, replicas, starts, watched, pace, has_further_fields, disturbances }
    }
}

/// Draws which of these operators share a process, in their order. Returns nothing if there is no choice.
fn draw_together(all: &[&str], rng: &mut Rng) -> Vec<String> {
    if all.len() < 2 {
        return Vec::new();
    }
    let mut places: Vec<usize> = (0..all.len()).collect();
    rng.shuffle(&mut places);
    places.truncate(TOGETHER[rng.usize(..TOGETHER.len())]);
    places.sort_unstable();
    places.into_iter().map(|place| all[place].to_owned()).collect()
}

impl Plan {
    /// Writes the plan as lines of JSON: first the world before anything happens, then one disturbance a line. Unlike a seed,
    /// these lines keep their meaning when new disturbances are added to those that can be drawn.
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

    /// Reads the lines of [`to_lines`](Plan::to_lines).
    fn from_str(lines: &str) -> Result<Self, Self::Err> {
        let mut lines = lines.lines();
        let mut plan: Self = serde_json::from_str(lines.next().unwrap_or_default())?;
        plan.disturbances = lines.map(serde_json::from_str).collect::<Result<_, _>>()?;
        Ok(plan)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operators, objects, replicas, starts, watched, pace, .. } = self;
        if !operators.is_empty() {
            write!(f, "{} in each process, ", operators.join(" and "))?;
        }
        write!(f, "{objects} objects, {replicas} replicas, pods are ready after {pace:?}, from {starts}")?;
        writeln!(f, ", watched namespaces: {watched:?}")?;
        self.disturbances.iter().try_for_each(|disturbance| writeln!(f, "{disturbance}"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn plan_round_trips_through_text() {
        let of_one_and_of_some: [&[&str]; 2] = [&[], &["a", "b", "c"]];
        for all in of_one_and_of_some {
            let plan = Plan::draw(fastrand::u64(..), all);
            assert_eq!(plan.to_lines().parse::<Plan>().expect("a plan"), plan);
        }
    }

    #[test]
    fn worlds_saved_before_there_were_further_fields_stay_without() {
        let old: Plan = r#"{"seed":6,"objects":3,"pace":2000}"#.parse().expect("a plan");
        assert!(!old.has_further_fields && !old.to_lines().contains("further"), "{}", old.to_lines());
        assert!(Plan::of(6).has_further_fields);
    }

    #[test]
    fn plan_names_the_operators_that_share_a_process() {
        let of_one = Plan::draw(7, &["a"]);
        assert!(of_one == Plan::of(7) && !of_one.to_lines().contains("operators"), "{of_one}");
        let of_two = Plan::draw(7, &["a", "b"]);
        assert_eq!(of_two.operators, ["a", "b"]);
        assert!(of_two.to_string().starts_with("a and b in each process, "), "{of_two}");
    }

    #[test]
    fn seeds_draw_all_combinations_of_operators_and_an_object_for_each() {
        let mut drawn = BTreeSet::new();
        for seed in 0..1_000 {
            let Plan { operators, objects, .. } = Plan::draw(seed, &["a", "b", "c", "d", "e"]);
            let each = objects / operators.len();
            let is_right = objects.is_multiple_of(operators.len()) && (1..=3).contains(&each);
            assert!(is_right, "{objects} objects of {operators:?}");
            drawn.insert(operators);
        }
        assert_eq!(drawn.len(), 26, "{drawn:?}");
    }
}
