//! What controller-runtime's own tests hold it to, and what this project adds to that, held against this runtime:
//! `UPSTREAM-TESTS.md` and `RELIABILITY.md` have the whole lists.
//!
//! Controllers run as they do in a process, against a model of the API server and in tokio's paused time: a wait of an hour
//! takes no time, and is an hour exactly.

mod declaring;
mod earliest;
mod extremes;
mod faults;
mod in_sync;
mod kit;
mod leading;
mod metrics;
mod optional;
mod outcomes;
mod panics;
mod restored;
mod starting;
mod status;
mod stopping;
mod watches;
