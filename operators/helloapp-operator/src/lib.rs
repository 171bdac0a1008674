//! An image, so many times: with an address, safe defaults, and plain words when it does not run.
//!
//! Reading order: [`api`] (what users write) → [`desired`] (what they get for it) → [`status`] (what they are told of it)
//! → [`rollback`] (what runs instead of a release that does not come up) → [`webhook`] (what is unwise, but taken).

pub mod api;
mod config;
mod controller;
pub mod desired;
mod operator;
pub mod rollback;
#[cfg(test)]
mod samples;
pub mod status;
pub mod webhook;

pub use api::HelloApp;
pub use config::Config;
pub use operator::HelloAppOperator;
