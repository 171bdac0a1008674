//! The shared runtime of all operators: a controller-runtime in Rust.
//!
//! An operator declares its controllers ([`Operator::setup`]); a binary passes its operators to [`main`]. From the
//! declarations the runtime derives which informers run, which changes wake an object, and which permissions are needed.
//!
//! ```text
//! API server ──watch──▶ Informer (one per kind, shared) ──▶ Store: views, indexed by owner and label
//!                           │ Delta: what changed
//!                           ▼
//!                       WorkQueue (one per controller): de-duplicates · priority · delay · back-off
//!                           │ one key at a time
//!                           ▼
//! API server ◀──writes── Context ◀── reconcile() × N workers ──▶ Action | Error
//! ```
//!
//! Reading order:
//!
//! 1. [`operator`](Operator): what a binary hosts. [`controller`](Controller): how a controller is declared.
//!    `controller::watches`: which changes of other objects wake its objects. `controller::worker`: how a worker runs one
//!    reconcile and decides when its key comes back.
//! 2. [`context`](Context): what a reconcile may do. `context::read` reads the cache and the API server. `context::apply` makes a
//!    child match its desired state. `context::create` creates a child at most once. `context::primary` writes the
//!    metadata of the reconciled object. `context::status_writer` writes the status.
//! 3. [`conditions`]: how health becomes conditions.
//! 4. The crate `cache`: `decode` (one object), `owned` (whether our fields of an object have the wanted values), `store` (the
//!    objects of one kind), `informer` (keeps the store in step with the API server).
//! 5. `examples`: whole operators of other shapes, each one file: a cluster-scoped kind, children without a view, other objects as
//!    input, messages from outside of the cluster.
//! 6. `assembly` connects controllers, caches and client. `workers` starts and stops the workers. `run` is the life of the
//!    process.
#![deny(missing_docs)]

mod api;
mod assembly;
mod build_info;
mod client;
mod clock;
pub mod conditions;
mod context;
mod controller;
mod crd;
mod election;
mod entry;
mod error;
mod events;
#[doc(hidden)]
pub mod harness;
mod leading;
mod lookup;
mod metrics;
mod namespaces;
mod operator;
mod probes;
mod random;
mod rbac;
mod reverts;
mod run;
mod settings;
mod shared_certificate;
mod shared_token;
mod status;
mod telemetry;
mod wake;
mod webhook_plan;
mod workers;

pub use cache::ObjectKey;
pub use conditions::{External, Finding, Health, Problem, ProblemKind, Report, Verdict};
pub use context::{Context, Creation, JoinAll, SecretValues, Shared};
pub use controller::{
    Action, Controller, ControllerBuilder, DeclaredController, Deletion, Finalize, Objects, Reconcile,
};
pub use crd::{CATEGORY, normalize, printed};
pub use entry::{command, images, main, reference};
pub use error::{Error, Request};
pub use events::{Event, EventType};
/// A condition as it is stored.
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
pub use lookup::{Lookup, NotSynced};
pub use metrics::{Described, FleetMetrics, MetricRegistry, Pods};
pub use namespaces::namespace_selector_permissions;
pub use operator::{
    Manager, Operator, Subcommand, WebhookPermissions, declared_webhooks, leader_election_permissions,
    metrics_permissions, permissions, shared_certificate_permissions, shared_token_permissions, webhook_configurations,
    webhook_permissions,
};
pub use rbac::Permission;
pub use settings::{Settings, duration};
pub use shared_certificate::SharedCertificate;
pub use shared_token::SharedToken;
pub use status::{Primary, StandardStatus, Status};
pub use telemetry::traceparent;
pub use webhooks::{FieldError, Operation, Review, Reviewed, User, ValidationResult, Webhook};
#[doc(hidden)]
pub use webhooks::{Reply, answer as answer_review};
pub use workloads::Fence;

/// The examples of the README, which compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
