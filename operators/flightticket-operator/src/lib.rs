//! Bookings outside of the cluster: each is made exactly once, and none is left behind.
//!
//! Reading order: [`api`] (what users write) → [`controller`](crate) (what is done at each wake-up) → [`course`] (what is
//! asked of the provider next, given what it said) → [`ending`] (the same for a ticket that is deleted) → [`status`] (what
//! users are told) → [`booking`] (the provider and its client, without Kubernetes) → `visits` (when each ticket is looked at
//! again).

pub mod api;
pub mod booking;
mod config;
mod controller;
pub mod course;
pub mod ending;
mod metrics;
mod operator;
#[cfg(test)]
mod samples;
pub mod status;
pub mod ticket;
mod visits;

pub use api::FlightTicket;
pub use config::Config;
pub use operator::{FlightTicketOperator, declare};
