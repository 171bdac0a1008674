//! Simulates random worlds in which several operators run in each process, as in the shipped program. They share informers, the
//! lease, the limit of requests, the recorder of events and the registry of metrics. The judge of each operator is that of its own
//! worlds.

#[path = "../../crontab-operator/tests/simulation/subject.rs"]
mod crontab;
#[path = "../../flightticket-operator/tests/simulation/subject.rs"]
mod flightticket;
#[path = "../../foo-operator/tests/simulation/subject.rs"]
mod foo;
#[path = "../../helloapp-operator/tests/simulation/subject.rs"]
mod helloapp;
#[path = "../../memcached-operator/tests/simulation/subject.rs"]
mod memcached;

use std::time::Duration;

use fastrand::Rng;
use simulation::{Act, Campaign, Plan, Subject, is_repeatable_in_other_processes};

use crate::{crontab::CronTab, flightticket::FlightTicket, foo::Foo, helloapp::HelloApp, memcached::Memcached};

/// The seed of a world chooses which of them run together.
const ALL: [&dyn Subject; 5] = [&CronTab, &FlightTicket, &Foo, &HelloApp, &Memcached];
/// How long a usual run simulates worlds from a fresh seed.
const USUAL: Duration = Duration::from_secs(5);

#[test]
fn every_world_of_several_operators_ends_as_specified() {
    Campaign::from_env(USUAL).run(ALL);
}

/// Objects belong to the operators in turn, so another choice or order would play another world.
#[test]
fn saved_world_has_the_operators_that_it_names_in_their_order() {
    let operators = ["memcached", "foo"].map(str::to_owned).to_vec();
    let saved = Plan { operators, objects: 2, ..Plan::scripted(7, &[]) }.to_lines();
    let played = saved.parse::<Plan>().expect("a plan").play(ALL);
    assert_eq!(played.failure, None);
    let has = |text: &str| played.trace.iter().any(|line| line.text.starts_with("= ") && line.text.contains(text));
    assert!(has(" memcacheds.memcached.cache.example.com shop/a created "));
    assert!(has(" foos.samplecontroller.k8s.io shop/b created "));
}

/// Each process has a queue for each operator, and each of them explains its reconciles: those of the leader, and those that a
/// standby has gathered when it begins to lead.
#[test]
fn each_reconcile_of_each_operator_in_each_process_has_a_cause() {
    let operators = ["memcached", "foo"].map(str::to_owned).to_vec();
    let stops = |process: usize| (0..100).find(|seed| Rng::with_seed(*seed).usize(..2) == process).expect("a seed");
    let stop = |second, process| (second, Act::Stop, stops(process));
    let acts = [stop(60, 0), stop(120, 1), stop(180, 0), stop(240, 1)];
    let played = Plan { operators, objects: 2, replicas: 2, ..Plan::scripted(7, &acts) }.play(ALL);
    assert_eq!(played.failure, None);
    for process in ["operator-0", "operator-1"] {
        for object in ["memcached shop/a", "foo shop/b"] {
            let reconcile = format!("{process}: reconcile {object}");
            assert!(played.trace.iter().any(|line| line.text == reconcile), "{reconcile}");
        }
    }
}

/// Finds any dependency on hash order, random numbers or clocks, which differ from run to run.
#[test]
fn the_same_seed_gives_the_same_trace_of_several_operators() {
    Plan::of_some(fastrand::u64(..1_000_000), ALL).is_repeatable(ALL);
}

/// Finds any dependency on addresses, hash seeds and the environment, which differ from process to process.
#[test]
fn the_same_seed_gives_the_same_trace_of_several_operators_in_other_processes() {
    let test = "the_same_seed_gives_the_same_trace_of_several_operators_in_other_processes";
    is_repeatable_in_other_processes(ALL, test);
}
