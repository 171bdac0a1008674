//! Runs all tests and counts them.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::cargo_tools::NEXTEST;
use crate::report::{Counts, Outcome};
use crate::workspace;

/// Which tests are run, and how.
#[derive(Debug, Default)]
pub(crate) struct Selection<'a> {
    /// An expression of nextest.
    pub(crate) filter: Option<&'a str>,
    /// Of `.config/nextest.toml`.
    pub(crate) profile: Option<&'a str>,
    /// What the tests read, by the variable's name.
    pub(crate) environment: &'a [(&'a str, &'a str)],
}

/// Runs them. People read standard error, as ever; the counts come from standard output, a line of JSON per event.
pub(crate) fn run(selection: &Selection<'_>) -> Result<Outcome> {
    let mut nextest = NEXTEST.command()?;
    nextest.args(["nextest", "run", "--workspace", "--message-format", "libtest-json"]);
    nextest.env("NEXTEST_EXPERIMENTAL_LIBTEST_JSON", "1");
    if let Some(profile) = selection.profile.or(workspace::in_ci().then_some("ci")) {
        nextest.args(["--profile", profile]);
    }
    if let Some(filter) = selection.filter {
        // Beside tests of the filter, nextest's reporter does not bear ones that are ignored: it stops with an underflow.
        nextest.args(["--filterset", filter, "--run-ignored", "all"]);
    }
    nextest.envs(selection.environment.iter().copied());
    let mut child = nextest.stdout(Stdio::piped()).spawn().context("could not start cargo-nextest")?;
    let events = BufReader::new(child.stdout.take().context("cargo-nextest has no output")?);
    let mut results = Results::default();
    for line in events.lines() {
        results.add(&line?);
    }
    let counts = results.counts();
    let status = child.wait()?;
    if !status.success() && counts.failed == 0 {
        bail!("the tests did not all run, see above ({status})");
    }
    Ok(Outcome::Tests(counts))
}

/// How each test ended.
///
/// The sums that nextest reports are not used: it closes a program's books whenever no test of it runs at the moment, and
/// so counts what is ignored more than once.
#[derive(Debug, Default)]
struct Results {
    by_name: BTreeMap<String, Ending>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Passed,
    Failed,
    Ignored,
}

impl Results {
    fn add(&mut self, line: &str) {
        let event: Value = serde_json::from_str(line).unwrap_or_default();
        let ending = match event["event"].as_str() {
            Some("ok") => Ending::Passed,
            Some("failed") => Ending::Failed,
            Some("ignored") => Ending::Ignored,
            _ => return,
        };
        if let (Some("test"), Some(name)) = (event["type"].as_str(), event["name"].as_str()) {
            self.by_name.insert(name.to_owned(), ending);
        }
    }

    fn counts(&self) -> Counts {
        let count = |wanted| self.by_name.values().filter(|ending| **ending == wanted).count();
        Counts { passed: count(Ending::Passed), failed: count(Ending::Failed), skipped: count(Ending::Ignored) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_counts_once() {
        let lines = r#"{"type":"suite","event":"started","test_count":4}
{"type":"test","event":"started","name":"a::a$one"}
{"type":"test","event":"ignored","name":"a::a$slow"}
{"type":"test","event":"ok","name":"a::a$one","exec_time":0.1}
{"type":"suite","event":"ok","passed":1,"failed":0,"ignored":1,"measured":0,"filtered_out":0,"exec_time":0.1}
not JSON
{"type":"suite","event":"started","test_count":4}
{"type":"test","event":"ignored","name":"a::a$slow"}
{"type":"test","event":"failed","name":"a::a$two","exec_time":2.0,"reason":"time limit exceeded"}
{"type":"test","event":"ok","name":"b::b$one","exec_time":0.1}
{"type":"suite","event":"failed","passed":1,"failed":1,"ignored":1,"measured":0,"filtered_out":1,"exec_time":2.0}"#;
        let mut results = Results::default();
        lines.lines().for_each(|line| results.add(line));
        assert_eq!(results.counts(), Counts { passed: 2, failed: 1, skipped: 1 });
    }
}
