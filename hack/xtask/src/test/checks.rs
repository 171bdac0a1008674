//! The steps of `cargo xtask test`. A new check is a new entry in [`STEPS`].

use std::process::{ExitCode, Stdio};

use anyhow::{Result, bail};
use cluster::{Tools, progress};
use images::{Store, default_store};
use installation::{Backend, Profile};

use super::{Args, nextest, permissions, scaffold, space};
use crate::cargo_tools::{self, DENY};
use crate::report::Outcome;
use crate::steps::{self, Step};
use crate::{book, generate, packages, tidy, workflows, workspace};

const CLEAN_UP: &str = "clean-up";

/// The steps in order of speed; a step that others need comes before them.
pub(super) const STEPS: &[Step<Args>] = &[
    Step { name: "space", title: "the disk has room for the build", needs: &[], run: |_| space::check() },
    Step { name: "format", title: "rustfmt has nothing to change", needs: &[], run: |_| format() },
    Step { name: "tidy", title: "rules that can be checked in the files", needs: &[], run: |_| tidy() },
    Step { name: "generate", title: "generated files are up to date", needs: &[], run: |_| generate() },
    Step { name: "tools", title: "cargo-nextest, cargo-deny, mdbook, system packages", needs: &[], run: |_| tools() },
    Step { name: "book", title: "the book builds, its links and commands exist", needs: &["tools"], run: |_| book() },
    Step {
        name: "book-screens",
        title: "each page of the book in a real browser, narrow and wide, light and dark",
        needs: &["book"],
        run: |_| book::look(),
    },
    Step {
        name: "workflows",
        title: "the workflows of the public CI are valid, their commands exist",
        needs: &["tools"],
        run: |_| workflows(),
    },
    Step { name: "deny", title: "licences and sources of all dependencies", needs: &["tools"], run: |_| deny() },
    Step { name: "advisories", title: "no dependency has a known weakness", needs: &["tools"], run: |_| advisories() },
    Step { name: "clippy", title: "lints of all targets", needs: &[], run: |_| clippy() },
    Step { name: "cluster", title: "the programs that clusters are made of", needs: &["tools"], run: |_| cluster() },
    Step { name: "images", title: "images of the samples and of the operators", needs: &["tools"], run: |_| images() },
    Step {
        name: "tests",
        title: "unit, integration and end-to-end tests",
        needs: &["tools", "cluster", "images"],
        run: tests,
    },
    Step {
        name: "permissions",
        title: "operators use each permission that they have, and lack none",
        needs: &["tests"],
        run: permissions::check,
    },
    Step {
        name: "scaffold",
        title: "a new project outside of this workspace passes its checks",
        needs: &["tools", "cluster"],
        run: |_| scaffold::check(),
    },
    Step {
        name: "scaffold-install",
        title: "the chart of the new project runs on a real node",
        needs: &["scaffold"],
        run: |_| scaffold::install(),
    },
    Step { name: "examples", title: "examples in documentation", needs: &[], run: |_| examples() },
    Step { name: CLEAN_UP, title: "stop the clusters that tests have shared", needs: &[], run: |_| clean_up() },
];

fn format() -> Result<Outcome> {
    let mut format = workspace::cargo();
    format.args(["fmt", "--all", "--", "--check", "--files-with-diff"]);
    workspace::run(&mut format, "`cargo fmt --all` formats these files")?;
    Ok(Outcome::Passed)
}

fn tidy() -> Result<Outcome> {
    within(tidy::run()?, "follow the advice of the findings above")
}

fn generate() -> Result<Outcome> {
    within(generate::run(&generate::Args { check: true })?, "run `make generate` and commit the result")
}

fn within(code: ExitCode, advice: &str) -> Result<Outcome> {
    if code != ExitCode::SUCCESS {
        bail!("{advice}");
    }
    Ok(Outcome::Passed)
}

pub(crate) fn tools() -> Result<Outcome> {
    packages::ensure()?;
    cargo_tools::ensure(&[cargo_tools::NEXTEST, cargo_tools::DENY, cargo_tools::MDBOOK])?;
    Ok(Outcome::Passed)
}

fn book() -> Result<Outcome> {
    within(book::run()?, "mend the places of the book above")
}

fn workflows() -> Result<Outcome> {
    within(workflows::run()?, "mend the places above")
}

fn deny() -> Result<Outcome> {
    let mut deny = DENY.command()?;
    deny.args(["check", "--hide-inclusion-graph", "bans", "licenses", "sources"]);
    workspace::run(&mut deny, "deny.toml forbids the items above: replace them, or allow them there with a reason")?;
    Ok(Outcome::Passed)
}

/// Checks advisories where their database can be downloaded. The public CI always checks them.
fn advisories() -> Result<Outcome> {
    let mut fetch = DENY.command()?;
    if !fetch.args(["fetch", "db"]).stderr(Stdio::null()).status()?.success() {
        return Ok(Outcome::Skipped("the database of advisories cannot be downloaded here".to_owned()));
    }
    let mut deny = DENY.command()?;
    deny.args(["check", "--disable-fetch", "--hide-inclusion-graph", "advisories"]);
    workspace::run(&mut deny, "upgrade the dependencies above, or replace them")?;
    Ok(Outcome::Passed)
}

fn clippy() -> Result<Outcome> {
    let mut clippy = workspace::cargo();
    clippy.args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]);
    workspace::run(&mut clippy, "fix the warnings above; clippy.toml and Cargo.toml configure the lints")?;
    Ok(Outcome::Passed)
}

pub(crate) fn cluster() -> Result<Outcome> {
    Tools::locate_or_build(&cluster::tools::TOOLS, &progress::to_stderr)?;
    Ok(Outcome::Passed)
}

fn images() -> Result<Outcome> {
    let store = Store::open(default_store()?)?;
    if Backend::chosen()? == Backend::Local {
        images::ensure_fixtures(store.root(), &mut |line| eprintln!("{line}"))?;
    }
    if std::env::var_os("E2E_IMAGE").is_none() {
        installation::build_image(workspace::root(), &store, Profile::chosen()?)?;
    }
    Ok(Outcome::Passed)
}

fn tests(args: &Args) -> Result<Outcome> {
    if !args.is_selection() {
        permissions::keep();
    }
    let programs: Vec<_> = args.programs.iter().map(String::as_str).collect();
    let tested =
        nextest::run(&nextest::Selection { filter: args.filter.as_deref(), programs: &programs, ..Default::default() });
    if Backend::chosen()? == Backend::Kind {
        if !matches!(&tested, Ok(outcome) if !outcome.is_failure()) {
            keep_logs_of_kind("kind");
        }
        let is_deleted = steps::chosen(STEPS, &args.only, &args.skip).iter().any(|step| step.name == CLEAN_UP);
        let nodes = installation::kind_nodes().unwrap_or_default().len(); // without an engine, no node runs
        if let Some(advice) = advice_about_kind(nodes, is_deleted) {
            eprintln!("{advice}");
        }
    }
    tested
}

/// What the user should know about the nodes of kind that the tests have used, unless a later step deletes them.
fn advice_about_kind(nodes: usize, is_deleted: bool) -> Option<String> {
    let stays = nodes > 0 && !is_deleted;
    stays.then(|| {
        format!(
            "the cluster of kind stays for the next run, with {nodes} nodes, which need a gigabyte of memory each: \
             `make cleanup-test-e2e E2E_CLUSTER=kind` deletes it"
        )
    })
}

/// Keeps the logs of the suite's cluster of kind under this name, and prints where.
pub(crate) fn keep_logs_of_kind(kept_as: &str) {
    match installation::keep_kind_logs(kept_as) {
        Ok(folder) => eprintln!("the logs of the cluster are in {}", folder.display()),
        Err(error) => eprintln!("not all logs of the cluster were kept: {error:#}"),
    }
}

/// Runs the doc tests, which nextest does not support.
fn examples() -> Result<Outcome> {
    let mut examples = workspace::cargo();
    examples.args(["test", "--workspace", "--doc"]);
    workspace::run(&mut examples, "an example in the documentation fails, see above")?;
    Ok(Outcome::Passed)
}

/// Stops the shared clusters, which would stop themselves some minutes later. A cluster that another process uses stays.
fn clean_up() -> Result<Outcome> {
    for summary in cluster::list().into_iter().filter(|summary| summary.name.starts_with("shared-")) {
        if summary.status.is_some_and(|status| status.users > 1) {
            eprintln!("{} stays: another process uses it", summary.name); // one of the users is this task
            continue;
        }
        cluster::down(&summary.name)?;
        eprintln!("{} is down", summary.name);
    }
    if let Some(said) = installation::clean_up()? {
        eprintln!("{said}");
    }
    Ok(Outcome::Passed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_kind_that_stay_are_named_with_the_command_that_deletes_them() {
        let advice = advice_about_kind(3, false).unwrap();
        assert!(advice.contains("3 nodes") && advice.contains("`make cleanup-test-e2e E2E_CLUSTER=kind`"), "{advice}");
        assert_eq!([advice_about_kind(3, true), advice_about_kind(0, false)], [None, None]);
    }
}
