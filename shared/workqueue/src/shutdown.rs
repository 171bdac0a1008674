//! The two ways to shut a queue down.

/// What a shutdown does with ready keys. Either way it drops delayed keys, and ignores later adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// Hands them out first.
    Drain,
    /// Drops them.
    Drop,
}
