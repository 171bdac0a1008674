//! The test kit: an operator's own binary against a **real** API server, and what it did there.
//!
//! A [`World`] is a namespace on the shared test cluster, with the operator's definitions installed, the operator
//! running as a user of its own with exactly the permissions that its code declares, and nobody else in it. Nothing runs
//! pods there: the test plays kubelet and writes the status of children itself.
//!
//! [`InMemory`] is the same operator against a model of the API server in paused time: for what takes days, and for every
//! moment at which it can be killed.
//!
//! [`Races`] makes pairs of changes a few milliseconds apart and counts those that are not acted on.
//!
//! ```ignore
//! let Some(world) = World::start(&MemcachedOperator, env!("CARGO_BIN_EXE_memcached-operator")).await else { return };
//! world.apply(SAMPLE).await;
//! world.until("the Deployment exists", async || world.get::<Deployment>("memcached-sample").await).await;
//! ```

#![expect(clippy::missing_panics_doc, reason = "a test kit tells by panicking")]

mod audit;
mod campaign;
mod clock;
mod drain;
mod end_state;
mod in_memory;
mod interference;
mod play;
mod process;
mod proxied;
mod races;
mod seed;
mod world;

pub use audit::Requests;
pub use campaign::{Campaign, Life, Subject};
pub use end_state::EndState;
pub use in_memory::{InMemory, check};
pub use interference::{Story, interfere};
pub use play::{Ours, condition, contains};
pub use process::Process;
pub use proxied::Proxied;
pub use races::{Missed, Raced, Races};
pub use seed::seed;
pub use world::{Namespaced, World, run_id};
