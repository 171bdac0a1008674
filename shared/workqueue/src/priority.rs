//! The urgency of a key.

/// The urgency of a key; the higher number goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(pub i32);

impl Priority {
    /// For an object that has just changed.
    pub const LIVE: Self = Self(0);
    /// For a reconcile without a change: start-up, resync.
    pub const LOW: Self = Self(-100);
}
