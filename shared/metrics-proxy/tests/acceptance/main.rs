//! The whole proxy: against a reviewer that tests control, against a real API server, and as a program.
#![expect(clippy::unwrap_used, reason = "in a test, that is the message")]

mod crowds;
mod kit;
mod malformed;
mod program;
mod real;
mod requests;
mod reviews;
mod tls;
mod upstream;
