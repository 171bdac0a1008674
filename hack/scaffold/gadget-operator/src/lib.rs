//! Keeps one `ConfigMap` for each [`Gadget`].
//!
//! Reading order: [`api`] (the custom resource) → [`desired`] (its `ConfigMap`) → [`status`] (its status) → `controller` (the
//! reconciler) → `operator` (the registration).

pub mod api;
mod controller;
pub mod desired;
mod operator;
pub mod status;

pub use api::Gadget;
pub use operator::GadgetOperator;
