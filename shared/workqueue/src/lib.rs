//! A priority queue of keys with delays, de-duplication, fairness and per-key back-off.
//!
//! ```ignore
//! let queue = WorkQueue::new(Config::default());
//! queue.add(key, Priority::LIVE);
//! while let Some(item) = queue.get().await {
//!     let outcome = reconcile(item.key()).await;
//!     item.done(outcome);
//! }
//! ```
//!
//! Reading order: [`Outcome`] defines how a key comes back. [`WorkQueue`] is the handle. `core` is the whole behaviour, as a
//! state machine without clock or locks. `core::ready_queue` is the order of hand-out with its ageing. `shared` puts it behind a
//! lock. `parking` decides which sleeping worker to wake, and which one watches the clock.
#![deny(missing_docs)]

mod backoff;
mod config;
mod core;
mod item;
mod metrics;
mod moment;
mod outcome;
mod parking;
mod priority;
mod queue;
mod shared;
mod shutdown;
#[cfg(test)]
mod tests;
mod waiter;

pub use backoff::Backoff;
pub use config::Config;
pub use item::Item;
pub use metrics::{Metrics, Unfinished};
pub use outcome::Outcome;
pub use priority::Priority;
pub use queue::WorkQueue;
pub use shutdown::Shutdown;

/// The examples of the README, which compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
