//! One leader among replicas, by a Lease: whoever leads knows when it ends, even if nobody can tell.
//!
//! ```ignore
//! let elector = Elector::new(client, Config::new("operators", "controller-manager.operators"))?;
//! let health = elector.health(); // for the liveness probe
//! let ended = elector
//!     .run(stop.clone(), async |leadership| {
//!         work_until(leadership.lost(), stop.cancelled()).await
//!         // … each write asks `leadership.is_alive()` first.
//!     })
//!     .await; // The lease was released after the work had ended, not before.
//! ```
//!
//! Reading order: [`Config`] says how long things take, [`Leadership`] is what a leader holds, [`Elector`] runs the
//! election. Inside, `core` is the whole behaviour as a state machine without clock, network or waiting, `lease` is what
//! is written, `requests` how, and `elector` moves answers, events and time between them.

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
pub use observer::{Loss, Observer};
pub use requests::client;
