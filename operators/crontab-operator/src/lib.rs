//! The CronTab operator starts Jobs on a schedule: exactly once, in any time zone. It reports the runs that it skips.
//!
//! Reading order: [`api`] (the custom resource) → [`timing`] (its schedule and zone) → `controller` (the steps of a reconcile) →
//! [`known`] (the input of decisions) → [`desired`] (the Job) → [`history`] (which Jobs are deleted) → [`status`] (status and
//! conditions) → `operator` (the registration). The crate `schedule` computes the times.

pub mod api;
mod controller;
pub mod desired;
pub mod history;
pub mod known;
mod metrics;
mod operator;
#[cfg(test)]
mod samples;
pub mod status;
pub mod timing;
pub mod validation;

pub use api::CronTab;
pub use operator::CronTabOperator;
