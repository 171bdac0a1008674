//! Independent memcached servers behind one headless Service.
//!
//! Reading order: [`api`] (the custom resource) → [`desired`] (its children) → [`status`] (its status) → `controller` (the
//! reconciler) → [`validation`] and [`command_line`] (the rules of memcached itself) → [`secrets`] (the Secrets that the custom
//! resource names) → `generated` and `pki` (those that the operator makes) → `operator` (the registration).

pub mod api;
pub mod command_line;
mod config;
mod controller;
pub mod desired;
mod generated;
mod operator;
mod pki;
#[cfg(test)]
mod samples;
pub mod secrets;
pub mod status;
pub mod validation;

pub use api::Memcached;
pub use config::Config;
pub use operator::MemcachedOperator;
