//! `cargo xtask test`: runs every check, the quick ones first, and prints a summary at the end.

pub(crate) mod checks;
pub(crate) mod nextest;
mod permissions;
mod scaffold;
mod space;

use std::process::ExitCode;

use anyhow::Result;
use clap::builder::PossibleValuesParser;

use self::checks::STEPS;
use crate::steps::{self, Step};

/// Check everything: format, lints, generated files, licences, unit, integration and end-to-end tests
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only these steps, in their usual order
    #[arg(long, value_name = "STEP", value_delimiter = ',', value_parser = names())]
    only: Vec<String>,
    /// Skip these steps
    #[arg(long, value_name = "STEP", value_delimiter = ',', value_parser = names())]
    skip: Vec<String>,
    /// Run only the tests that this nextest expression selects, such as `package(operators-manager)`
    #[arg(long, value_name = "EXPRESSION")]
    filter: Option<String>,
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(STEPS.iter().map(|step| step.name))
}

impl Args {
    fn wants(&self, step: &Step<Self>) -> bool {
        let named = |list: &[String]| list.iter().any(|name| name == step.name);
        (self.only.is_empty() || named(&self.only)) && !named(&self.skip)
    }
}

/// Runs the selected steps.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let chosen: Vec<_> = STEPS.iter().filter(|step| args.wants(step)).collect();
    steps::perform("cargo xtask test", &chosen, args)
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
    fn step_depends_only_on_earlier_steps() {
        for (n, step) in STEPS.iter().enumerate() {
            for needed in step.needs {
                assert!(STEPS[..n].iter().any(|earlier| earlier.name == *needed), "{} needs {needed}", step.name);
            }
        }
    }
}
