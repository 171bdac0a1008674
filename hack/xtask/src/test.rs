//! `cargo xtask test`: every check there is, the quick ones first, and a summary at the end.

mod nextest;
mod permissions;
mod steps;

use std::io::{IsTerminal as _, Write as _, stdout};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::builder::PossibleValuesParser;

use self::steps::{STEPS, Step};
use crate::report::{Outcome, Report, Row, seconds};

/// Check everything: format, lints, generated files, licences, unit, integration and end-to-end tests
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Do these steps only, and in their usual order
    #[arg(long, value_name = "STEP", value_delimiter = ',', value_parser = names())]
    only: Vec<String>,
    /// Leave these steps out
    #[arg(long, value_name = "STEP", value_delimiter = ',', value_parser = names())]
    skip: Vec<String>,
    /// Run only the tests that this nextest expression selects, such as `package(manager)`
    #[arg(long, value_name = "EXPRESSION")]
    filter: Option<String>,
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(STEPS.iter().map(|step| step.name))
}

impl Args {
    fn wants(&self, step: &Step) -> bool {
        let named = |list: &[String]| list.iter().any(|name| name == step.name);
        (self.only.is_empty() || named(&self.only)) && !named(&self.skip)
    }
}

/// Does the steps one after the other. A failed one stops only those that need it, so that one run tells everything.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let chosen: Vec<_> = STEPS.iter().filter(|step| args.wants(step)).collect();
    let mut report = Report::default();
    for (n, step) in (1..).zip(&chosen) {
        let missing = step.needs.iter().copied().find(|needed| report.lacks(needed));
        let (outcome, took) = match missing {
            Some(needed) => (Outcome::NotRun(needed), Duration::ZERO),
            None => perform(step, args, &format!("[{n}/{}] {}", chosen.len(), step.name)),
        };
        report.rows.push(Row { step: step.name, outcome, took });
    }
    eprintln!();
    writeln!(stdout(), "{report}")?;
    Ok(if report.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn perform(step: &Step, args: &Args, heading: &str) -> (Outcome, Duration) {
    eprintln!("\n{}", emphasised(&format!("{heading}: {}", step.title)));
    let begun = Instant::now();
    let outcome = (step.run)(args).unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
    let took = begun.elapsed();
    match &outcome {
        Outcome::Failed(why) => eprintln!("{heading}: FAILED after {}: {why}", seconds(took)),
        Outcome::Tests(counts) => eprintln!("{heading}: {counts} in {}", seconds(took)),
        Outcome::Passed | Outcome::NotRun(_) => eprintln!("{heading}: ok, {}", seconds(took)),
    }
    (outcome, took)
}

/// Bold where people look at it.
fn emphasised(text: &str) -> String {
    if std::io::stderr().is_terminal() { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(only: &[&str], skip: &[&str]) -> Vec<&'static str> {
        let owned = |list: &[&str]| list.iter().map(ToString::to_string).collect();
        let args = Args { only: owned(only), skip: owned(skip), filter: None };
        STEPS.iter().filter(|step| args.wants(step)).map(|step| step.name).collect()
    }

    #[test]
    fn steps_are_chosen_by_name() {
        assert_eq!(chosen(&["tests", "format"], &[]), ["format", "tests"]);
        assert_eq!(chosen(&["tests", "format"], &["tests"]), ["format"]);
        assert_eq!(chosen(&[], &["tests"]).len(), STEPS.len() - 1);
    }

    #[test]
    fn a_step_needs_only_what_comes_before_it() {
        for (n, step) in STEPS.iter().enumerate() {
            for needed in step.needs {
                assert!(STEPS[..n].iter().any(|earlier| earlier.name == *needed), "{} needs {needed}", step.name);
            }
        }
    }
}
