//! Runs the steps of a long task. Each step prints how it ended, and a table at the end repeats all results.

use std::io::{IsTerminal as _, Write as _, stdout};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::report::{Outcome, Report, Row, seconds};

/// One step of a task with these arguments.
pub(crate) struct Step<A: 'static> {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// Steps that must not have failed before this one runs.
    pub(crate) needs: &'static [&'static str],
    pub(crate) run: fn(&A) -> Result<Outcome>,
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
