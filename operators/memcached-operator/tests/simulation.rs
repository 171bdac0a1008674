//! Simulates random worlds, and checks the final state of each `Memcached`.

#[path = "simulation/judged.rs"]
mod judged;
#[path = "simulation/subject.rs"]
mod subject;

use std::{path::Path, time::Duration};

use fastrand::Rng;
use simulation::{Act, Campaign, Plan, Subject, is_repeatable_in_other_processes, replay};

use crate::subject::Memcached;

/// How long a usual run simulates worlds from a fresh seed.
const USUAL: Duration = Duration::from_secs(30);

#[test]
fn every_world_ends_as_specified() {
    Campaign::from_env(USUAL).run(&Memcached);
}

#[test]
fn regression_worlds_end_as_specified() {
    replay(&Memcached, Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/worlds")));
}

/// Pods of a new image do not start for longer than the 600 seconds in which a rollout has to make progress. The world checks what
/// the status says then.
#[test]
fn rollout_that_makes_no_progress_is_reported_once() {
    let spec = |seed: u64| Memcached.spec("a", &mut Rng::with_seed(seed));
    let has_pods = |seed: &u64| spec(*seed)["auth"].is_null() && spec(*seed)["size"] != 0;
    let first = (1..10_000).find(has_pods).expect("a seed");
    let is_other = |seed: &u64| {
        let image = spec(*seed)["image"].clone();
        has_pods(seed) && !image.is_null() && image != spec(first)["image"]
    };
    let other = (1..10_000).find(is_other).expect("a seed");
    let stuck = |second| (second, Act::PodsDoNotStart, 4);
    let acts = [stuck(120), (120, Act::Edit, other), stuck(600), (1_200, Act::Create, 0)];
    let played = Plan::scripted(first, &acts).play(&Memcached);
    assert_eq!(played.failure, None);
    let is_told =
        |text: &str| text.starts_with("operator-0 ▶ create events") && text.contains(r#""reason":"RolloutStalled""#);
    assert_eq!(played.trace.iter().filter(|line| is_told(&line.text)).count(), 1);
}

/// Finds any dependency on hash order, random numbers or clocks, which differ from run to run.
#[test]
fn the_same_seed_gives_the_same_trace() {
    Plan::of(fastrand::u64(..1_000_000)).is_repeatable(&Memcached);
}

/// Finds any dependency on addresses, hash seeds and the environment, which differ from process to process.
#[test]
fn the_same_seed_gives_the_same_trace_in_other_processes() {
    let test = "the_same_seed_gives_the_same_trace_in_other_processes";
    is_repeatable_in_other_processes(&Memcached, test);
}
