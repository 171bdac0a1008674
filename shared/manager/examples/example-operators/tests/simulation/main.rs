//! Random worlds for operators of unusual shapes.

use std::time::Duration;

use simulation::{Campaign, Plan, Subject};

mod banners;
mod ledgers;
mod tenants;
mod tracks;

use banners::Banner;
use ledgers::Ledger;
use tenants::Tenant;
use tracks::Track;

/// How long a usual run simulates worlds of one operator from a fresh seed.
const USUAL: Duration = Duration::from_secs(6);

fn every_world_ends_as_specified(subject: &'static dyn Subject) {
    Campaign::from_env(USUAL).run(subject);
}

/// Finds any dependency on hash order, random numbers or clocks, which differ from run to run.
fn the_same_seed_gives_the_same_trace(subject: &'static dyn Subject) {
    Plan::of(fastrand::u64(..1_000_000)).is_repeatable(subject);
}

#[test]
fn every_world_of_banners_ends_as_specified() {
    every_world_ends_as_specified(&Banner);
}

#[test]
fn the_same_seed_gives_the_same_trace_of_banners() {
    the_same_seed_gives_the_same_trace(&Banner);
}

#[test]
fn every_world_of_ledgers_ends_as_specified() {
    every_world_ends_as_specified(&Ledger);
}

#[test]
fn the_same_seed_gives_the_same_trace_of_ledgers() {
    the_same_seed_gives_the_same_trace(&Ledger);
}

#[test]
fn every_world_of_tenants_ends_as_specified() {
    every_world_ends_as_specified(&Tenant);
}

#[test]
fn the_same_seed_gives_the_same_trace_of_tenants() {
    the_same_seed_gives_the_same_trace(&Tenant);
}

#[test]
fn every_world_of_tracks_ends_as_specified() {
    every_world_ends_as_specified(&Track);
}

#[test]
fn the_same_seed_gives_the_same_trace_of_tracks() {
    the_same_seed_gives_the_same_trace(&Track);
}
