//! What a worker reports about its work on a key.

use std::time::Duration;

/// How the work on a key ended.
///
/// | Outcome | comes back | failures in a row |
/// |---|---|---|
/// | `Success` | when it is added | 0 |
/// | `RequeueAfter(d)` | after `d` | 0 |
/// | `Failure { base, latest }` | after its back-off, which begins with `base`, or after `latest` if that is earlier | one more, unless this run cut a wait short |
/// | `NotBefore(d)` | after `d`, whatever adds it | as before |
/// | `WaitForChange` | when it is added | 0 |
///
/// A key that was added during the work also comes back for that reason; the earlier time wins, except after `NotBefore`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done.
    Success,
    /// Done, and comes back after this time. Zero means at once, behind the others of its priority.
    RequeueAfter(Duration),
    /// Failed, and comes back after the key's back-off. [`Outcome::FAILURE`] is the one without special waits.
    ///
    /// A run that began before the back-off was over, because the key was added meanwhile, does not increase the back-off, and
    /// the due time of the next try does not change. Otherwise a burst of unrelated changes to a failing key would raise its
    /// back-off to the maximum within a second.
    Failure {
        /// The first wait of the back-off, instead of the queue's. For an outside system that needs longer waits.
        base: Option<Duration>,
        /// The key comes back after this time if that is earlier than its back-off. For work that failed in part, while another
        /// part has a fixed time. Such a run does not increase the back-off either.
        latest: Option<Duration>,
    },
    /// Failed, and comes back after this time, because the refusal named it (`Retry-After`). Adding the key, before the work
    /// ended or after, does not bring it back earlier.
    NotBefore(Duration),
    /// Failed in a way that a retry cannot fix; comes back when it is added.
    WaitForChange,
}

impl Outcome {
    /// Failed, and comes back after the queue's back-off.
    pub const FAILURE: Self = Self::Failure { base: None, latest: None };
}
