//! `cargo xtask nightly`: the checks that take too long for each change. `cargo xtask test` runs samples of them.

mod emulated;
mod kind;
mod minors;

use std::process::{Command, ExitCode};

use anyhow::{Result, ensure};

use crate::attack;
use crate::book;
use crate::crates;
use crate::disk::{self, Room};
use crate::fuzz;
use crate::mutants;
use crate::one_more_operator;
use crate::release::{rehearsal, reproduce};
use crate::report::Outcome;
use crate::seeded_bugs;
use crate::simulate;
use crate::steps::{self, Step};
use crate::test::{checks, nextest, scaffold};
use crate::workspace;

/// Run the checks that take hours, such as all interferences, random worlds, mutants, releases, kind and benchmarks
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only these steps, in their usual order
    #[arg(long, value_name = "STEP", value_delimiter = ',', value_parser = steps::names(STEPS))]
    only: Vec<String>,
    /// Skip these steps
    #[arg(long, value_name = "STEP", value_delimiter = ',', value_parser = steps::names(STEPS))]
    skip: Vec<String>,
    /// How many minutes to play each operator's worlds
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1_440))]
    minutes: u64,
}

impl Args {
    /// What these steps write.
    fn room(&self) -> Room {
        if self.only.is_empty() {
            return if self.skip.is_empty() { ALL_STEPS } else { SOME_STEPS };
        }
        let are_small = self.only.iter().all(|name| SMALL.contains(&name.as_str()));
        if are_small { SMALL_STEPS } else { SOME_STEPS }
    }
}

/// What all steps write. 25 GB can fill up in the step `reproducible`, which builds two more releases. The need of a whole run was
/// never measured, so these figures are estimates.
const ALL_STEPS: Room = Room { new: 35, again: 15 };
/// What a part of the steps writes, such as a job of the workflow: in a new checkout about as much as `cargo xtask test`, and later more,
/// because some steps build for a release. These are estimates, too.
const SOME_STEPS: Room = Room { new: 20, again: 5 };
/// The steps that build the tests of one small crate at most.
const SMALL: &[&str] = &["space", "tools", "slots"];
/// What these steps write, also an estimate.
const SMALL_STEPS: Room = Room { new: 5, again: 2 };

/// The tests of which `cargo xtask test` draws one.
const INSTALLATIONS: &str = "package(e2e) & binary(chart) & test(/^(releases|environments|policies|published)::/)";

const STEPS: &[Step<Args>] = &[
    Step { name: "space", title: "the disk has room for the builds", needs: &[], run: |args| disk::check(args.room()) },
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
        run: |_| whole("INTERFERENCES", &[], "binary(interference) | test(/^interference::/)"),
    },
    Step {
        name: "faults",
        title: "every fault plan of the campaigns",
        needs: &["tools", "cluster"],
        run: |_| whole("FAULT_PLANS", &[], "test(/campaign::|proxied::|a15_|c5_/) | binary(in_memory)"),
    },
    Step {
        name: "chart",
        title: "the effect of every value of the chart",
        needs: &["tools", "cluster"],
        run: |_| whole("CHART_VALUES", &["chart"], "package(chart) & test(/^every_value::/)"),
    },
    Step {
        name: "fidelity",
        title: "20,000 random requests, to the model API server and to a real one",
        needs: &["tools", "cluster"],
        run: |_| whole("MODEL_CASES", &["conformance"], "package(operators-model-apiserver) & binary(conformance)"),
    },
    Step {
        name: "migration",
        title: "10,000 objects rewritten in another version by a command that is killed again and again",
        needs: &["tools", "cluster"],
        run: |_| whole("STORED_OBJECTS", &[], "package(controller-manager) & test(/^migration::/)"),
    },
    Step {
        name: "slots",
        title: "five larger groups of replicas that share slots: all their runs, or how all of these begin, with pauses and faults at any moment",
        needs: &["tools"],
        run: |_| slots(),
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
        title: "a quarter of an hour of attacks on the programs of the image, without credentials",
        needs: &[],
        run: |_| attack::nightly(),
    },
    Step {
        name: "one-more-operator",
        title: "the tutorial's command adds an operator to this workspace, whose checks pass after the tutorial's change, and which runs on a node",
        needs: &["cluster"],
        run: |_| one_more_operator::check(),
    },
    Step {
        name: "project-from-git",
        title: "a new project that takes the runtime from Git passes its checks",
        needs: &["tools", "cluster"],
        run: |_| scaffold::from_git(),
    },
    Step { name: "links", title: "links of documents to other sites", needs: &[], run: |_| book::follow() },
    Step {
        name: "crates",
        title: "the crates that others can depend on, as packages: alone, and from a registry, for each version of Kubernetes",
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
        title: "the small changes to the code that are due this night, each of which must fail a test",
        needs: &[],
        run: |_| mutants::nightly(),
    },
    Step {
        name: "seeded-bugs",
        title: "a sample of known bugs, each of which random worlds must find in two minutes",
        needs: &[],
        run: |_| seeded_bugs::nightly(),
    },
    Step {
        name: "installations",
        title: "two releases in one cluster, apart and in conflict, another topology, a failed helm test, and clusters that choose users, share the network of the nodes, have both families of addresses, no registry but a mirror, or enforce NetworkPolicies; and signed releases in a registry, one of them tampered with",
        needs: &["tools", "cluster"],
        run: |_| whole("INSTALLATIONS", &["chart"], INSTALLATIONS),
    },
    Step {
        name: "reproducible",
        title: "the same sources give the same release in two folders, for each platform",
        needs: &["tools"],
        run: |_| reproduce::nightly(),
    },
    Step {
        name: "release",
        title: "two signed releases in a registry, from which a real node runs one after the other",
        needs: &["tools", "cluster"],
        run: |_| rehearsal::nightly(),
    },
    Step {
        name: "first-release",
        title: "a release of an early commit with its own image, upgraded to this one and back",
        needs: &["tools", "cluster"],
        run: |_| whole("FIRST_RELEASE", &["chart"], "package(e2e) & binary(chart) & test(/^first::/)"),
    },
    Step {
        name: "emulated",
        title: "the program for the other platform, in an emulator, with the objects of a real API server",
        needs: &["tools", "cluster"],
        run: |_| emulated::nightly(),
    },
    Step {
        name: "ipv6",
        title: "the end-to-end tests on a cluster with IPv6 alone",
        needs: &["tools", "cluster"],
        run: |_| with_addresses("ipv6"),
    },
    Step {
        name: "dual-stack",
        title: "the end-to-end tests on a cluster with both families of addresses",
        needs: &["tools", "cluster"],
        run: |_| with_addresses("dual"),
    },
    Step {
        name: "kind",
        title: "the end-to-end tests on kind, with nodes that this repository builds where Docker or Podman does not run",
        needs: &["tools", "cluster"],
        run: |_| kind::newest(),
    },
    Step {
        name: "kind-oldest",
        title: "the same on the oldest supported version of Kubernetes",
        needs: &["tools", "cluster"],
        run: |_| kind::oldest(),
    },
    Step {
        name: "oldest",
        title: "clusters, operators and the life of a release on the oldest supported version of Kubernetes, without kind",
        needs: &["tools", "cluster"],
        run: |_| minors::oldest(),
    },
    Step {
        name: "newest",
        title: "the same on the newest supported version of Kubernetes",
        needs: &["tools", "cluster"],
        run: |_| minors::newest(),
    },
    Step {
        name: "races",
        title: "changes that race with the operator's own writes, on a real API server",
        needs: &["cluster"],
        run: |_| races(),
    },
    Step {
        name: "peers",
        title: "the operators on controller-runtime and on kube's Controller, with which benchmarks and the book compare, compile",
        needs: &[],
        run: |_| peers(),
    },
    Step {
        name: "benchmarks",
        title: "requests and allocations for an object: less than 5 % more than in the last measurement of the history",
        needs: &["cluster"],
        run: |_| benchmarks(),
    },
];

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    steps::perform("cargo xtask nightly", &steps::chosen(STEPS, &args.only, &args.skip), args)
}

/// Runs tests completely that usually run a sample: the variable `variable` selects all cases. Builds only these programs, see
/// [`nextest::Selection`].
fn whole(variable: &str, programs: &[&str], filter: &str) -> Result<Outcome> {
    let environment = [(variable, "all")];
    let (filter, profile, environment) = (Some(filter), Some("nightly"), &environment);
    nextest::run(&nextest::Selection { filter, programs, profile, environment, ..Default::default() })
}

/// Like [`whole`], but builds one package alone.
fn slots() -> Result<Outcome> {
    nextest::run(&nextest::Selection {
        filter: Some("test(/^replica::/)"),
        package: Some("operators-slots"),
        profile: Some("nightly"),
        environment: &[("SLOTS_MODEL", "all")],
        ..Default::default()
    })
}

fn with_addresses(ip_family: &str) -> Result<Outcome> {
    end_to_end(&[("E2E_IP_FAMILY", ip_family)])
}

/// Runs the end-to-end tests with these variables, on programs as users get them and with both majors of Helm.
fn end_to_end(variables: &[(&str, &str)]) -> Result<Outcome> {
    let environment = [&[("E2E_PROFILE", "release"), ("HELM_VERSIONS", "all")], variables].concat();
    let filter = Some("package(e2e)"); // `hack/chart` has a program `chart` too
    let programs = &["e2e", "chart"];
    let (profile, environment) = (Some("nightly"), &environment);
    nextest::run(&nextest::Selection { filter, programs, profile, environment, ..Default::default() })
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

fn peers() -> Result<Outcome> {
    let folder = workspace::root().join("hack/bench");
    let mut vet = Command::new("go");
    vet.args(["vet", "./..."])
        .current_dir(folder.join("controller-runtime"))
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off");
    workspace::run(&mut vet, "the operators on controller-runtime do not compile, see above")?;
    let mut clippy = workspace::cargo();
    clippy.args(["clippy", "--locked", "--target-dir", "target/kube-rs", "--manifest-path"]);
    clippy.arg(folder.join("kube-rs/Cargo.toml")).args(["--", "--deny", "warnings"]);
    workspace::run(&mut clippy, "the operator on kube's Controller does not compile, see above")?;
    Ok(Outcome::Passed)
}

fn benchmarks() -> Result<Outcome> {
    const HISTORY: &str = "hack/bench/history/regressions.jsonl";
    // The program would say the same after its build.
    ensure!(
        workspace::root().join(HISTORY).exists(),
        "there is no {HISTORY}, so there is nothing to compare with: `cargo run -p runtime-bench -- regressions --record` measures \
         the program that `cargo build --release -p controller-manager --example count-allocations` builds; commit the file"
    );
    let mut build = workspace::cargo();
    build.args(["build", "--release", "--package", "controller-manager", "--example", "count-allocations"]);
    workspace::run(&mut build, "the controller-manager that counts its allocations does not build, see above")?;
    let mut regressions = workspace::cargo();
    regressions.args(["run", "--package", "runtime-bench", "--", "regressions"]);
    workspace::run(&mut regressions, "an object costs more than in the last measurement, see above")?;
    Ok(Outcome::Passed)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use clap::Parser;
    use serde_json::Value;

    use super::*;

    #[derive(Parser)]
    struct Nightly {
        #[command(flatten)]
        args: Args,
    }

    fn chosen(flags: &[&str]) -> Vec<&'static str> {
        let args = Nightly::parse_from(std::iter::once(&"nightly").chain(flags)).args;
        steps::chosen(STEPS, &args.only, &args.skip).iter().map(|step| step.name).collect()
    }

    #[test]
    fn step_depends_only_on_earlier_steps() {
        steps::tests::assert_order(STEPS);
    }

    #[test]
    fn two_jobs_share_the_steps() {
        let (long, rest) = (chosen(&["--only", "mutants,seeded-bugs"]), chosen(&["--skip", "mutants,seeded-bugs"]));
        assert_eq!(long, ["mutants", "seeded-bugs"]);
        assert_eq!(long.len() + rest.len(), STEPS.len());
        assert!(!rest.iter().any(|step| long.contains(step)), "{rest:?}");
        assert_eq!(chosen(&[]).len(), STEPS.len());
    }

    #[test]
    fn whole_run_needs_more_room_than_a_part() {
        let room = |flags: &[&str]| Nightly::parse_from(std::iter::once(&"nightly").chain(flags)).args.room();
        let whole = room(&[]);
        for part in [room(&["--only", "space,kind"]), room(&["--skip", "kind"])] {
            assert!(part.new < whole.new && part.again < whole.again, "{part:?} {whole:?}");
            let small = room(&["--only", "space,tools,slots"]);
            assert!(small.new < part.new && small.again < part.again, "{small:?} {part:?}");
        }
        assert_eq!(room(&["--only", "space,slots,kind"]).new, SOME_STEPS.new);
    }

    #[test]
    fn small_steps_exist() {
        for name in SMALL {
            assert!(STEPS.iter().any(|step| step.name == *name), "{name}");
        }
    }

    #[test]
    fn each_module_with_drawn_tests_is_among_the_installations() {
        let is_between = |character: char| !character.is_alphanumeric() && character != '_';
        let names: BTreeSet<&str> = INSTALLATIONS.split(is_between).collect();
        let mut drawn = 0;
        for entry in std::fs::read_dir(workspace::root().join("e2e/tests/chart")).unwrap() {
            let path = entry.unwrap().path();
            if std::fs::read_to_string(&path).unwrap().contains("World::drawn(") {
                let module = path.file_stem().unwrap().to_str().unwrap();
                assert!(names.contains(module), "{module} is not in {INSTALLATIONS}");
                drawn += 1;
            }
        }
        assert!(drawn >= 4, "only {drawn} modules have drawn tests");
    }

    #[test]
    fn jobs_of_the_workflow_run_each_step_once() {
        let text = std::fs::read_to_string(workspace::root().join(".github/workflows/nightly.yaml")).unwrap();
        let workflow: Value = serde_saphyr::from_str(&text).unwrap();
        let parts = workflow["jobs"]["nightly"]["strategy"]["matrix"]["include"].as_array().unwrap();
        let mut times: BTreeMap<&str, usize> = BTreeMap::new();
        for part in parts {
            let list = |key: &str| -> Vec<String> {
                let names = part[key].as_str().unwrap().split(',').filter(|name| !name.is_empty());
                names.map(str::to_owned).collect()
            };
            let steps = steps::chosen(STEPS, &list("only"), &list("skip"));
            let names: BTreeSet<&str> = steps.iter().map(|step| step.name).collect();
            assert!(names.contains("space"), "{part}");
            for step in steps {
                assert!(step.needs.iter().all(|needed| names.contains(needed)), "{} of {part}", step.name);
                *times.entry(step.name).or_default() += 1;
            }
        }
        let alone = text.lines().filter_map(|line| line.trim().strip_prefix("- run: cargo xtask nightly --only "));
        for name in alone.flat_map(|list| list.split(',')) {
            *times.entry(name).or_default() += 1;
        }
        let is_shared = |name: &str| name == "space" || STEPS.iter().any(|step| step.needs.contains(&name));
        for step in STEPS {
            let times = times.get(step.name).copied().unwrap_or_default();
            assert!(times == 1 || times > 1 && is_shared(step.name), "{} runs {times} times", step.name);
        }
    }
}
