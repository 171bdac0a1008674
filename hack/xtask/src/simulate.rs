//! `cargo xtask simulate`: runs operators in random simulated worlds, from fresh seeds, or from a given seed to repeat a failure.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Result, bail};

use crate::report::Outcome;
use crate::workspace;

/// The test in each operator's `tests/simulation.rs` that plays the worlds.
const TEST: &str = "every_world_ends_as_specified";

/// The package of the operators of unusual shapes. Its worlds are played with those of the other operators at night.
const EXAMPLES: &str = "example-operators";
/// The package of the worlds with several operators in each process, as the shipped program has.
const TOGETHER: &str = "controller-manager";
/// Part of the names of the tests that play worlds, in a package with several of them.
const TESTS_OF_SEVERAL: &str = "every_world_of_";

/// Play random worlds of the operators in simulated time; a failed world can be repeated from its seed
#[derive(Default, clap::Args)]
pub(crate) struct Args {
    /// Play only this operator, or with controller-manager several in one process [default: all]
    #[arg(long, value_name = "NAME")]
    operator: Option<String>,
    /// Seed of the first world; without --seeds and --minutes, play only this world [default: a fresh seed]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Number of worlds; each next world has the next seed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// Minutes of real time for each operator [default: 2, or no limit with --seed or --seeds]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_440))]
    minutes: Option<u64>,
    /// Play the world in this file, which --save has written
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seed", "seeds", "minutes"], requires = "operator")]
    world: Option<PathBuf>,
    /// Write the shortest world that still fails to this file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Write the whole trace of a failure to this file
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Fail if a disturbance never had an effect at a moment at which it can have one
    #[arg(long)]
    every_cell: bool,
}

/// Plays fresh worlds for `minutes` for each operator, then as long those of several operators in one process, and those of each
/// example operator. Prints how often each disturbance had an effect. A disturbance without any effect is a failure, because it no
/// longer tests anything.
pub(crate) fn play_for(minutes: u64) -> Result<Outcome> {
    let mut succeeded = true;
    for (package, test) in tests_of_a_night()? {
        succeeded &= play(&package, test, &args_of_a_night(minutes))?;
    }
    if !succeeded {
        bail!("a world did not end as specified, or a disturbance never had an effect; see above");
    }
    Ok(Outcome::Passed)
}

/// The packages whose worlds are played at night, each with the names of its tests.
fn tests_of_a_night() -> Result<Vec<(String, &'static str)>> {
    let mut tests: Vec<_> = choices()?.iter().map(|name| test_of(name)).collect();
    tests.push((EXAMPLES.to_owned(), TESTS_OF_SEVERAL));
    Ok(tests)
}

fn args_of_a_night(minutes: u64) -> Args {
    Args { minutes: Some(minutes), every_cell: true, ..Args::default() }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let all = choices()?;
    let chosen: Vec<&String> = all.iter().filter(|name| args.operator.as_ref().is_none_or(|it| it == *name)).collect();
    if chosen.is_empty() {
        bail!("{:?} has no worlds; choose one of {}", args.operator.as_deref().unwrap_or_default(), all.join(", "));
    }
    let mut succeeded = true;
    for name in chosen {
        let (package, test) = test_of(name);
        succeeded &= play(&package, test, args)?;
    }
    Ok(if succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs the tests of a package whose names contain `test`, one after the other, because each uses all processors. Returns whether
/// they succeeded.
fn play(package: &str, test: &str, args: &Args) -> Result<bool> {
    let mut worlds = workspace::cargo();
    worlds.args(["test", "--quiet", "--package", package, "--test", "simulation"]);
    worlds.args([test, "--", "--nocapture", "--test-threads", "1"]).env("RUST_BACKTRACE", "0");
    worlds.envs(environment(args));
    Ok(worlds.status()?.success())
}

/// The package with the worlds of this choice, and the test there that plays them.
pub(crate) fn test_of(choice: &str) -> (String, &'static str) {
    if choice == TOGETHER { (TOGETHER.to_owned(), TESTS_OF_SEVERAL) } else { (format!("{choice}-operator"), TEST) }
}

/// Whose worlds can be played: those of each operator, and last those of several in one process.
pub(crate) fn choices() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(workspace::root().join("operators"))? {
        let entry = entry?;
        if entry.path().join("tests/simulation.rs").exists() {
            names.extend(entry.file_name().to_string_lossy().strip_suffix("-operator").map(str::to_owned));
        }
    }
    names.sort();
    names.push(TOGETHER.to_owned());
    Ok(names)
}

/// The environment variables that the crate `simulation` reads; its README explains them.
fn environment(args: &Args) -> Vec<(&'static str, String)> {
    let ends = args.seed.is_some() || args.seeds.is_some();
    let minutes = args.minutes.or((!ends).then_some(2));
    // With a number of worlds and no seed, the seeds are fresh, and the limit is so long that it never applies.
    let longest = args.seeds.filter(|_| args.seed.is_none()).map(|_| 1_440);
    let seconds = minutes.or(longest).map(|minutes| (minutes * 60).to_string());
    // Absolute paths, because tests run in the folder of their package.
    let file = |file: &Option<PathBuf>| {
        let file = file.as_ref()?;
        Some(std::path::absolute(file).unwrap_or_else(|_| file.clone()).display().to_string())
    };
    [
        ("SIMULATE_SEED", args.seed.map(|seed| seed.to_string())),
        ("SIMULATE_WORLDS", args.seeds.map(|seeds| seeds.to_string())),
        ("SIMULATE_SECONDS", seconds),
        ("SIMULATE_WORLD", file(&args.world)),
        ("SIMULATE_SAVE", file(&args.save)),
        ("SIMULATE_TRACE", file(&args.trace)),
        ("SIMULATE_EVERY_CELL", args.every_cell.then(|| "yes".to_owned())),
    ]
    .into_iter()
    .filter_map(|(variable, value)| Some((variable, value?)))
    .collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Simulate {
        #[command(flatten)]
        args: Args,
    }

    fn told(flags: &[&str]) -> Vec<String> {
        variables(&Simulate::parse_from(std::iter::once(&"simulate").chain(flags)).args)
    }

    fn variables(args: &Args) -> Vec<String> {
        environment(args).into_iter().map(|(variable, value)| format!("{variable}={value}")).collect()
    }

    #[test]
    fn flags_set_environment_variables() {
        assert_eq!(told(&[]), ["SIMULATE_SECONDS=120"]);
        assert_eq!(told(&["--minutes", "10"]), ["SIMULATE_SECONDS=600"]);
        assert_eq!(told(&["--seed", "7"]), ["SIMULATE_SEED=7"]);
        assert_eq!(told(&["--seed", "7", "--seeds", "3"]), ["SIMULATE_SEED=7", "SIMULATE_WORLDS=3"]);
        assert_eq!(told(&["--seed", "7", "--every-cell"]), ["SIMULATE_SEED=7", "SIMULATE_EVERY_CELL=yes"]);
        assert_eq!(told(&["--seeds", "3"]), ["SIMULATE_WORLDS=3", "SIMULATE_SECONDS=86400"]);
    }

    #[test]
    fn examples_and_several_operators_in_one_process_have_worlds() {
        let files = workspace::files().expect("the files");
        let examples = format!("shared/manager/examples/{EXAMPLES}/tests/simulation/main.rs");
        for path in [examples, format!("operators/{TOGETHER}/tests/simulation.rs")] {
            let tests = files.iter().find(|file| file.path == path).expect("the tests of the package");
            assert!(tests.text.contains(&format!("fn {TESTS_OF_SEVERAL}")), "{path}");
        }
    }

    #[test]
    fn every_disturbance_must_have_an_effect_in_all_worlds_of_a_night() {
        let tests = tests_of_a_night().expect("a list");
        for package in ["memcached-operator", TOGETHER, EXAMPLES] {
            assert!(tests.iter().any(|(other, _)| other == package), "{package}");
        }
        let expected = ["SIMULATE_SECONDS=240", "SIMULATE_EVERY_CELL=yes"].map(str::to_owned);
        assert_eq!(variables(&args_of_a_night(4)), expected);
    }

    #[test]
    fn operators_with_worlds_are_found() {
        let choices = choices().expect("a list");
        assert!(choices.iter().any(|name| name == "memcached") && choices.ends_with(&[TOGETHER.to_owned()]));
        assert_eq!(test_of("memcached"), ("memcached-operator".to_owned(), TEST));
        assert_eq!(test_of(TOGETHER), (TOGETHER.to_owned(), TESTS_OF_SEVERAL));
    }
}
