//! Leader election among replicas, by a Lease. The leader's token expires by the local clock, even if nothing can reach it.
//!
//! ```ignore
//! let elector = Elector::new(client, Config::new("operators", "controller-manager.operators"))?;
//! let health = elector.health(); // for the liveness probe
//! let ended = elector
//!     .run(stop.clone(), async |leadership| {
//!         work_until(leadership.lost(), stop.cancelled()).await
//!         // … each write checks `leadership.is_alive()` first.
//!     })
//!     .await; // The work has ended, and then the lease was released.
//! ```
//!
//! Reading order: [`Config`] holds the durations, [`Leadership`] is the leader's token, [`Elector`] runs the election. Inside,
//! `core` is the whole behaviour, as a state machine without clock, network or waiting. `lease` builds the Lease objects,
//! `requests` sends them, and `elector` moves answers, events and time between these parts.
#![deny(missing_docs)]

mod clock;
mod config;
mod core;
mod elector;
mod health;
mod leadership;
mod lease;
mod observer;
mod requests;
#[cfg(test)]
mod tests;

pub use clock::{BootClock, Clock};
pub use config::{Config, ConfigError};
pub use elector::{Elector, Ended, State};
pub use health::{Health, Stuck};
pub use leadership::{Epoch, Leadership};
pub use observer::{Observer, StopReason};
pub use requests::client;

/// The examples of the README, which compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
