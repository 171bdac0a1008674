//! Disturbances: everything that acts on a world besides the operator and the controllers, drawn from a seed.

mod act;

use std::{fmt, iter::successors, ops::Range, time::Duration};

use fastrand::Rng;
use serde::{Deserialize, Serialize};

pub use act::Act;
pub(crate) use act::is_cluster_scoped;

/// One act at one moment of a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disturbance {
    /// The earliest simulated time, since the world began.
    #[serde(with = "milliseconds")]
    pub at: Duration,
    /// The moment of the operator's next request.
    pub phase: Phase,
    /// What happens.
    pub act: Act,
    /// The number of the object that it concerns.
    pub object: usize,
    /// Draws the rest, such as the new spec.
    pub seed: u64,
}

/// A moment of a request of the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Phase {
    /// At the given time, whatever the operator does.
    AnyTime,
    /// Before the API server handles the next request.
    BeforeHandling,
    /// After the API server has handled the next request, before it answers.
    BeforeAnswer,
    /// When the API server answers the next request, before watches deliver its change.
    BeforeDelivery,
}

impl Phase {
    /// All moments.
    pub const ALL: [Self; 4] = [Self::AnyTime, Self::BeforeHandling, Self::BeforeAnswer, Self::BeforeDelivery];
}

/// How long a usual disturbance lasts, in milliseconds.
const USUAL: Range<u64> = 1_000..90_000;
/// How long some pods do not start, in milliseconds: longer than a rollout may make no progress.
const OVERDUE: Range<u64> = 660_000..900_000;
/// One of this many times, pods do not start for so long.
const OVERDUE_EVERY: u64 = 4;
/// How long another controller contests a field.
const CONTESTED: Duration = Duration::from_mins(10);
/// One world of this many has a contest that nothing disturbs, so that the world can judge it.
const QUIET_CONTEST_EVERY: u8 = 8;
/// A sequel comes within this time, in milliseconds.
const SEQUEL_MS: u64 = 180_000;
/// The time to a sequel is halved less often than this, so that short times are frequent.
const SEQUEL_HALVINGS: u8 = 8;
/// There are fewer changes of inputs than this at the end of a world.
const LAST_INPUTS: u8 = 8;
/// Time between two of them.
const AFTER_AN_INPUT: Duration = Duration::from_secs(40);
/// Time in which a world comes to rest after a disturbance.
const AT_REST: Duration = Duration::from_mins(4);

impl Disturbance {
    /// Draws the disturbances of a world with this number of objects, in order of time. On average one to eight begin in a
    /// minute, some of them at the same moment.
    pub fn draw(rng: &mut Rng, length: Duration, objects: usize) -> Vec<Self> {
        let (mut at, mut all) = (Duration::from_secs(rng.u64(1..30)), Vec::new());
        let longest = rng.u64(20..120);
        while at < length {
            let act = Act::draw(rng);
            let phase = act.phases()[rng.usize(..act.phases().len())];
            let (object, seed) = (rng.usize(..objects), rng.u64(..));
            let first = Self { at, phase, act, object, seed };
            all.extend(successors(Some(first), |last| last.sequel(rng)));
            if act.is_about_child() && phase != Phase::AnyTime && rng.bool() {
                // The disturbance waits for a write: give the operator a reason to write the child.
                all.push(Self { at, phase: Phase::AnyTime, act: Act::Edit, object, seed: rng.u64(..) });
            }
            if rng.u8(..4) > 0 {
                at += Duration::from_millis(rng.u64(1..longest * 1_000));
            }
        }
        all.retain(|disturbance| disturbance.at < length);
        all.sort_by_key(|disturbance| disturbance.at);
        all.extend(Self::last(rng, length, objects));
        all
    }

    /// Draws what follows this disturbance, if anything: at the same moment or soon, sometimes after minutes. It has the same
    /// seed, so that it concerns the same child.
    fn sequel(&self, rng: &mut Rng) -> Option<Self> {
        let act = self.act.sequel().filter(|_| rng.bool())?;
        if rng.bool() && act.phases().contains(&self.phase) {
            return Some(Self { act, ..*self });
        }
        let later = Duration::from_millis(rng.u64(..SEQUEL_MS) >> rng.u8(..SEQUEL_HALVINGS));
        Some(Self { at: self.at + later, phase: act.phases()[rng.usize(..act.phases().len())], act, ..*self })
    }

    /// Draws the last change of each object, which comes after the world is at rest. A reconcile request comes at the same time,
    /// so that the change meets a write of the status. No later change causes a reconcile of the object, so a change that the
    /// operator misses here stays missed. The same holds for the changes of inputs that follow.
    fn last(rng: &mut Rng, length: Duration, objects: usize) -> Vec<Self> {
        const LAST: [Act; 6] = [Act::Edit, Act::Scale, Act::Label, Act::RequestReconcile, Act::Pause, Act::Resume];
        let mut all = Vec::new();
        // Create missing objects first: the operator can miss no change of an object that does not exist.
        let create = |object| Self { at: length, phase: Phase::AnyTime, act: Act::Create, object, seed: rng.u64(..) };
        all.extend((0..objects).map(create));
        let mut length = length;
        if rng.u8(..QUIET_CONTEST_EVERY) == 0 {
            let (at, object) = (length + AFTER_AN_INPUT, rng.usize(..objects));
            all.push(Self { at, phase: Phase::AnyTime, act: Act::Contest, object, seed: rng.u64(..) });
            length = at + CONTESTED;
        }
        for object in 0..objects {
            let at = length + AT_REST * u32::try_from(object + 1).unwrap_or(1);
            let (act, phase) = (LAST[rng.usize(..LAST.len())], Phase::ALL[rng.usize(1..Phase::ALL.len())]);
            all.push(Self { at, phase, act, object, seed: rng.u64(..) });
            all.push(Self { at, phase: Phase::AnyTime, act: Act::RequestReconcile, object, seed: rng.u64(..) });
        }
        // Nothing else wakes the objects that read these inputs.
        let mut at = length + AT_REST * u32::try_from(objects + 1).unwrap_or(1);
        for _ in 0..rng.u8(..LAST_INPUTS) {
            let (object, seed) = (rng.usize(..objects), rng.u64(..));
            all.push(Self { at, phase: Phase::AnyTime, act: Act::Input, object, seed });
            at += AFTER_AN_INPUT;
        }
        if rng.u8(..4) == 0 {
            all.push(Self { at, phase: Phase::AnyTime, act: Act::ClockJumps, object: 0, seed: rng.u64(..) });
        }
        all
    }

    /// How long it lasts, if it lasts for a while.
    pub(crate) fn lasts(&self) -> Duration {
        let range = match self.act {
            Act::Contest => return CONTESTED,
            Act::PodsDoNotStart if self.seed.is_multiple_of(OVERDUE_EVERY) => OVERDUE,
            _ => USUAL,
        };
        Duration::from_millis(Rng::with_seed(self.seed).u64(range))
    }
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.at.as_secs();
        write!(f, "{:02}:{:02}.{:03}  ", seconds / 60, seconds % 60, self.at.subsec_millis())?;
        write!(f, "{:?}", self.act)?;
        if self.act.lasts() {
            write!(f, " for {:.1?}", self.lasts())?;
        }
        write!(f, ", object {}", self.object)?;
        match self.phase {
            Phase::AnyTime => Ok(()),
            Phase::BeforeHandling => f.write_str(", before the next request is handled"),
            Phase::BeforeAnswer => f.write_str(", before the next request is answered"),
            Phase::BeforeDelivery => f.write_str(", when the next request is answered"),
        }
    }
}

/// Reads and writes a duration as milliseconds.
pub(crate) mod milliseconds {
    use std::time::Duration;

    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    pub(crate) fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        time.as_millis().serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}
