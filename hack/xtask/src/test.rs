//! `cargo xtask test`: runs every check, the quick ones first, and prints a summary at the end.

pub(crate) mod checks;
pub(crate) mod nextest;
mod permissions;
pub(crate) mod scaffold;
mod space;

use std::process::ExitCode;

use anyhow::Result;

use self::checks::STEPS;
use crate::steps;

/// Check everything: format, lints, generated files, licences, unit, integration and end-to-end tests
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only these steps, in their usual order
    #[arg(long, value_name = "STEP", value_delimiter = ',', value_parser = steps::names(STEPS))]
    only: Vec<String>,
    /// Skip these steps
    #[arg(long, value_name = "STEP", value_delimiter = ',', value_parser = steps::names(STEPS))]
    skip: Vec<String>,
    /// Run only the tests that this nextest expression selects, such as `package(operators-manager)`
    #[arg(long, value_name = "EXPRESSION")]
    filter: Option<String>,
    /// Build and run only the integration tests of this name, in all packages, such as `acceptance`; much faster after a change
    #[arg(long = "test", value_name = "NAME", value_delimiter = ',')]
    programs: Vec<String>,
}

impl Args {
    /// Whether only some of the tests run.
    fn is_selection(&self) -> bool {
        self.filter.is_some() || !self.programs.is_empty()
    }
}

/// Runs the selected steps.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    steps::perform("cargo xtask test", &steps::chosen(STEPS, &args.only, &args.skip), args)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_depends_only_on_earlier_steps() {
        steps::tests::assert_order(STEPS);
    }
}
