//! The test kit: runs an operator's own binary against a **real** API server, and checks what it did.
//!
//! A [`World`] is a namespace on the shared test cluster. The operator's CRDs are installed, and the operator is the only client
//! beside the test. It runs as its own user, with exactly the permissions that its code declares. No kubelet runs pods there; the
//! test plays the kubelet and writes the status of children itself.
//!
//! [`InMemory`] runs the same operator against a model of the API server in simulated time: for tests that take days, and for a
//! kill at every possible moment.
//!
//! [`survive_any_spec`] gives the operator specs that its schema allows, whether or not they make sense;
//! [`survive_older_schema`] gives it specs from the time before the schema became stricter.
//!
//! [`two_releases`] runs an operator twice over the same objects, as by mistake.
//!
//! [`Races`] makes pairs of changes a few milliseconds apart, and counts the changes to which the operator does not react.
//!
//! ```ignore
//! let Some(world) = World::start(&MemcachedOperator, env!("CARGO_BIN_EXE_memcached-operator")).await else { return };
//! world.apply(SAMPLE).await;
//! world.until("the Deployment exists", async || world.get::<Deployment>("memcached-sample").await).await;
//! ```
#![deny(missing_docs)]
#![expect(clippy::missing_panics_doc, reason = "a test kit reports failures by panicking")]

mod any_spec;
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
mod two_releases;
mod world;

pub use any_spec::{draw::value as drawn_value, survive_any_spec, survive_older_schema};
pub use audit::{FOR_ADOPTION, PAST_THE_CACHE, Requests};
pub use campaign::{Campaign, Life, Subject};
pub use end_state::EndState;
pub use in_memory::{InMemory, check};
pub use interference::{Story, interfere};
pub use play::{Ours, condition, contains};
pub use process::Process;
pub use proxied::Proxied;
pub use races::{Missed, Raced, Races};
pub use seed::seed;
pub use two_releases::two_releases;
pub use world::{Namespaced, World, run_id};

/// The examples of the README, which compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
