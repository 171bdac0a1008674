//! Runs an image in a number of pods, with an address, safe defaults, and clear messages when it does not run.
//!
//! Reading order: [`api`] (the custom resource) → [`desired`] (its children) → [`status`] (its status) → `controller` (the
//! reconciler) → [`rollback`] (what runs instead of a release that does not become available) → [`validation`] (warnings about
//! unwise settings) → `operator` (the registration).

pub mod api;
mod controller;
pub mod desired;
mod operator;
pub mod rollback;
#[cfg(test)]
mod samples;
pub mod status;
pub mod validation;

pub use api::HelloApp;
pub use operator::HelloAppOperator;
