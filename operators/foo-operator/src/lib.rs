//! Kubernetes' own sample controller, as small as an operator gets here: a Foo keeps one Deployment of nginx.
//!
//! Reading order: [`api`] (what users write) → [`desired`] (what they get for it) → [`status`] (what they are told of it).

pub mod api;
mod controller;
pub mod desired;
mod operator;
pub mod status;

pub use api::Foo;
pub use operator::FooOperator;
