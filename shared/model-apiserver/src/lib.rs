//! A model of the Kubernetes API server in memory, for tests that enumerate crashes and faults.
//!
//! A [`Model`] gives [clients](Model::client_named) of `kube` that talk to it, what is [stored](Model::objects) and what
//! was [asked](Model::requests); [`Faults`] say what goes wrong. The README has an example.
//!
//! Reading order: `service` takes a request and what goes wrong with it, `request` reads it, `route` says who handles
//! it. `write`, `patch`, `delete`, `read` and `scale` are the verbs, over `state`, through `admission`; `watch` follows it; `gc` tidies it.
//! Who owns which field is decided in `managed`, over `typed`, `fields` and `shape`. `kind`, `builtin`, `defaults` and
//! `schema` are what is known of kinds; `validate` and `rules` are what a custom resource may be.

mod admission;
mod bell;
mod builtin;
mod defaults;
mod delete;
#[cfg(test)]
mod example;
mod faults;
mod fields;
mod gc;
mod kind;
mod log;
mod managed;
mod model;
mod patch;
mod quantity;
mod read;
mod refusal;
mod request;
mod route;
mod rules;
mod scale;
mod schema;
mod selector;
mod service;
mod shape;
mod state;
#[cfg(test)]
mod tests;
mod typed;
mod validate;
mod watch;
mod write;

pub use self::faults::{Faults, NoFaults, Planned, Signalled, signature};
pub use self::gc::Collecting;
pub use self::kind::Kind;
pub use self::log::Entry;
pub use self::model::Model;
pub use self::request::{RequestInfo, Verb};
pub use self::service::ModelService;
pub use self::state::{Change, Snapshot};
