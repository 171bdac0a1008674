//! Random tests of operators: a simulated cluster with an API server, the other controllers, users, a network and the operator,
//! in one thread and in simulated time.
//!
//! A seed draws what happens: users edit, delete and recreate objects; other clients break children; pods are slow or fail;
//! requests and answers are lost; watches lag, end or expire; the cluster is restored from a backup; the operator is killed. At
//! the end, when the world has come to rest, [`Subject::judge`] checks the cluster, without the operator's code. The same seed and
//! the same build give the same trace, byte by byte, so a seed repeats a failure.
//!
//! Reading order: [`Subject`] is what the world must know about an operator, and [`Subjects`] are the operators of a test: one, or
//! several of which some run together in each process, as in the shipped program. `disturbance` lists what may happen, and `plan`
//! determines when. `world` plays a plan on a `stage` with `users`, `namespaces`, `definitions`, `controllers`, `policies` and
//! `contests`, over the `network`. `checks` and the subject find what is wrong. [`Campaign`] plays many worlds, and `shrink` finds
//! the shortest list of disturbances that still fails.
#![deny(missing_docs)]

mod campaign;
mod checks;
mod contests;
mod controllers;
mod definitions;
mod disturbance;
mod memory;
mod namespaces;
mod network;
mod objects;
pub mod oracle;
mod plan;
mod policies;
mod processes;
mod shrink;
mod stage;
mod stalls;
mod subject;
mod subjects;
mod terms;
#[cfg(test)]
mod toy;
mod trace;
mod users;
mod world;

pub use campaign::{Campaign, replay};
pub use checks::condition;
pub use disturbance::{Act, Disturbance, Phase};
pub use namespaces::Watched;
pub use plan::{Plan, Played};
pub use processes::is_repeatable_in_other_processes;
pub use subject::{Caller, ExternalService, Note, Period, Subject};
pub use subjects::Subjects;
pub use trace::Line;
pub use users::NAMESPACES;

/// The examples of the README, which compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
