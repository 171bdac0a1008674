//! Tests of the properties that controller-runtime's own tests check, and of those that this project adds. `UPSTREAM-TESTS.md`
//! and `RELIABILITY.md` have the whole lists.
//!
//! Controllers run as they do in a process, but against a model of the API server and in tokio's paused time: a wait of one hour
//! takes no real time, and exactly one hour of simulated time.

mod annotating;
mod any_kind;
mod cluster_scoped;
mod conflicts;
mod contested;
mod crashes;
mod declaring;
mod earliest;
mod events;
mod extremes;
mod faults;
mod in_sync;
mod kit;
mod leading;
mod metrics;
mod namespaces;
mod optional;
mod outcomes;
mod ownership;
mod panics;
mod related;
mod restored;
mod starting;
mod status;
mod stopping;
mod unlisted;
mod waking;
mod watches;
