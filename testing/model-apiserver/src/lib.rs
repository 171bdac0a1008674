//! An in-memory model of the Kubernetes API server, for tests that enumerate crashes and faults.
//!
//! A [`Model`] provides [clients](Model::client_named) of `kube` that send requests to it, the [stored objects](Model::objects)
//! and the [log of requests](Model::requests). [`Faults`] inject faults. The README has an example.
//!
//! Reading order: `service` receives a request and applies faults, `request` parses it, `route` selects its handler. `write`,
//! `patch`, `delete`, `read` and `scale` implement the verbs on `state`; `admission` changes writes. `watch` streams the changes
//! of `state`, `gc` collects garbage. `managed` decides which manager owns which field, with `typed`, `fields` and `shape`.
//! `kind`, `builtin`, `defaults`, `definition` and `schema` describe the kinds; `validate` and `rules` validate custom resources.
#![deny(missing_docs)]

mod admission;
mod bell;
mod builtin;
mod cause;
mod defaults;
mod definition;
mod delete;
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
mod scale_paths;
mod schema;
mod selector;
mod service;
mod shape;
mod shared;
mod state;
mod step;
#[cfg(test)]
mod tests;
mod typed;
mod validate;
mod watch;
mod write;

pub use self::faults::{Faults, NoFaults, Planned, Signalled, signature};
pub use self::kind::Kind;
pub use self::log::Entry;
pub use self::model::Model;
pub use self::request::{RequestInfo, Verb};
pub use self::service::ModelService;
pub use self::state::{Change, Collecting, Snapshot};

/// The examples of the README, which compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
