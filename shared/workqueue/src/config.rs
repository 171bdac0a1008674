//! The settings of a queue.

use std::sync::Arc;

use crate::backoff::Backoff;
use crate::metrics::Metrics;

/// The settings of a queue.
#[derive(Clone)]
pub struct Config {
    /// The back-off of failing keys.
    pub backoff: Backoff,
    /// How many times in a row other keys, more urgent or of other flows, may overtake the oldest ready key. `u32::MAX` lets it
    /// starve; 0 turns priorities and flows off.
    pub patience: u32,
    /// Makes the jitter repeatable.
    pub seed: Option<u64>,
    /// The observer of the queue's events.
    pub metrics: Arc<dyn Metrics>,
}

impl Default for Config {
    /// Back-off from 5 ms to 5 min, at least one hand-out in ten for the oldest key, no observer.
    fn default() -> Self {
        Self { backoff: Backoff::default(), patience: 9, seed: None, metrics: Arc::new(()) }
    }
}
