//! Tests of the whole elector on paused time, against a small API server in memory.

mod candidate;
mod promises;
mod rounds;
mod server;
