//! What controller-runtime's own tests hold it to, held against this runtime; `UPSTREAM-TESTS.md` has the whole list.
//!
//! Controllers run as they do in a process, against a model of the API server and in tokio's paused time: a wait of an hour
//! takes no time, and is an hour exactly.

mod kit;
mod metrics;
mod outcomes;
mod starting;
mod stopping;
mod webhooks;
