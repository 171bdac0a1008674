//! The shared runtime of all operators: a controller-runtime in Rust.
//!
//! An operator declares its controllers ([`Operator::setup`]); a binary passes its operators to [`main`]. From the
//! declarations the runtime derives which informers run, which changes wake an object, and which permissions are needed.
//!
//! ```text
//! API server ──watch──▶ Informer (one per kind, shared) ──▶ Store: views, indexed by owner and label
//!                           │ what changed
//!                           ▼
//!                       WorkQueue (one per controller): de-duplicates · priority · delay · back-off
//!                           │ one key at a time
//!                           ▼
//! API server ◀──writes── Context ◀── reconcile() × N workers ──▶ Action | Error
//! ```
//!
//! Reading order: [`operator`](Operator) (what a binary hosts), [`controller`](Controller) (how a controller is declared, and
//! how its workers run it), [`context`](Context) (what a reconcile may do; `context::apply` is the heart), [`conditions`]
//! (how health becomes status), `owned` (how 16 bytes decide whether a child is in sync), `store` and `informer` (the
//! cache), `run` (the life of the process).

mod api;
mod assembly;
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
mod metrics;
mod operator;
mod probes;
mod random;
mod rbac;
mod run;
mod settings;
mod shared_token;
mod status;
mod telemetry;
mod wake;
mod webhook_plan;
mod workers;

pub use cache::{Namespaced, ObjectKey};
pub use conditions::{External, Finding, Health, Problem, ProblemKind, Report, Verdict};
pub use context::{Context, Creation, JoinAll, SecretValues};
pub use controller::{
    Action, Controller, ControllerBuilder, DeclaredController, Deletion, Finalize, Objects, Reconcile,
};
pub use crd::{normalize, printed};
pub use entry::main;
pub use error::{Error, Request, Retry};
pub use events::EventType;
/// A condition as it is stored.
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
pub use metrics::{Described, FleetMetrics, MetricRegistry, Pods};
pub use operator::{
    Manager, Operator, Subcommand, WebhookPermissions, leader_election_permissions, metrics_permissions, permissions,
    shared_token_permissions, webhook_configurations, webhook_permissions,
};
pub use settings::{Settings, duration};
pub use shared_token::SharedToken;
pub use status::{Primary, Status};
pub use telemetry::traceparent;
pub use webhooks::{FieldError, Reviewed, ValidationResult, Webhook};
pub use workloads::Fence;
