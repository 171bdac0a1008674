//! Tests of the chart that need no node. They render it with both majors of Helm for every set of operators, try values that the
//! chart refuses, and send each object to a real API server with strict field validation.
#![expect(clippy::unwrap_used, reason = "in a test, that is the message")]

mod alerts;
mod every_value;
mod features;
mod flag_sets;
mod gitops;
mod kit;
mod metadata;
mod metrics;
mod names;
mod network;
mod notes;
mod permissions;
mod refused;
mod releases;
mod snapshot;
mod strict;
