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
//! state machine without clock or locks. `core::ready_queue` is the order of hand-out with its ageing. `parking` decides which
//! sleeping worker to wake, and which one watches the clock.

mod backoff;
mod core;
mod item;
mod metrics;
mod moment;
mod parking;
mod queue;
#[cfg(test)]
mod tests;

pub use backoff::Backoff;
pub use item::{Item, Outcome};
pub use metrics::{Metrics, Unfinished};
pub use queue::{Config, Priority, Shutdown, WorkQueue};
