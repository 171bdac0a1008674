//! What happens to a world.

use std::sync::Arc;

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use super::Phase;
use crate::subject::Subject;

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
    /// A user removes the label by which the operator selects the namespace of the object, for some minutes.
    UnlabelNamespace,
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
    /// The provider of a service outside the cluster decides about what an object has there: an airline rejects a booking, for
    /// instance.
    ExternalDecision,
    /// A pod is evicted.
    Evict,
    /// A pod is not ready for a while.
    PodFails,
    /// New pods take long to become ready, for a while.
    PodsAreSlow,
    /// New pods do not start for a while: their image cannot be pulled, they crash, or no node has room for them. Sometimes that
    /// lasts longer than a rollout may make no progress.
    PodsDoNotStart,
    /// An admission policy labels every child that a client writes, for a while.
    Policy,
    /// An admission policy rewrites the children that a client writes, for a while. It also rewrites fields that the operator sets.
    RewritingPolicy,
    /// Another controller sets a field of a child each time that it finds another value, for ten minutes. The operator sets the
    /// same field.
    Contest,
    /// The operator cannot create objects of one kind for a while: their quota is used up.
    Quota,
    /// The API server refuses requests for a while.
    Refusals,
    /// A load balancer before the API server refuses requests for a while: with an HTML page or an empty body, and sometimes with
    /// `Retry-After`.
    LoadBalancerRefuses,
    /// Requests are lost for a while, before the API server handles them.
    LostRequests,
    /// Writes arrive late at the API server, for a while: the operator has given them up, and may have sent others, crashed or lost
    /// the leadership since.
    LateRequests,
    /// Answers are lost for a while, after the API server has handled the requests.
    LostAnswers,
    /// Requests or their answers are lost for a while, and the connections stay open: the operator has to give the requests up.
    SilentRequests,
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
    /// Answers and watch events break off in the middle, for a while.
    TruncatedAnswers,
    /// Answers and watch events arrive in small pieces, with pauses between them, for a while.
    TricklingAnswers,
    /// For a while, watches of one kind fall silent at an event: they send nothing more, and do not end either. The operator has to
    /// give them up.
    SilentWatches,
    /// For a while, the API server gets writes twice, and watches deliver events twice, some of them in one line.
    Repetitions,
    /// The API server refuses writes with a conflict, for a while.
    Conflicts,
    /// The operator may not list and watch one kind, for a while.
    Forbidden,
    /// RBAC, a webhook, an admission policy or Pod Security refuses all writes of one kind of children, for a while.
    Denied,
    /// Reads and watch events of the lease lag, for a while.
    LateLease,
    /// An administrator takes a backup of the cluster.
    Backup,
    /// An administrator restores the cluster from the last backup.
    Restore,
    /// The cluster loses everything that it stores. After a while, the CRD and the namespaces are back.
    LoseAll,
    /// A process of the operator crashes, and starts again.
    Crash,
    /// The same, but at any request of the operator: also when it lists or watches, tells an Event, or renews its lease.
    CrashAnywhere,
    /// A process of the operator stops as it does when Kubernetes ends it, and starts again.
    Stop,
    /// The clocks of all machines jump, forwards or back.
    ClockJumps,
}

impl Act {
    /// All acts.
    pub const ALL: [Self; 64] = [
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
        Self::UnlabelNamespace,
        Self::DeleteDefinition,
        Self::DamageChild,
        Self::SeizeChild,
        Self::DecorateChild,
        Self::DeleteChild,
        Self::NameTaken,
        Self::NameFreed,
        Self::ClearManagedFields,
        Self::ExternalService,
        Self::ExternalDecision,
        Self::Evict,
        Self::PodFails,
        Self::PodsAreSlow,
        Self::PodsDoNotStart,
        Self::Policy,
        Self::RewritingPolicy,
        Self::Contest,
        Self::Quota,
        Self::Refusals,
        Self::LoadBalancerRefuses,
        Self::LostRequests,
        Self::LateRequests,
        Self::LostAnswers,
        Self::SilentRequests,
        Self::Isolation,
        Self::SlowRequests,
        Self::LateEvents,
        Self::WatchesEnd,
        Self::WatchesExpire,
        Self::TruncatedAnswers,
        Self::TricklingAnswers,
        Self::SilentWatches,
        Self::Repetitions,
        Self::Conflicts,
        Self::Forbidden,
        Self::Denied,
        Self::LateLease,
        Self::Backup,
        Self::Restore,
        Self::LoseAll,
        Self::Crash,
        Self::CrashAnywhere,
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
            | Self::Contest
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
            // Operators revert no field of other children, such as Jobs, whose templates are immutable.
            Self::Contest | Self::RolloutRestart | Self::PodFails => has("deployments.apps"),
            Self::Request => subject.request(&mut Rng::with_seed(0)).is_some(),
            Self::Input => subject.further_input(&mut Rng::with_seed(0)).is_some(),
            Self::Import => {
                let outside = subject.outside(0, Arc::new(drop));
                outside.is_some_and(|outside| outside.import("", "", &mut Rng::with_seed(0)).is_some())
            }
            Self::DeleteNamespace | Self::UnlabelNamespace => !is_cluster_scoped(subject),
            Self::PodsAreSlow | Self::PodsDoNotStart | Self::Evict => has("deployments.apps") || has("jobs.batch"),
            Self::NameFreed | Self::Policy | Self::RewritingPolicy | Self::Quota | Self::Denied => {
                !subject.children().is_empty()
            }
            _ if self.is_about_child() => !subject.children().is_empty(),
            Self::ExternalService => subject.outside(0, Arc::new(drop)).is_some(),
            Self::ExternalDecision => subject.outside(0, Arc::new(drop)).is_some_and(|outside| outside.decides()),
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
    pub(super) fn lasts(self) -> bool {
        let is_of_cluster = matches!(
            self,
            Self::Autoscale
                | Self::PodFails
                | Self::PodsAreSlow
                | Self::PodsDoNotStart
                | Self::Policy
                | Self::RewritingPolicy
                | Self::Contest
        );
        is_of_cluster || self.is_of_network()
    }

    /// Whether requests or watch events meet it, so that the network counts its effects.
    pub(crate) fn is_of_network(self) -> bool {
        matches!(
            self,
            Self::Quota
                | Self::Refusals
                | Self::LoadBalancerRefuses
                | Self::LostRequests
                | Self::LateRequests
                | Self::LostAnswers
                | Self::SilentRequests
                | Self::Isolation
                | Self::SlowRequests
                | Self::LateEvents
                | Self::WatchesEnd
                | Self::WatchesExpire
                | Self::TruncatedAnswers
                | Self::TricklingAnswers
                | Self::SilentWatches
                | Self::Repetitions
                | Self::Conflicts
                | Self::Forbidden
                | Self::Denied
                | Self::LateLease
        )
    }

    /// The act that often follows this one: it has no effect without it, or a special effect after it.
    pub(super) fn sequel(self) -> Option<Self> {
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

    pub(super) fn draw(rng: &mut Rng) -> Self {
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
