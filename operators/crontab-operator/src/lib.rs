//! Jobs by the clock: exactly once, in any time zone, with a word for every run that is left out.
//!
//! Reading order: [`api`] (what users write) → [`timing`] (when that is) → [`controller`](crate) (what is done at each
//! wake-up, in order) → [`known`] (what a decision is made of) → [`desired`] (the Job) → [`history`] (which ones go) →
//! [`status`] (what users are told). The arithmetic of schedules is the crate `schedule`.

pub mod api;
mod config;
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
pub use config::Config;
pub use operator::CronTabOperator;
