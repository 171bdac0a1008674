//! The life of a release on a real node, with both majors of Helm: nothing of the user's is lost on the way.
#![expect(clippy::unwrap_used, reason = "in a test, that is the message")]

mod kit;
mod lifecycle;
mod metrics;
mod scopes;
