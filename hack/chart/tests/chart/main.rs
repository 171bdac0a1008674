//! The chart as both majors of Helm render it, without a node: every set of operators, every refused value, and each object in
//! front of a real API server that is strict about fields.
#![expect(clippy::unwrap_used, reason = "in a test, that is the message")]

mod features;
mod flag_sets;
mod kit;
mod refused;
mod strict;
