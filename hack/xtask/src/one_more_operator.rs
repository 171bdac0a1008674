//! Adds one more operator to a copy of the checkout by the command of the tutorial, makes the tutorial's change to it, checks that
//! everything which a change of an operator must pass accepts it, and runs it on a real node.

use std::fs;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use chart::helm::succeeded;
use cluster::{Cluster, Nodes};

use crate::checkout_copy::CheckoutCopy;
use crate::report::Outcome;
use crate::scaffold::{Api, Names};
use crate::workspace;

/// The tutorial, which names the command and this check.
const TUTORIAL: &str = include_str!("../../../docs/book/src/new-project.md");
const MARK: &str = "<!-- tested by: hack/xtask/src/one_more_operator.rs check -->\n```sh\ncargo xtask ";
/// What the tutorial calls its operator, and the group of its kind.
const DOCUMENTED: &str = "note --kind Note --group ";

/// The name of the new operator. In two halves, because in the copy it is the name of an operator, which shared code must not
/// contain.
const NAME: &str = concat!("sproc", "ket");
const KIND: &str = concat!("Bicycle", "Part"); // the name of an operator need not be that of its kind
const PLURAL: &str = concat!("bicycle", "parts");

/// Variables that choose another cluster or another image than [`on_node`] needs.
const CHOICES: [&str; 4] = ["E2E_IMAGE", "E2E_IP_FAMILY", "E2E_PROFILE", "NEXTEST_RUN_ID"];

/// Adds and changes the operator, runs the checks, and then its end-to-end test.
pub(crate) fn check() -> Result<Outcome> {
    let copy = CheckoutCopy::new()?; // the next use of the copy undoes the additions
    checks(&copy)?;
    // The test joins this cluster, and so do the tests of later steps.
    let cluster = match Cluster::shared(Nodes::Real) {
        Ok(cluster) => cluster,
        Err(error) => return Ok(Outcome::without(&error)),
    };
    let tested = on_node(&copy);
    installation::uninstall(&cluster)?;
    let (_, group) = documented()?;
    let definition = format!("{PLURAL}.{group}");
    succeeded(&mut cluster.kubectl(["delete", "customresourcedefinition", &definition, "--ignore-not-found"]))?;
    tested?;
    Ok(Outcome::Passed)
}

/// Runs the end-to-end test of the operator. The test builds the image of the copy, installs the copy's chart with Helm, and waits
/// until an object of the new kind has converged.
fn on_node(copy: &CheckoutCopy) -> Result<()> {
    eprintln!("its end-to-end test, on a real node");
    let mut cargo = copy.cargo(workspace::cargo());
    cargo.args(["test", "--package", "e2e", "--test", "e2e", &format!("{NAME}::")]);
    cargo.env("CI", "true").env("E2E_CLUSTER", "local").stderr(Stdio::inherit());
    for choice in CHOICES {
        cargo.env_remove(choice);
    }
    let output = cargo.output().context("could not run cargo")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let has_passed = output.status.success() && said.contains("test result: ok. 1 passed");
    ensure!(has_passed, "the operator does not run on a node:\n{said}");
    Ok(())
}

/// The task in the tutorial and its arguments, for this operator, and the group of its kind.
fn documented() -> Result<(String, &'static str)> {
    let (_, rest) = TUTORIAL.split_once(MARK).context("the tutorial adds no operator")?;
    let (task, rest) = rest.split_once(DOCUMENTED).context("the operator of the tutorial has another name")?;
    let group = rest.lines().next().unwrap_or_default();
    Ok((format!("{task}{NAME} --kind {KIND} --group {group}"), group))
}

fn checks(copy: &CheckoutCopy) -> Result<()> {
    let (task, group) = documented()?;
    let package = format!("{NAME}-operator");
    let run = |what: &str, arguments: &[&str]| {
        eprintln!("{what}");
        let mut cargo = copy.cargo(workspace::cargo());
        cargo.env("CI", "true"); // a test that cannot run here fails
        workspace::run(cargo.args(arguments), &format!("{what} failed with one more operator, see above"))
    };
    let arguments: Vec<_> = ["run", "--quiet", "--package", "xtask", "--"].into_iter().chain(task.split(' ')).collect();
    run("the command of the tutorial", &arguments)?;
    run("format", &["fmt", "--package", &package, "--package", "e2e", "--check"])?;
    Names::new(Some(NAME), &Api::new(KIND, group))?.change(&copy.folder().join("operators"))?;
    run("generated files", &["run", "--quiet", "--package", "xtask", "--", "generate"])?;
    let definition = copy.folder().join(format!("charts/operators/files/{NAME}/crd-{PLURAL}.yaml"));
    ensure!(definition.is_file(), "the chart has no definition of the new kind");
    run("snapshots of the chart", &["test", "--package", "chart", "--test", "chart", "snapshot::"])?;
    run("rules of the files", &["run", "--quiet", "--package", "xtask", "--", "tidy"])?;
    let enabled = format!("operators.{NAME}.enabled=true");
    run("plain manifests", &["run", "--quiet", "--package", "xtask", "--", "chart", "dist", "--set", &enabled])?;
    let manifests = fs::read_to_string(copy.folder().join("dist/install.yaml"))?;
    ensure!(manifests.contains(&format!("{PLURAL}.")), "the manifests do not define the kind of the new operator");
    run("lints", &["clippy", "--package", &package, "--all-targets", "--", "-D", "warnings"])?;
    run("its tests", &["test", "--package", &package])?;
    run("tests of the registry", &["test", "--package", "controller-manager", "--test", "registry"])?;
    run("end-to-end tests compile", &["check", "--package", "e2e", "--tests"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_of_the_tutorial_adds_this_operator() {
        let (task, group) = documented().expect("the command");
        assert_eq!(task, format!("new-operator {NAME} --kind {KIND} --group {group}"));
        assert!(group.ends_with(".example.com"), "{group}");
    }
}
