//! The client against a real registry: distribution, which most self-hosted registries run. A proxy between the two counts the
//! requests, and disturbs them.
#![expect(clippy::unwrap_used, reason = "clippy knows tests by their attribute, and these have helpers")]

mod access;
mod disturbed;
mod kit;
mod push;
mod referrers;
