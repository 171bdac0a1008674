//! Runs tests with cargo-nextest and counts their results.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::num::NonZero;
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use installation::Backend;
use serde_json::Value;
use skip::Skipped;
use tempfile::NamedTempFile;

use crate::cargo_tools::NEXTEST;
use crate::report::{Counts, Outcome, Skips};
use crate::sample::fresh_seed;

/// Which tests to run, and how.
#[derive(Debug, Default)]
pub(crate) struct Selection<'a> {
    /// A filter expression of nextest; `None` runs all tests.
    pub(crate) filter: Option<&'a str>,
    /// The only package whose tests to build, such as `operators-slots`; `None` builds those of all packages.
    pub(crate) package: Option<&'a str>,
    /// The names of the only test programs to build, in whichever packages, such as `acceptance`; none builds all. The filter alone
    /// would not spare the others: nextest applies it to finished programs.
    pub(crate) programs: &'a [&'a str],
    /// A profile of `.config/nextest.toml`.
    pub(crate) profile: Option<&'a str>,
    /// Environment variables for the tests, as names and values.
    pub(crate) environment: &'a [(&'a str, &'a str)],
}

/// Runs the selected tests. Standard error shows nextest's usual output to the user. The counts come from standard output, which
/// has a line of JSON for each event.
pub(crate) fn run(selection: &Selection<'_>) -> Result<Outcome> {
    let mut nextest = NEXTEST.command()?;
    nextest.args(["nextest", "run", "--message-format", "libtest-json"]).args(built(selection));
    nextest.env("NEXTEST_EXPERIMENTAL_LIBTEST_JSON", "1");
    if let Some(profile) = selection.profile.or(skip::in_ci().then_some("ci")) {
        nextest.args(["--profile", profile]);
    }
    if let Some(filter) = selection.filter {
        nextest.args(["--filterset", filter]);
    }
    if std::env::var_os("NEXTEST_TEST_THREADS").is_none() {
        nextest.args(["--test-threads", &tests_at_once(backend(selection)?).to_string()]);
    }
    let seed = seed();
    eprintln!("SEED={seed} selects the samples of faults and interferences; set it to repeat the same samples");
    let record = NamedTempFile::new()?;
    nextest.env("SEED", seed).env(skip::RECORD, record.path()).envs(selection.environment.iter().copied());
    let mut child = nextest.stdout(Stdio::piped()).spawn().context("could not start cargo-nextest")?;
    let events = BufReader::new(child.stdout.take().context("cargo-nextest has no output")?);
    let mut results = Results::default();
    for line in events.lines() {
        results.add(&line?);
    }
    let status = child.wait()?;
    if !status.success() && results.counts().failed == 0 {
        bail!("some tests did not run, see above ({status})");
    }
    results.skip(skip::read(record.path())?)?;
    Ok(Outcome::Tests(results.counts(), results.skips()))
}

/// The arguments that limit what Cargo builds.
fn built<'a>(selection: &Selection<'a>) -> Vec<&'a str> {
    let mut arguments = selection.package.map_or_else(|| vec!["--workspace"], |package| vec!["--package", package]);
    arguments.extend(selection.programs.iter().flat_map(|&program| ["--test", program]));
    arguments
}

/// The backend of these tests: that of the selection's variables, or else of this process.
fn backend(selection: &Selection<'_>) -> Result<Backend> {
    let chosen = selection.environment.iter().find(|(name, _)| *name == "E2E_CLUSTER");
    chosen.map_or_else(Backend::chosen, |(_, name)| Backend::named(name))
}

/// How many tests run at the same time. Tests with a cluster wait more than they compute, so one test more than there are cores
/// keeps the cores busy. On kind, each cluster has three nodes, which need much memory.
fn tests_at_once(backend: Backend) -> usize {
    match backend {
        Backend::Kind => 1,
        Backend::Local | Backend::Existing => std::thread::available_parallelism().map_or(1, NonZero::get) + 1,
    }
}

/// The seed of all tests: the value of `SEED`, or a fresh number. One seed for all, so that one variable repeats the whole run.
fn seed() -> String {
    std::env::var("SEED").ok().filter(|seed| !seed.is_empty()).unwrap_or_else(|| fresh_seed().to_string())
}

/// The result of each test.
///
/// The counts come from single tests, not from nextest's events for suites: nextest reports a suite as ended whenever none of its
/// tests runs at the moment. With a test that has Rust's `ignore` attribute, nextest's reporter fails with an underflow; so
/// `tidy` forbids the attribute.
#[derive(Debug, Default)]
struct Results {
    by_name: BTreeMap<String, Ending>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Ending {
    Passed,
    Failed,
    /// The test passed, and recorded the reason why it tested nothing.
    Skipped(String),
}

impl Results {
    fn add(&mut self, line: &str) {
        let event: Value = serde_json::from_str(line).unwrap_or_default();
        let ending = match event["event"].as_str() {
            Some("ok") => Ending::Passed,
            Some("failed") => Ending::Failed,
            _ => return,
        };
        if let (Some("test"), Some(name)) = (event["type"].as_str(), event["name"].as_str()) {
            self.by_name.insert(name.to_owned(), ending);
        }
    }

    /// Counts passed tests as skipped if they recorded a reason for skipping. A failed test stays failed.
    fn skip(&mut self, skipped: Vec<Skipped>) -> Result<()> {
        for Skipped { binary, test, reason } in skipped {
            let name = event_name(&binary, &test);
            match self.by_name.get_mut(&name) {
                Some(ending @ Ending::Passed) => *ending = Ending::Skipped(reason),
                Some(_) => {}
                None => bail!("{name} recorded that it was skipped ({reason}), but nextest did not run it"),
            }
        }
        Ok(())
    }

    fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for ending in self.by_name.values() {
            match ending {
                Ending::Passed => counts.passed += 1,
                Ending::Failed => counts.failed += 1,
                Ending::Skipped(_) => counts.skipped += 1,
            }
        }
        counts
    }

    fn skips(&self) -> Skips {
        let mut skips = Skips::new();
        for (name, ending) in &self.by_name {
            if let Ending::Skipped(reason) = ending {
                skips.entry(reason.clone()).or_default().insert(name.clone());
            }
        }
        skips
    }
}

/// The name of a test in nextest's events, `package::program$test`. Nextest's identifiers of programs differ: the identifier of a
/// library is the package alone, and the identifiers of all programs but tests have the kind before the name.
fn event_name(binary: &str, test: &str) -> String {
    if let Some((package, program)) = binary.split_once("::") {
        return format!("{package}::{}${test}", program.rsplit('/').next().unwrap_or(program));
    }
    let library = binary.strip_prefix("operators-").unwrap_or(binary).replace('-', "_");
    format!("{binary}::{library}${test}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    #[test]
    fn selection_limits_what_is_built() {
        assert_eq!(built(&Selection::default()), ["--workspace"]);
        let programs = Selection { programs: &["chart", "e2e"], ..Default::default() };
        assert_eq!(built(&programs), ["--workspace", "--test", "chart", "--test", "e2e"]);
        let package = Selection { package: Some("operators-slots"), ..Default::default() };
        assert_eq!(built(&package), ["--package", "operators-slots"]);
    }

    const LINES: &str = r#"{"type":"suite","event":"started","test_count":3}
{"type":"test","event":"started","name":"a::a$one"}
{"type":"test","event":"ok","name":"a::a$one","exec_time":0.1}
{"type":"suite","event":"ok","passed":1,"failed":0,"ignored":0,"measured":0,"filtered_out":0,"exec_time":0.1}
not JSON
{"type":"suite","event":"started","test_count":3}
{"type":"test","event":"failed","name":"a::a$two","exec_time":2.0,"reason":"time limit exceeded"}
{"type":"test","event":"ok","name":"b::b$one","exec_time":0.1}
{"type":"suite","event":"failed","passed":1,"failed":1,"ignored":0,"measured":0,"filtered_out":1,"exec_time":2.0}"#;

    fn results() -> Results {
        let mut results = Results::default();
        LINES.lines().for_each(|line| results.add(line));
        results
    }

    fn skipped(binary: &str, test: &str) -> Skipped {
        Skipped { binary: binary.to_owned(), test: test.to_owned(), reason: "no browser".to_owned() }
    }

    #[test]
    fn backend_is_that_of_the_variables_of_the_tests() {
        let selection = Selection { environment: &[("E2E_CLUSTER", "kind")], ..Default::default() };
        assert_eq!(backend(&selection).unwrap(), Backend::Kind);
    }

    /// A name that no test has any more would put the test into the group of the shared manager. Only the duration would show that.
    #[test]
    fn tests_that_the_configuration_names_exist() {
        let configuration = std::fs::read_to_string(workspace::root().join(".config/nextest.toml")).unwrap();
        let names: Vec<_> = configuration.split("test(=").skip(1).map(|rest| rest.split(')').next().unwrap()).collect();
        assert!(!names.is_empty());
        for name in names {
            let (module, function) = name.rsplit_once("::").unwrap();
            let code = std::fs::read_to_string(workspace::root().join(format!("e2e/tests/e2e/{module}.rs"))).unwrap();
            assert!(code.contains(&format!("fn {function}()")), "there is no test {name}");
        }
    }

    #[test]
    fn every_test_counts_once() {
        assert_eq!(results().counts(), Counts { passed: 2, failed: 1, skipped: 0 });
    }

    #[test]
    fn skipped_test_does_not_count_as_passed() {
        let mut results = results();
        // The first records it twice, as a test with two clusters does. The second skipped a part of itself, then failed.
        results.skip(vec![skipped("b", "one"), skipped("b", "one"), skipped("a", "two")]).unwrap();
        assert_eq!(results.counts(), Counts { passed: 1, failed: 1, skipped: 1 });
        let one = ("no browser".to_owned(), ["b::b$one".to_owned()].into());
        assert_eq!(results.skips(), Skips::from([one]));
    }

    #[test]
    fn skip_record_without_test_is_an_error() {
        assert!(results().skip(vec![skipped("c", "one")]).unwrap_err().to_string().starts_with("c::c$one recorded"));
    }

    #[test]
    fn event_name_joins_package_binary_and_test() {
        assert_eq!(event_name("booking-server", "page::it"), "booking-server::booking_server$page::it");
        assert_eq!(event_name("operators-api-errors", "it"), "operators-api-errors::api_errors$it");
        assert_eq!(event_name("e2e::chart", "it"), "e2e::chart$it");
        assert_eq!(event_name("xtask::bin/xtask", "tidy::it"), "xtask::xtask$tidy::it");
    }
}
