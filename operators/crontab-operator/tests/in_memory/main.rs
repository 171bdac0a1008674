//! Tests of the whole operator against a model of the API server, in paused time. So a year takes seconds, and a test can kill the
//! operator at each of its requests in turn. The numbers in the names (`t02`) are those of the operator's list of acceptance
//! tests.

mod clock;
mod crashes;
mod ended;
mod kit;
mod pods;
mod requests;
mod run_now;
mod runs;
