//! Runs all tests and counts them.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::cargo_tools::NEXTEST;
use crate::report::{Counts, Outcome};
use crate::workspace;

/// Runs them. People read standard error, as ever; the counts come from standard output, a line of JSON per event.
pub(super) fn run(filter: Option<&str>) -> Result<Outcome> {
    let mut nextest = NEXTEST.command()?;
    nextest.args(["nextest", "run", "--workspace", "--message-format", "libtest-json"]);
    nextest.env("NEXTEST_EXPERIMENTAL_LIBTEST_JSON", "1");
    if workspace::in_ci() {
        nextest.args(["--profile", "ci"]);
    }
    if let Some(filter) = filter {
        nextest.args(["--filterset", filter]);
    }
    let mut child = nextest.stdout(Stdio::piped()).spawn().context("could not start cargo-nextest")?;
    let events = BufReader::new(child.stdout.take().context("cargo-nextest has no output")?);
    let mut counts = Counts::default();
    for line in events.lines() {
        counts.add(&line?);
    }
    let status = child.wait()?;
    if !status.success() && counts.failed == 0 {
        bail!("the tests did not all run, see above ({status})");
    }
    Ok(Outcome::Tests(counts))
}

impl Counts {
    /// Adds what the last event of each test program says; the other events are about single tests.
    fn add(&mut self, line: &str) {
        let event: Value = serde_json::from_str(line).unwrap_or_default();
        if event["type"] != "suite" || event["event"] == "started" {
            return;
        }
        let number = |field: &str| event[field].as_u64().and_then(|it| usize::try_from(it).ok()).unwrap_or_default();
        self.passed += number("passed");
        self.failed += number("failed");
        self.skipped += number("ignored") + number("filtered_out");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_are_summed_up() {
        let lines = r#"{"type":"suite","event":"started","test_count":3}
{"type":"test","event":"ok","name":"a::tests$it_works"}
{"type":"suite","event":"ok","passed":2,"failed":0,"ignored":1,"measured":0,"filtered_out":0,"exec_time":0.1}
not JSON
{"type":"suite","event":"failed","passed":4,"failed":1,"ignored":0,"measured":0,"filtered_out":3,"exec_time":0.1}"#;
        let mut counts = Counts::default();
        lines.lines().for_each(|line| counts.add(line));
        assert_eq!(counts, Counts { passed: 6, failed: 1, skipped: 4 });
    }
}
