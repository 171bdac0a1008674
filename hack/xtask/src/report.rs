//! The summary that a task of many steps prints at its end: a table of the steps, the skipped tests, and a last line with the
//! sums.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use cluster::Missing;

/// Numbers of tests, by result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

/// The names of skipped tests, by reason.
pub(crate) type Skips = BTreeMap<String, BTreeSet<String>>;

/// How a step ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A step with a single check passed.
    Passed,
    /// A step ran tests. It failed if one of them failed.
    Tests(Counts, Skips),
    /// A step with a single check was skipped, with the reason.
    Skipped(String),
    /// The step failed, with the reason, which may have several lines.
    Failed(String),
    /// The step did not run, because it needs this step, which failed.
    NotRun(&'static str),
}

/// The result of one selected step.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) step: &'static str,
    pub(crate) outcome: Outcome,
    pub(crate) took: Duration,
}

/// The results of all selected steps. Its last line has a fixed form, so that programs can parse it.
#[derive(Debug)]
pub(crate) struct Report {
    /// The command that runs the steps again, such as `cargo xtask test`.
    pub(crate) command: &'static str,
    pub(crate) rows: Vec<Row>,
}

impl Outcome {
    /// The outcome of a step that cannot begin. If the machine lacks something, the step is skipped, but not under `CI`: that machine
    /// must have everything.
    pub(crate) fn without(error: &anyhow::Error) -> Self {
        Self::without_in(skip::in_ci(), error)
    }

    fn without_in(ci: bool, error: &anyhow::Error) -> Self {
        let why = format!("{error:#}");
        if error.is::<Missing>() && !ci { Self::Skipped(why) } else { Self::Failed(why) }
    }

    fn counts(&self) -> Counts {
        match self {
            Self::Passed => Counts { passed: 1, ..Counts::default() },
            Self::Tests(counts, _) => *counts,
            Self::Failed(_) => Counts { failed: 1, ..Counts::default() },
            Self::Skipped(_) | Self::NotRun(_) => Counts { skipped: 1, ..Counts::default() },
        }
    }

    fn skips(&self) -> impl Iterator<Item = (&String, &BTreeSet<String>)> {
        let skips = if let Self::Tests(_, skips) = self { Some(skips) } else { None };
        skips.into_iter().flatten()
    }

    /// Whether the step has failed, and with it the whole run.
    pub(crate) fn is_failure(&self) -> bool {
        self.counts().failed > 0
    }
}

impl Report {
    /// Whether this step has failed or did not run. False for a step that was not selected.
    pub(crate) fn lacks(&self, step: &str) -> bool {
        let row = self.rows.iter().find(|row| row.step == step);
        row.is_some_and(|row| row.outcome.is_failure() || matches!(row.outcome, Outcome::NotRun(_)))
    }

    /// Whether no step failed.
    pub(crate) fn is_success(&self) -> bool {
        !self.rows.iter().any(|row| row.outcome.is_failure())
    }

    /// The sums over all tests. A step with a single check counts as one test.
    fn total(&self) -> Counts {
        self.rows.iter().map(|row| row.outcome.counts()).fold(Counts::default(), |sum, it| Counts {
            passed: sum.passed + it.passed,
            failed: sum.failed + it.failed,
            skipped: sum.skipped + it.skipped,
        })
    }
}

impl Display for Counts {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 { write!(f, ", {} skipped", self.skipped) } else { Ok(()) }
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let width = self.rows.iter().map(|row| row.step.len()).max().unwrap_or_default().max("total".len());
        writeln!(f, "  {:width$}  result     time", "step")?;
        for Row { step, outcome, took } in &self.rows {
            let (word, remark) = match outcome {
                Outcome::Passed => ("ok", String::new()),
                Outcome::Tests(counts, _) if counts.failed > 0 => ("FAILED", counts.to_string()),
                Outcome::Tests(counts, _) => ("ok", counts.to_string()),
                Outcome::Skipped(why) => ("skipped", why.clone()),
                Outcome::Failed(why) => ("FAILED", why.lines().next().unwrap_or_default().to_owned()),
                Outcome::NotRun(needed) => ("not run", format!("needs {needed}")),
            };
            let line = format!("  {step:width$}  {word:7}  {:>6}  {remark}", seconds(*took));
            writeln!(f, "{}", line.trim_end())?;
        }
        writeln!(f, "  {:width$}           {:>6}", "total", seconds(self.rows.iter().map(|row| row.took).sum()))?;
        for (reason, tests) in self.rows.iter().flat_map(|row| row.outcome.skips()) {
            let number = if tests.len() == 1 { "1 test".to_owned() } else { format!("{} tests", tests.len()) };
            writeln!(f, "\n{number} skipped: {reason}")?;
            tests.iter().try_for_each(|test| writeln!(f, "  {test}"))?;
        }
        let failed: Vec<_> = self.rows.iter().filter(|row| row.outcome.is_failure()).map(|row| row.step).collect();
        if !failed.is_empty() {
            writeln!(f, "\nTo run only the failed steps: {} --only {}", self.command, failed.join(","))?;
        }
        write!(f, "\n{}", self.total())
    }
}

/// Formats a duration with a precision that fits it, such as "7.3 s" or "12 min".
pub(crate) fn seconds(time: Duration) -> String {
    match time.as_secs() {
        0..100 => format!("{:.1} s", time.as_secs_f64()),
        100..600 => format!("{} s", time.as_secs()),
        longer => format!("{} min", longer / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(step: &'static str, outcome: Outcome, millis: u64) -> Row {
        Row { step, outcome, took: Duration::from_millis(millis) }
    }

    #[test]
    fn step_is_skipped_only_if_the_machine_lacks_something_and_is_not_that_of_ci() {
        let lacking = || anyhow::Error::from(Missing("real nodes need root".to_owned())).context("no cluster");
        let why = "no cluster: real nodes need root".to_owned();
        assert_eq!(Outcome::without_in(false, &lacking()), Outcome::Skipped(why.clone()));
        assert_eq!(Outcome::without_in(true, &lacking()), Outcome::Failed(why));
        let broken = anyhow::anyhow!("etcd ended");
        assert_eq!(Outcome::without_in(false, &broken), Outcome::Failed("etcd ended".to_owned()));
    }

    #[test]
    fn successful_run_is_reported() {
        let tests = Outcome::Tests(Counts { passed: 120, failed: 0, skipped: 0 }, Skips::new());
        let report = Report {
            command: "cargo xtask test",
            rows: vec![row("format", Outcome::Passed, 900), row("tests", tests, 93_400)],
        };
        let expected = "  step    result     time
  format  ok        0.9 s
  tests   ok       93.4 s  120 passed, 0 failed
  total            94.3 s

121 passed, 0 failed";
        assert_eq!(report.to_string(), expected);
        assert!(report.is_success());
    }

    #[test]
    fn skipped_tests_are_listed_with_reason() {
        let skips = [("no browser", &["page"][..]), ("real nodes need root", &["drain", "pods"])];
        let skips = skips.map(|(why, tests)| (why.to_owned(), tests.iter().map(ToString::to_string).collect()));
        let tests = Outcome::Tests(Counts { passed: 9, failed: 0, skipped: 3 }, Skips::from(skips));
        let rows = vec![row("tests", tests, 100), row("permissions", Outcome::Skipped("no real node".to_owned()), 100)];
        let report = Report { command: "cargo xtask test", rows };
        let text = report.to_string();
        assert!(text.contains("tests        ok        0.1 s  9 passed, 0 failed, 3 skipped\n"), "{text}");
        assert!(text.contains("permissions  skipped   0.1 s  no real node\n"), "{text}");
        let end = "

1 test skipped: no browser
  page

2 tests skipped: real nodes need root
  drain
  pods

9 passed, 0 failed, 4 skipped";
        assert!(text.ends_with(end), "{text}");
        assert!(report.is_success());
    }

    #[test]
    fn failed_run_names_steps_to_rerun() {
        let failed = Outcome::Failed("3 findings\nand more".to_owned());
        let tests = Outcome::Tests(Counts { passed: 7, failed: 2, skipped: 1 }, Skips::new());
        let rows =
            vec![row("tidy", failed, 100), row("images", Outcome::NotRun("tidy"), 0), row("tests", tests, 610_000)];
        let report = Report { command: "cargo xtask test", rows };
        let text = report.to_string();
        assert!(text.contains("tidy    FAILED    0.1 s  3 findings\n"), "{text}");
        assert!(text.contains("images  not run   0.0 s  needs tidy\n"), "{text}");
        assert!(text.contains("tests   FAILED   10 min  7 passed, 2 failed, 1 skipped\n"), "{text}");
        assert!(text.contains(": cargo xtask test --only tidy,tests\n"), "{text}");
        assert!(text.ends_with("\n7 passed, 3 failed, 2 skipped"), "{text}");
        assert!(!report.is_success() && report.lacks("tidy") && report.lacks("images") && !report.lacks("format"));
    }
}
