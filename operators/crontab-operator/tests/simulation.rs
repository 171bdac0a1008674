//! Random worlds (`testing/simulation`) for `CronTab`.

#[path = "simulation/judged.rs"]
mod judged;
#[path = "simulation/subject.rs"]
mod subject;

use std::{path::Path, time::Duration};

use simulation::{Campaign, Plan, is_repeatable_in_other_processes, replay};

use crate::subject::CronTab;

/// How long the usual run plays worlds from a fresh seed.
const USUAL: Duration = Duration::from_secs(20);

#[test]
fn every_world_ends_as_specified() {
    Campaign::from_env(USUAL).run(&CronTab);
}

#[test]
fn regression_worlds_end_as_specified() {
    replay(&CronTab, Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/worlds")));
}

/// Guards against iteration over hash maps, random numbers and clocks that the seed does not control.
#[test]
fn the_same_seed_gives_the_same_trace() {
    Plan::of(fastrand::u64(..1_000_000)).is_repeatable(&CronTab);
}

/// Finds any dependency on addresses, hash seeds and the environment, which differ from process to process.
#[test]
fn the_same_seed_gives_the_same_trace_in_other_processes() {
    let test = "the_same_seed_gives_the_same_trace_in_other_processes";
    is_repeatable_in_other_processes(&CronTab, test);
}
