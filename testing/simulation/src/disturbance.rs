//! Disturbances: everything that acts on a world besides the operator and the controllers, drawn from a seed.

use std::{fmt, iter::successors, sync::Arc, time::Duration};

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use crate::subject::Subject;

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

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Act {
    /// A user creates the object, if it does not exist.
    Create,
    /// A user applies another whole spec.
    Apply,
    /// A user changes some fields of the spec.
    Edit,
    /// A user sets the size by the scale subresource.
    Scale,
    /// An autoscaler sets the size every fifteen seconds, for a while.
    Autoscale,
    /// A user changes a label.
    Label,
    /// A user changes an annotation.
    Annotate,
    /// A user requests a reconcile.
    RequestReconcile,
    /// A user requests something that happens once, such as a run.
    Request,
    /// A user pauses the object.
    Pause,
    /// A user resumes the object.
    Resume,
    /// A user deletes the object.
    Delete,
    /// A user deletes the object and leaves its children behind.
    Orphan,
    /// A user deletes the object, and creates it again under the same name.
    Replace,
    /// A user removes all finalizers.
    RemoveFinalizers,
    /// A user restarts the pods, as `kubectl rollout restart` does.
    RolloutRestart,
    /// A user creates, changes or deletes an object that the operator only reads, such as a Secret to which specs refer.
    #[serde(alias = "Secret")]
    Input,
    /// A user lets the object adopt or observe something outside the cluster, which the operator may not have made. The user
    /// creates the object if it does not exist.
    Import,
    /// A user deletes the namespace of all objects, and creates it again.
    DeleteNamespace,
    /// A user deletes the CRD of the objects, and installs it again.
    DeleteDefinition,
    /// Another client changes a field that the operator sets in a child.
    DamageChild,
    /// Another client takes over such a field with a forced apply.
    SeizeChild,
    /// Another client adds a label and an annotation to a child, which the operator must leave alone.
    DecorateChild,
    /// Another client deletes a child.
    DeleteChild,
    /// Another client deletes a child, and creates an object of its own under that name.
    NameTaken,
    /// That client deletes the object that it has created.
    NameFreed,
    /// Another client clears the `managedFields` of a child.
    ClearManagedFields,
    /// Something happens outside the cluster, such as an outage of a service.
    ExternalService,
    /// A pod is evicted.
    Evict,
    /// A pod is not ready for a while.
    PodFails,
    /// New pods take long to become ready, for a while.
    PodsAreSlow,
    /// New pods do not start for a while: their image cannot be pulled, they crash, or no node has room for them.
    PodsDoNotStart,
    /// An admission policy labels every child that a client writes, for a while.
    Policy,
    /// The operator cannot create objects of one kind for a while: their quota is used up.
    Quota,
    /// The API server refuses requests for a while.
    Refusals,
    /// Requests are lost for a while, before the API server handles them.
    LostRequests,
    /// Answers are lost for a while, after the API server has handled the requests.
    LostAnswers,
    /// One process of the operator cannot reach the API server for a while.
    Isolation,
    /// Requests take long for a while.
    SlowRequests,
    /// Watches of one kind lag for a while.
    LateEvents,
    /// Watches of one kind end at each event, for a while.
    WatchesEnd,
    /// The API server compacts its history. For a while, each event of one kind's watches becomes an error instead: the resource
    /// version is too old.
    WatchesExpire,
    /// An administrator takes a backup of the cluster.
    Backup,
    /// An administrator restores the cluster from the last backup.
    Restore,
    /// The cluster loses everything that it stores. After a while, the CRD and the namespaces are back.
    LoseAll,
    /// A process of the operator crashes, and starts again.
    Crash,
    /// A process of the operator stops as it does when Kubernetes ends it, and starts again.
    Stop,
    /// The clocks of all machines jump, forwards or back.
    ClockJumps,
}

impl Act {
    /// All acts.
    pub const ALL: [Self; 48] = [
        Self::Create,
        Self::Apply,
        Self::Edit,
        Self::Scale,
        Self::Autoscale,
        Self::Label,
        Self::Annotate,
        Self::RequestReconcile,
        Self::Request,
        Self::Pause,
        Self::Resume,
        Self::Delete,
        Self::Orphan,
        Self::Replace,
        Self::RemoveFinalizers,
        Self::RolloutRestart,
        Self::Input,
        Self::Import,
        Self::DeleteNamespace,
        Self::DeleteDefinition,
        Self::DamageChild,
        Self::SeizeChild,
        Self::DecorateChild,
        Self::DeleteChild,
        Self::NameTaken,
        Self::NameFreed,
        Self::ClearManagedFields,
        Self::ExternalService,
        Self::Evict,
        Self::PodFails,
        Self::PodsAreSlow,
        Self::PodsDoNotStart,
        Self::Policy,
        Self::Quota,
        Self::Refusals,
        Self::LostRequests,
        Self::LostAnswers,
        Self::Isolation,
        Self::SlowRequests,
        Self::LateEvents,
        Self::WatchesEnd,
        Self::WatchesExpire,
        Self::Backup,
        Self::Restore,
        Self::LoseAll,
        Self::Crash,
        Self::Stop,
        Self::ClockJumps,
    ];

    /// How often it is drawn, relative to the others.
    fn weight(self) -> u32 {
        match self {
            Self::Apply | Self::Edit => 8,
            Self::Scale | Self::Import | Self::DamageChild | Self::Crash | Self::LateEvents | Self::ExternalService => {
                4
            }
            Self::Delete
            | Self::Orphan
            | Self::Restore
            | Self::LoseAll
            | Self::DeleteNamespace
            | Self::DeleteDefinition => 1,
            _ => 2,
        }
    }

    /// Whether it can have an effect on this operator at all.
    pub(crate) fn concerns(self, subject: &dyn Subject) -> bool {
        let has = |resource: &str| subject.children().contains(&resource);
        match self {
            Self::Scale | Self::Autoscale => has_scale(subject),
            Self::RemoveFinalizers => subject.has_finalizers(),
            Self::RolloutRestart => has("deployments.apps"),
            Self::Request => subject.request(&mut Rng::with_seed(0)).is_some(),
            Self::Input => subject.input(&mut Rng::with_seed(0)).is_some(),
            Self::Import => {
                let outside = subject.outside(0, Arc::new(drop));
                outside.is_some_and(|outside| outside.import("", "", &mut Rng::with_seed(0)).is_some())
            }
            Self::DeleteNamespace => !is_cluster_scoped(subject),
            Self::PodFails | Self::PodsAreSlow | Self::PodsDoNotStart | Self::Evict => {
                has("deployments.apps") || has("jobs.batch")
            }
            Self::NameFreed | Self::Policy | Self::Quota => !subject.children().is_empty(),
            _ if self.is_about_child() => !subject.children().is_empty(),
            Self::ExternalService => subject.outside(0, Arc::new(drop)).is_some(),
            _ => true,
        }
    }

    /// Whether it concerns one child of an object.
    pub(crate) fn is_about_child(self) -> bool {
        matches!(
            self,
            Self::DamageChild
                | Self::SeizeChild
                | Self::DecorateChild
                | Self::DeleteChild
                | Self::NameTaken
                | Self::ClearManagedFields
        )
    }

    /// The moments at which it can act.
    pub(crate) fn phases(self) -> &'static [Phase] {
        if self.lasts() { &[Phase::AnyTime] } else { &Phase::ALL }
    }

    /// Whether it lasts for a while. Such an act affects many requests, so it does not wait for a moment of one.
    fn lasts(self) -> bool {
        matches!(
            self,
            Self::Autoscale
                | Self::PodFails
                | Self::PodsAreSlow
                | Self::PodsDoNotStart
                | Self::Policy
                | Self::Quota
                | Self::Refusals
                | Self::LostRequests
                | Self::LostAnswers
                | Self::Isolation
                | Self::SlowRequests
                | Self::LateEvents
                | Self::WatchesEnd
                | Self::WatchesExpire
        )
    }

    /// The act that often follows this one: it has no effect without it, or a special effect after it.
    fn sequel(self) -> Option<Self> {
        match self {
            Self::ExternalService => Some(Self::Replace),
            Self::Replace => Some(Self::Delete),
            Self::Delete => Some(Self::Import),
            Self::NameTaken => Some(Self::NameFreed),
            Self::ClearManagedFields => Some(Self::SeizeChild),
            Self::Backup => Some(Self::Restore),
            Self::Pause => Some(Self::Resume),
            _ => None,
        }
    }

    fn draw(rng: &mut Rng) -> Self {
        let total: u32 = Self::ALL.iter().map(|act| act.weight()).sum();
        let mut left = rng.u32(..total);
        for act in Self::ALL {
            match left.checked_sub(act.weight()) {
                Some(rest) => left = rest,
                None => return act,
            }
        }
        Self::Apply
    }
}

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
        Duration::from_millis(Rng::with_seed(self.seed).u64(1_000..90_000))
    }
}

/// Whether the objects of the operator have no namespace.
pub(crate) fn is_cluster_scoped(subject: &dyn Subject) -> bool {
    let mut definitions = subject.operator().crds().into_iter().map(|definition| definition.spec);
    definitions.any(|it| format!("{}.{}", it.names.plural, it.group) == subject.resource() && it.scope == "Cluster")
}

/// Whether the objects have a scale subresource.
fn has_scale(subject: &dyn Subject) -> bool {
    let versions = subject.operator().crds().into_iter().flat_map(|definition| definition.spec.versions);
    versions.filter_map(|version| version.subresources).any(|subresources| subresources.scale.is_some())
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
