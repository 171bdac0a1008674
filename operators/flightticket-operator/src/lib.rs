//! The FlightTicket operator makes bookings at a provider outside of the cluster: exactly one per object, and none after its
//! deletion.
//!
//! Reading order: [`api`] (the custom resource) → `controller` (carries out the steps of a reconcile) → [`course`] (decides the
//! next step from the provider's answers) → [`cancellation`] (the same for a ticket that is being deleted) → [`status`] (status,
//! conditions and events) → [`booking`] (the provider and its client, without Kubernetes) → `polling` (when each ticket is due
//! again) → `operator` (the registration).

pub mod api;
pub mod booking;
pub mod cancellation;
mod config;
mod controller;
pub mod course;
mod metrics;
mod operator;
mod polling;
#[cfg(test)]
mod samples;
pub mod status;
pub mod ticket;

pub use api::FlightTicket;
pub use config::Config;
pub use operator::{FlightTicketOperator, declare};
