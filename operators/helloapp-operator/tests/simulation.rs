//! Simulates random worlds, and checks the final state of each `HelloApp`.

#[path = "simulation/judged.rs"]
mod judged;
#[path = "simulation/subject.rs"]
mod subject;

use std::{path::Path, time::Duration};

use fastrand::Rng;
use simulation::{Act, Campaign, Plan, Subject, is_repeatable_in_other_processes, replay};

use crate::subject::HelloApp;

/// How long a usual run simulates worlds from a fresh seed.
const USUAL: Duration = Duration::from_secs(20);

#[test]
fn every_world_ends_as_specified() {
    Campaign::from_env(USUAL).run(&HelloApp);
}

#[test]
fn regression_worlds_end_as_specified() {
    replay(&HelloApp, Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/worlds")));
}

/// Pods of a new image do not start for longer than a rollout has to make progress. At the end, the world checks what runs.
#[test]
fn release_that_does_not_start_is_rolled_back() {
    let spec = |seed: u64| HelloApp.spec("a", &mut Rng::with_seed(seed));
    let has_pods = |seed: &u64| spec(*seed)["size"] != 0;
    let first = (1..10_000).find(|seed| has_pods(seed) && spec(*seed)["rollback"] == "OnStall").expect("a seed");
    let is_other = |seed: &u64| has_pods(seed) && spec(*seed)["image"] != spec(first)["image"];
    let other = (1..10_000).find(is_other).expect("a seed");
    let acts = [(120, Act::PodsDoNotStart, 4), (120, Act::Edit, other), (1_200, Act::Create, 0)];
    let played = Plan::scripted(first, &acts).play(&HelloApp);
    assert_eq!(played.failure, None);
    let is_told =
        |text: &str| text.starts_with("operator-0 ▶ create events") && text.contains(r#""reason":"RolledBack""#);
    assert!(played.trace.iter().any(|line| is_told(&line.text)), "it was not rolled back");
    let is_patch = |text: &str| text.starts_with("operator-0 ▶ patch deployments.apps") && text.contains("\"image\":");
    let last = played.trace.iter().rfind(|line| is_patch(&line.text)).expect("a patch of the image");
    assert!(last.text.contains(&spec(first)["image"].to_string()), "{}", last.text);
}

/// Finds any dependency on hash order, random numbers or clocks, which differ from run to run.
#[test]
fn the_same_seed_gives_the_same_trace() {
    Plan::of(fastrand::u64(..1_000_000)).is_repeatable(&HelloApp);
}

/// Finds any dependency on addresses, hash seeds and the environment, which differ from process to process.
#[test]
fn the_same_seed_gives_the_same_trace_in_other_processes() {
    let test = "the_same_seed_gives_the_same_trace_in_other_processes";
    is_repeatable_in_other_processes(&HelloApp, test);
}
