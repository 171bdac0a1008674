//! Independent memcached servers behind one headless Service.
//!
//! Reading order: [`api`] (what users write) → [`desired`] (what they get for it) → [`status`] (what they are told of it)
//! → [`validation`] and [`command_line`] (what memcached itself asks for) → [`secrets`] (what is read for it).

pub mod api;
pub mod command_line;
mod config;
mod controller;
pub mod desired;
mod operator;
#[cfg(test)]
mod samples;
pub mod secrets;
pub mod status;
pub mod validation;

pub use api::Memcached;
pub use config::Config;
pub use operator::MemcachedOperator;
