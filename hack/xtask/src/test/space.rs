//! The disk must have room for the build of all tests.

use anyhow::Result;

use crate::disk::{self, Room};
use crate::report::Outcome;

/// What a run of all tests writes. README.md says the same about a new checkout.
const TESTS: Room = Room { new: 20, again: 3 };

pub(super) fn check() -> Result<Outcome> {
    disk::check(TESTS)
}
