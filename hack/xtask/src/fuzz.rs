//! `cargo xtask fuzz`: gives random inputs to whatever reads what others write.

use std::process::ExitCode;

use anyhow::Result;

use crate::report::Outcome;
use crate::steps::{self, Step};
use crate::test::nextest;

/// The tests that take random inputs.
const TESTS: &str = "test(/(^|::)fuzz_/)";
/// Seconds for each target, each night.
const NIGHTLY: u64 = 60;

/// Give random inputs to whatever reads what others write, such as requests, reviews and watches
///
/// The inputs resemble real ones, and follow from fresh seeds. A failure prints its seed, which --seed repeats, and keeps the input
/// in a file. Put the file into the folder `fuzz/TARGET` of the package; from then on every test run checks it first.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Seconds for each target
    #[arg(long, value_name = "N", default_value_t = NIGHTLY, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Check only the input of this seed; choose the target with --only
    #[arg(long, value_name = "N", requires = "only")]
    seed: Option<u64>,
    /// Run only the targets whose test has this in its name, such as `watch`
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

const STEPS: &[Step<Args>] = &[Step {
    name: "fuzz",
    title: "random inputs",
    needs: &[],
    run: |args| fuzz(args.only.as_deref(), args.seconds, args.seed),
}];

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    steps::perform("cargo xtask fuzz", &STEPS.iter().collect::<Vec<_>>(), args)
}

/// Runs all targets for a minute each.
pub(crate) fn nightly() -> Result<Outcome> {
    fuzz(None, NIGHTLY, None)
}

fn fuzz(only: Option<&str>, seconds: u64, seed: Option<u64>) -> Result<Outcome> {
    let filter = only.map(|name| format!("{TESTS} & test({name})"));
    let (seconds, seed) = (seconds.to_string(), seed.map(|seed| seed.to_string()));
    let seed = seed.as_deref().map(|seed| ("FUZZ_SEED", seed));
    let environment: Vec<_> = [("FUZZ_SECONDS", seconds.as_str())].into_iter().chain(seed).collect();
    let filter = Some(filter.as_deref().unwrap_or(TESTS));
    nextest::run(&nextest::Selection {
        filter,
        profile: Some("nightly"),
        environment: &environment,
        ..Default::default()
    })
}
