//! Problems: what is wrong with an object. A kind of problem says everything that the runtime must know of it, so an operator
//! defines its own kinds, and no list of all kinds exists.

/// A kind of problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProblemKind {
    /// A `CamelCase` word, part of the API: the reason of the conditions.
    pub reason: &'static str,
    /// Which of several problems the conditions show: that of the lowest rank. A cause has a lower rank than its effects.
    pub rank: u8,
    /// The reason of the warning event that the runtime emits when such a problem appears; `None` for no event.
    pub event: Option<&'static str>,
    /// Whether such a problem can go away without a change of the object. If not, the object is `Stalled` at once.
    pub can_pass: bool,
    /// Whether such a problem makes the object `Stalled` if it lasts. If not, it tells of a result, and the operator continues its
    /// work on the object.
    pub stalls: bool,
}

impl ProblemKind {
    /// The operator's own validation refuses the spec.
    pub const INVALID_SPEC: Self = Self::invalid("InvalidSpec");
    /// An object that is not ours has the name of a child.
    pub const RESOURCE_CONFLICT: Self = Self::new("ResourceConflict", 10).with_event("ErrResourceExists");
    /// RBAC forbids a request of the operator.
    pub const FORBIDDEN: Self = Self::new("Forbidden", 20).with_event("ReconcileError");
    /// A quota forbids to create an object.
    pub const QUOTA_EXCEEDED: Self = Self::new("QuotaExceeded", 30).with_event("ReconcileError");
    /// The API server or an admission webhook refuses a child or its pods.
    pub const CHILD_REJECTED: Self = Self::new("ChildRejected", 40).with_event("ReconcileError");
    /// Another client sets a field of a child again and again.
    pub const FIELDS_CONTESTED: Self = Self::new("FieldsContested", 45).with_event("FieldsContested");
    /// A Secret or `ConfigMap` that the object names does not exist, or lacks a key.
    pub const SECRET_NOT_FOUND: Self = Self::new("SecretNotFound", 50).with_event("SecretNotFound");
    /// The image runs as root, and the security profile forbids that.
    pub const IMAGE_RUNS_AS_ROOT: Self = Self::new("ImageRunsAsRoot", 60).with_event("ImageRunsAsRoot");
    /// A node cannot pull the image.
    pub const IMAGE_PULL_FAILED: Self = Self::new("ImagePullFailed", 70).with_event("ImagePullFailed");
    /// A container exits again and again.
    pub const CRASH_LOOPING: Self = Self::new("CrashLooping", 80).with_event("CrashLooping");
    /// No node has room for a pod.
    pub const UNSCHEDULABLE: Self = Self::new("Unschedulable", 90).with_event("Unschedulable");
    /// Pods have a node, but do not start.
    pub const PODS_NOT_STARTING: Self = Self::new("PodsNotStarting", 90).with_event("PodsNotStarting");
    /// A rollout makes no progress.
    pub const ROLLOUT_STALLED: Self = Self::new("RolloutStalled", 100).with_event("RolloutStalled");

    /// A kind of problem that can pass and emits no event.
    #[must_use]
    pub const fn new(reason: &'static str, rank: u8) -> Self {
        Self { reason, rank, event: None, can_pass: true, stalls: true }
    }

    /// A part of the spec has no meaning: only a user who changes the object can fix it. Wins over all other problems, and emits
    /// an event of the same reason.
    #[must_use]
    pub const fn invalid(reason: &'static str) -> Self {
        Self { reason, rank: 0, event: Some(reason), can_pass: false, stalls: true }
    }

    /// Fewer pods are ready than wanted. Every other problem explains it better.
    #[must_use]
    pub const fn not_ready(reason: &'static str) -> Self {
        Self::new(reason, u8::MAX)
    }

    /// Emits a warning event of this reason when such a problem appears.
    #[must_use]
    pub const fn with_event(self, event: &'static str) -> Self {
        Self { event: Some(event), ..self }
    }

    /// Makes the object `Degraded`, but never `Stalled`: tools that wait for objects would take a result for an operator that
    /// cannot continue.
    #[must_use]
    pub const fn never_stalls(self) -> Self {
        Self { stalls: false, ..self }
    }
}

/// A fault that a user has to fix, or capacity below the wanted size. Makes `Degraded` true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What kind of problem it is.
    pub kind: ProblemKind,
    /// A sentence for users: what is wrong and, where that is not obvious, what to do.
    pub message: String,
    /// What to do, if the message must not say it. Conditions add it; an event whose text is part of the API does not.
    pub cure: Option<String>,
}

impl Problem {
    /// A problem with its explanation.
    pub fn new(kind: ProblemKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), cure: None }
    }

    /// Adds what to do, for conditions only.
    #[must_use]
    pub fn with_cure(self, cure: impl Into<String>) -> Self {
        Self { cure: Some(cure.into()), ..self }
    }

    /// Returns the sentence for conditions.
    pub fn explanation(&self) -> String {
        let Self { message, cure, .. } = self;
        cure.as_ref().map_or_else(|| message.clone(), |cure| format!("{message}; {cure}"))
    }
}
