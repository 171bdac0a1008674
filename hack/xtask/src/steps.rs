//! Runs the steps of a long task. Each step prints how it ended, and a table at the end repeats all results.

use std::io::{IsTerminal as _, Write as _, stdout};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::builder::PossibleValuesParser;

use crate::report::{Outcome, Report, Row, seconds};

/// One step of a task with these arguments.
pub(crate) struct Step<A: 'static> {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// Steps that must not have failed before this one runs.
    pub(crate) needs: &'static [&'static str],
    pub(crate) run: fn(&A) -> Result<Outcome>,
}

/// The values of the flags `--only` and `--skip`.
pub(crate) fn names<A>(steps: &[Step<A>]) -> PossibleValuesParser {
    PossibleValuesParser::new(steps.iter().map(|step| step.name))
}

/// The steps that these flags select, in their usual order. Without `only`, it selects all but those of `skip`.
pub(crate) fn chosen<'a, A>(steps: &'a [Step<A>], only: &[String], skip: &[String]) -> Vec<&'a Step<A>> {
    let named = |list: &[String], step: &Step<A>| list.iter().any(|name| name == step.name);
    steps.iter().filter(|step| (only.is_empty() || named(only, step)) && !named(skip, step)).collect()
}

/// Runs the steps one after the other and prints a report. A failed step stops only the steps that need it, so that one run finds
/// as many failures as possible. The report suggests `command --only …` to repeat the failed steps.
pub(crate) fn perform<A>(command: &'static str, steps: &[&Step<A>], args: &A) -> Result<ExitCode> {
    let mut report = Report { command, rows: Vec::new() };
    for (n, step) in (1..).zip(steps) {
        let missing = step.needs.iter().copied().find(|needed| report.lacks(needed));
        let (outcome, took) = match missing {
            Some(needed) => (Outcome::NotRun(needed), Duration::ZERO),
            None => one(step, args, &format!("[{n}/{}] {}", steps.len(), step.name)),
        };
        report.rows.push(Row { step: step.name, outcome, took });
    }
    eprintln!();
    writeln!(stdout(), "{report}")?;
    Ok(if report.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn one<A>(step: &Step<A>, args: &A, heading: &str) -> (Outcome, Duration) {
    eprintln!("\n{}", emphasised(&format!("{heading}: {}", step.title)));
    let begun = Instant::now();
    let outcome = (step.run)(args).unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
    let took = begun.elapsed();
    match &outcome {
        Outcome::Failed(why) => eprintln!("{heading}: FAILED after {}: {why}", seconds(took)),
        Outcome::Tests(counts, _) => eprintln!("{heading}: {counts} in {}", seconds(took)),
        Outcome::Skipped(why) => eprintln!("{heading}: skipped: {why}"),
        Outcome::Passed | Outcome::NotRun(_) => eprintln!("{heading}: ok, {}", seconds(took)),
    }
    (outcome, took)
}

/// The text in bold if standard error is a terminal.
fn emphasised(text: &str) -> String {
    if std::io::stderr().is_terminal() { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Checks that each step needs only earlier ones.
    pub(crate) fn assert_order<A>(steps: &[Step<A>]) {
        for (n, step) in steps.iter().enumerate() {
            for needed in step.needs {
                assert!(steps[..n].iter().any(|earlier| earlier.name == *needed), "{} needs {needed}", step.name);
            }
        }
    }

    #[test]
    fn steps_are_chosen_by_name() {
        let step = |name: &'static str| Step::<u8> { name, title: name, needs: &[], run: |_| Ok(Outcome::Passed) };
        let steps = ["format", "tidy", "tests"].map(step);
        let named = |only: &[&str], skip: &[&str]| {
            let owned = |list: &[&str]| -> Vec<String> { list.iter().map(ToString::to_string).collect() };
            chosen(&steps, &owned(only), &owned(skip)).iter().map(|step| step.name).collect::<Vec<_>>()
        };
        assert_eq!(named(&["tests", "format"], &[]), ["format", "tests"]);
        assert_eq!(named(&["tests", "format"], &["tests"]), ["format"]);
        assert_eq!(named(&[], &["tests"]), ["format", "tidy"]);
    }
}
