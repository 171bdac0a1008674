//! The only way to skip a test. The test harness counts a skipped test as passed. So the test records here that it was skipped,
//! and `cargo xtask test` counts it and prints its name and the reason.
//!
//! ```ignore
//! if !has_ipv6() {
//!     return skip::lacking("this machine has no IPv6");
//! }
//! ```
//!
//! Tests with a cluster use `cluster::or_skip`, which calls this crate.
#![deny(missing_docs)]

use std::{
    env,
    fmt::Display,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    path::Path,
};

/// The variable that names the file in which tests record that they were skipped. Without it, it is only printed.
pub const RECORD: &str = "SKIPPED_TESTS";

/// The machine lacks what the test needs. `reason` names what is missing, and what to install.
///
/// # Panics
///
/// Under `CI`: that machine must have everything, because a test that is always skipped there would never run.
pub fn lacking(reason: impl Display) {
    lacking_in(in_ci(), reason);
}

fn lacking_in(ci: bool, reason: impl Display) {
    assert!(!ci, "under CI no test is skipped: {reason}");
    unasked(reason);
}

/// The test runs only on request, or it cannot run here, such as on a cluster that the tests do not own. It is skipped under
/// `CI`, too.
///
/// # Panics
///
/// When it cannot be recorded: the test would count as passed.
pub fn unasked(reason: impl Display) {
    let reason = reason.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    eprintln!("skipped: {reason}");
    let Some(file) = env::var_os(RECORD) else { return };
    // Nextest gives each test a process of its own, and its name.
    let [binary, test] = ["NEXTEST_BINARY_ID", "NEXTEST_TEST_NAME"].map(|name| env::var(name).unwrap_or_default());
    let skipped = Skipped { binary, test, reason };
    skipped.append_to(file.as_ref()).unwrap_or_else(|error| panic!("could not record a skipped test: {error}"));
}

/// Whether this run is unattended, on a machine that must have everything.
pub fn in_ci() -> bool {
    env::var("CI").is_ok_and(|value| !value.is_empty() && value != "false")
}

/// A test that was skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// The identifier that nextest gives to the test's program, such as `cluster` or `cluster::snapshots`.
    pub binary: String,
    /// The test's name in it.
    pub test: String,
    /// Why; one line.
    pub reason: String,
}

impl Skipped {
    /// One line, in one write: tests of other processes append to the same file.
    fn append_to(&self, file: &Path) -> io::Result<()> {
        let line = format!("{}\t{}\t{}\n", self.binary, self.test, self.reason);
        OpenOptions::new().create(true).append(true).open(file)?.write_all(line.as_bytes())
    }
}

/// What tests have recorded in this file. A test may be there more than once.
///
/// # Errors
///
/// When the file cannot be read, or holds something else.
pub fn read(file: &Path) -> io::Result<Vec<Skipped>> {
    let parse = |line: &str| {
        let (binary, rest) = line.split_once('\t')?;
        let (test, reason) = rest.split_once('\t')?;
        Some(Skipped { binary: binary.to_owned(), test: test.to_owned(), reason: reason.to_owned() })
    };
    let strange = |line: &str| io::Error::other(format!("{} has a line that no test wrote: {line}", file.display()));
    fs::read_to_string(file)?.lines().map(|line| parse(line).ok_or_else(|| strange(line))).collect()
}

/// The examples of the README, which compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod tests {
    use super::*;

    fn skipped(test: &str) -> Skipped {
        Skipped { binary: "cluster::snapshots".into(), test: test.into(), reason: "real nodes need root".into() }
    }

    #[test]
    fn recorded_skips_are_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("skipped");
        for test in ["a::one", "two"] {
            skipped(test).append_to(&file).unwrap();
        }
        assert_eq!(read(&file).unwrap(), [skipped("a::one"), skipped("two")]);
        fs::write(&file, "something else\n").unwrap();
        assert!(read(&file).unwrap_err().to_string().contains("something else"));
    }

    #[test]
    #[should_panic(expected = "under CI no test is skipped: no browser")]
    fn missing_prerequisite_panics_in_ci() {
        lacking_in(true, "no browser");
    }
}
