//! Integration tests: properties of random schedules, the test tables of robfig/cron and of Kubernetes, and the command line.

mod brute_force;
mod command;
mod decisions;
mod fuzzing;
mod language;
mod random;
mod sync;
mod upstream;
mod zones;

use jiff::Timestamp;
use schedule::{Schedule, Zone};

/// Parses an instant in RFC 3339.
fn at(text: &str) -> Timestamp {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn schedule(text: &str) -> Schedule {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn zone(name: &str) -> Zone {
    Zone::named_or_offset(name).unwrap_or_else(|error| panic!("{error}"))
}
