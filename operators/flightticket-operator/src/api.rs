//! What users write.

pub mod v1;

pub use v1::FlightTicket;
