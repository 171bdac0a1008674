//! A simulated world for operators: an API server, the other controllers of a cluster, users, a network, and an operator among
//! them, in one thread and in simulated time.
//!
//! What happens is drawn from a seed: users edit, delete and create again; other clients break children; pods are slow or
//! fail; requests and answers are lost; watches lag behind, end or expire; the cluster is restored from a backup; the operator
//! is killed. At the end, when all has come to rest, a judge that knows only the specification looks at the cluster. The same
//! seed and the same build give the same trace, byte by byte, so a failure is repeated from its number.
//!
//! Reading order: [`Subject`] is what the world must know of an operator; `disturbance` is what may happen, `plan` when; `world` lets it
//! happen, on a `stage` with `users` and `controllers`, and in the `network`; `checks` and the subject say what is wrong; [`Campaign`] plays many
//! worlds, and `shrink` finds the shortest list of disturbances that still fails.

mod campaign;
mod checks;
mod controllers;
mod disturbance;
mod memory;
mod network;
pub mod oracle;
mod plan;
mod shrink;
mod stage;
mod subject;
mod trace;
mod users;
mod world;

pub use campaign::{Campaign, replay};
pub use checks::condition;
pub use disturbance::{Act, Disturbance, Phase};
pub use plan::{Plan, Played};
pub use subject::{Note, Outside, Period, Subject};
pub use trace::Line;
