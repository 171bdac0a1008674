//! Simulates random worlds, and checks the final state of each Foo.

#[path = "simulation/subject.rs"]
mod subject;

use std::{path::Path, time::Duration};

use fastrand::Rng;
use simulation::{Act, Campaign, Line, Plan, Played, Subject, Watched, is_repeatable_in_other_processes, replay};

use crate::subject::Foo;

/// How long a usual run simulates worlds from a fresh seed.
const USUAL: Duration = Duration::from_secs(10);
/// A seed with which a namespace is without its label for more than five minutes.
const LONG: u64 = 6;

#[test]
fn every_world_ends_as_specified() {
    Campaign::from_env(USUAL).run(&Foo);
}

#[test]
fn regression_worlds_end_as_specified() {
    replay(&Foo, Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/worlds")));
}

/// The event of the deletion stays in a watch that has fallen silent. Nothing else tells the operator, so it has to give up the
/// watch.
#[test]
fn child_that_is_deleted_while_its_watch_is_silent_comes_back() {
    // The seed of the act decides which watches it concerns, and chance which of their events it withholds.
    let withholds =
        |lines: &[Line]| lines[0].text.contains("◀ DELETED deployments.apps") && lines[1].text.contains("[Stall]");
    let played = (1..=30)
        .map(|seed| play(&[(60, Act::SilentWatches, seed), (62, Act::DeleteChild, 0)]))
        .find(|played| played.trace.windows(2).any(withholds))
        .expect("a world in which the watch of Deployments withholds the deletion");
    assert_eq!(played.failure, None);
}

/// The child is deleted when the operator may not write in its namespace any more. It comes back when the namespace is back.
#[test]
fn child_that_is_deleted_in_a_namespace_without_the_label_comes_back_with_the_label() {
    let acts = [(60, Act::UnlabelNamespace, LONG), (220, Act::DeleteChild, 0)];
    let played = Plan { watched: Watched::Selected, ..Plan::scripted(1, &acts) }.play(&Foo);
    let is_label = |text: &str| text.starts_with("= ") && text.contains(" namespaces ");
    let labels: Vec<_> = played.trace.iter().filter(|line| is_label(&line.text)).map(|line| line.at).collect();
    assert!(matches!(labels[..], [_, back] if back > Duration::from_secs(220)), "without the label: {labels:?}");
    assert_eq!(played.failure, None);
}

/// Plays a world in which only these acts happen, each at its second and with its seed.
fn play(acts: &[(u64, Act, u64)]) -> Played {
    Plan::scripted(1, acts).play(&Foo)
}

/// Returns when the operator sends such requests. Requests at the same time count as one.
fn sent(played: &Played, request: &str) -> Vec<Duration> {
    let request = format!("operator-0 ▶ {request}");
    let mut times: Vec<Duration> =
        played.trace.iter().filter(|line| line.text.starts_with(&request)).map(|line| line.at).collect();
    times.dedup();
    times
}

/// Returns a seed with which, after these draws, the pods of the Deployment are damaged: a Foo without `replicas` lets others
/// scale.
fn seed_of_other_pods(draw: impl Fn(&mut Rng) -> bool) -> u64 {
    let is_right = |seed: &u64| {
        let mut rng = Rng::with_seed(*seed);
        draw(&mut rng) && Foo.damage("deployments.apps", &mut rng).is_some_and(|it| !it["spec"]["template"].is_null())
    };
    (1..10_000).find(is_right).expect("a seed")
}

#[test]
fn contested_field_is_restored_once_a_minute_and_reported_by_one_event() {
    let seed = seed_of_other_pods(|rng| rng.choice(Foo.children()).is_some());
    let played = play(&[(120, Act::Contest, seed), (780, Act::Create, 0)]);
    assert_eq!(played.failure, None);
    let steady = Duration::from_mins(5)..Duration::from_mins(12);
    let mut reverts = sent(&played, "patch deployments.apps");
    reverts.retain(|time| steady.contains(time));
    assert!((6..=8).contains(&reverts.len()), "{reverts:?}");
    assert!(reverts.windows(2).all(|pair| pair[1].saturating_sub(pair[0]) >= Duration::from_mins(1)), "{reverts:?}");
    let is_told = |text: &str| text.starts_with("operator-0 ▶ create events") && text.contains("FieldsContested");
    let events: Vec<&str> = played.trace.iter().map(|line| &*line.text).filter(|text| is_told(text)).collect();
    assert!(matches!(&events[..], [event] if event.contains("rival-controller")), "{events:?}");
}

#[test]
fn child_that_a_policy_rewrites_is_written_once_and_is_right_after_the_policy() {
    let seed = seed_of_other_pods(|rng| rng.u8(..8) >= 4);
    let played = play(&[(120, Act::RewritingPolicy, seed), (120, Act::DeleteChild, 0), (360, Act::Create, 0)]);
    assert_eq!(played.failure, None);
    assert!(played.effects_of(Act::RewritingPolicy) > 0, "the policy has changed no write");
    let writes = |verb: &str| {
        let mut times = sent(&played, &format!("{verb} deployments.apps"));
        times.retain(|time| (Duration::from_mins(2)..Duration::from_mins(6)).contains(time));
        times.len()
    };
    let (created, changed) = (writes("create"), writes("patch"));
    assert!(created == 1 && (1..=2).contains(&changed), "created {created} times, changed {changed} times");
}

/// The table of a campaign must show what worlds really test.
#[test]
fn acts_that_change_nothing_do_not_count() {
    let played = play(&[
        (60, Act::Resume, 1), // it is not paused
        (120, Act::Label, 1),
        (180, Act::Label, 1), // the same label
        (240, Act::Pause, 1),
        (300, Act::Pause, 1),
        (360, Act::Resume, 1),
        (420, Act::Policy, 1),      // no client writes a child
        (540, Act::PodsAreSlow, 1), // there are no new pods
        (660, Act::PodsDoNotStart, 1),
    ]);
    assert_eq!(played.failure, None);
    for (act, count) in [
        (Act::Resume, 1),
        (Act::Label, 1),
        (Act::Pause, 1),
        (Act::Policy, 0),
        (Act::PodsAreSlow, 0),
        (Act::PodsDoNotStart, 0),
    ] {
        assert_eq!(played.effects_of(act), count, "{act:?}");
    }
}

/// Finds any dependency on hash order, random numbers or clocks, which differ from run to run.
#[test]
fn the_same_seed_gives_the_same_trace() {
    Plan::of(fastrand::u64(..1_000_000)).is_repeatable(&Foo);
}

/// Finds any dependency on addresses, hash seeds and the environment, which differ from process to process.
#[test]
fn the_same_seed_gives_the_same_trace_in_other_processes() {
    let test = "the_same_seed_gives_the_same_trace_in_other_processes";
    is_repeatable_in_other_processes(&Foo, test);
}
