//! Simulates random worlds in which several operators run in each process, as in the shipped program. They share informers, the
//! lease, the limit of requests, the recorder of events and the registry of metrics. The judge of each operator is that of its own
//! worlds.

#[path = "../../helloapp-operator/tests/simulation/subject.rs"]
mod helloapp;
#[path = "../../memcached-operator/tests/simulation/subject.rs"]
mod memcached;

use std::time::Duration;

use simulation::{Campaign, Plan, Subject};

use crate::{helloapp::HelloApp, memcached::Memcached};

/// Two operators with children of the same kinds.
const TWO: [&dyn Subject; 2] = [&HelloApp, &Memcached];
/// How long a usual run simulates worlds from a fresh seed.
const USUAL: Duration = Duration::from_secs(5);

#[test]
fn every_world_of_two_operators_ends_as_specified() {
    Campaign::from_env(USUAL).run(TWO);
}

/// Finds any dependency on hash order, random numbers or clocks, which differ from run to run.
#[test]
fn the_same_seed_gives_the_same_trace_of_two_operators() {
    Plan::of_several(fastrand::u64(..1_000_000), TWO.len()).is_repeatable(TWO);
}
