//! Real sockets on loopback, real certificates, clients that misbehave.
#![expect(clippy::unwrap_used, reason = "in a test, that is the message")]

mod certificates;
mod clients;
mod families;
mod frames;
mod fuzzing;
mod http2;
mod identities;
mod kit;
mod limits;
mod memory;
mod stop;
