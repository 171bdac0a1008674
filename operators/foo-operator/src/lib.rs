//! Kubernetes' own sample controller, the smallest operator of this repository: it keeps one Deployment of nginx for each Foo.
//!
//! Reading order: [`api`] (the custom resource) → [`desired`] (its Deployment) → [`status`] (its status) → `controller` (the
//! reconciler) → `operator` (the registration).

pub mod api;
mod controller;
pub mod desired;
mod operator;
pub mod status;

pub use api::Foo;
pub use operator::FooOperator;
