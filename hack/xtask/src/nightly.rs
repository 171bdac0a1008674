//! `cargo xtask nightly`: the checks that take too long for each change. `cargo xtask test` runs samples of them.

use std::process::ExitCode;

use anyhow::Result;

use crate::attack;
use crate::crates;
use crate::fuzz;
use crate::mutants;
use crate::one_more_operator;
use crate::report::Outcome;
use crate::simulate;
use crate::steps::{self, Step};
use crate::test::{checks, nextest};
use crate::workspace;

/// Run the checks that take hours: all interferences, all fault plans, the model API server, random worlds, random inputs, attacks, packages of crates, mutants, IPv6, kind, races
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only these steps, in their usual order
    #[arg(long, value_name = "STEP", value_delimiter = ',', value_parser = clap::builder::PossibleValuesParser::new(STEPS.iter().map(|step| step.name)))]
    only: Vec<String>,
    /// How many minutes to play each operator's worlds
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1_440))]
    minutes: u64,
}

const STEPS: &[Step<Args>] = &[
    Step { name: "tools", title: "cargo-nextest and system packages", needs: &[], run: |_| checks::tools() },
    Step {
        name: "cluster",
        title: "the programs that clusters are made of",
        needs: &["tools"],
        run: |_| checks::cluster(),
    },
    Step {
        name: "interferences",
        title: "every interference by another client, at every moment of every request",
        needs: &["tools"],
        run: |_| whole("INTERFERENCES", "binary(interference) | test(/^interference::/)"),
    },
    Step {
        name: "faults",
        title: "every fault plan of the campaigns",
        needs: &["tools", "cluster"],
        run: |_| whole("FAULT_PLANS", "test(/campaign::|proxied::|a15_|c5_/) | binary(in_memory)"),
    },
    Step {
        name: "chart",
        title: "the effect of every value of the chart",
        needs: &["tools", "cluster"],
        run: |_| whole("CHART_VALUES", "package(chart) & test(/^every_value::/)"),
    },
    Step {
        name: "fidelity",
        title: "20,000 random requests, to the model API server and to a real one",
        needs: &["tools", "cluster"],
        run: |_| whole("MODEL_CASES", "package(operators-model-apiserver) & binary(conformance)"),
    },
    Step {
        name: "migration",
        title: "10,000 objects rewritten in another version by a command that is killed again and again",
        needs: &["tools", "cluster"],
        run: |_| whole("STORED_OBJECTS", "package(controller-manager) & test(/^migration::/)"),
    },
    Step {
        name: "worlds",
        title: "random worlds from fresh seeds",
        needs: &[],
        run: |args| simulate::play_for(args.minutes),
    },
    Step {
        name: "fuzz",
        title: "a minute of random inputs for whatever reads what others write",
        needs: &["tools"],
        run: |_| fuzz::nightly(),
    },
    Step {
        name: "attacks",
        title: "ten minutes of attacks on the programs of the image, without credentials",
        needs: &[],
        run: |_| attack::nightly(),
    },
    Step {
        name: "one-more-operator",
        title: "a new operator needs its folder, and one line in each of four files",
        needs: &["cluster"],
        run: |_| one_more_operator::check(),
    },
    Step {
        name: "crates",
        title: "the crates that others can depend on, as packages: alone, and in a project of a user",
        needs: &[],
        run: |_| crates::check(),
    },
    Step {
        name: "semver",
        title: "their public API has changed no more than their version",
        needs: &[],
        run: |_| crates::semver(),
    },
    Step {
        name: "mutants",
        title: "a sample of small changes to the code, each of which must fail a test",
        needs: &[],
        run: |_| mutants::sample(),
    },
    Step {
        name: "ipv6",
        title: "the end-to-end tests on a cluster with IPv6 alone",
        needs: &["tools", "cluster"],
        run: |_| ipv6(),
    },
    Step {
        name: "kind",
        title: "the end-to-end tests on kind, with nodes that this repository builds where Docker or Podman does not run",
        needs: &["tools", "cluster"],
        run: |_| kind(),
    },
    Step {
        name: "races",
        title: "changes that race with the operator's own writes, on a real API server",
        needs: &["cluster"],
        run: |_| races(),
    },
];

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let is_wanted = |step: &&Step<Args>| args.only.is_empty() || args.only.iter().any(|name| name == step.name);
    let chosen: Vec<_> = STEPS.iter().filter(is_wanted).collect();
    steps::perform("cargo xtask nightly", &chosen, args)
}

/// Runs tests completely that usually run a sample: the variable `variable` selects all cases.
fn whole(variable: &str, filter: &str) -> Result<Outcome> {
    let environment = [(variable, "all")];
    let selection = nextest::Selection { filter: Some(filter), profile: Some("nightly"), environment: &environment };
    nextest::run(&selection)
}

fn ipv6() -> Result<Outcome> {
    let environment = [("E2E_IP_FAMILY", "ipv6"), ("E2E_PROFILE", "release"), ("HELM_VERSIONS", "all")];
    let filter = Some("package(e2e) & (binary(e2e) | binary(chart))");
    nextest::run(&nextest::Selection { filter, profile: Some("nightly"), environment: &environment })
}

fn kind() -> Result<Outcome> {
    let environment = [("E2E_CLUSTER", "kind"), ("E2E_PROFILE", "release"), ("HELM_VERSIONS", "all")];
    let filter = Some("package(e2e) & (binary(e2e) | binary(chart))");
    let tests = nextest::run(&nextest::Selection { filter, profile: Some("nightly"), environment: &environment });
    installation::delete_kind()?; // also after a failure: its nodes need much memory
    tests
}

fn races() -> Result<Outcome> {
    let mut build = workspace::cargo();
    build.args(["build", "--release", "--package", "controller-manager"]);
    workspace::run(&mut build, "the controller-manager does not build, see above")?;
    let mut races = workspace::cargo();
    races.args(["run", "--package", "runtime-bench", "--", "races", "target/release/controller-manager"]);
    workspace::run(&mut races, "the operators missed changes, see above")?;
    Ok(Outcome::Passed)
}
