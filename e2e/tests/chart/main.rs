//! Tests of releases on a real node, with both majors of Helm. No step may lose a user's objects.
#![expect(clippy::unwrap_used, reason = "in a test, that is the message")]

mod environments;
mod first;
mod kit;
mod lifecycle;
mod metrics;
mod policies;
mod published;
mod releases;
mod scopes;
