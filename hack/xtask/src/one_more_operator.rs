//! Adds one more operator to a copy of the checkout, and checks that everything which a change of an operator must pass accepts it.

use std::fs;

use anyhow::{Result, ensure};

use crate::checkout_copy::CheckoutCopy;
use crate::new_operator;
use crate::report::Outcome;
use crate::scaffold::{self, Api, Names};
use crate::workspace;

/// The name of the new operator. In two halves, because in the copy it is the name of an operator, which shared code must not
/// contain.
const NAME: &str = concat!("sproc", "ket");
const KIND: &str = concat!("Bicycle", "Part"); // the name of an operator need not be that of its kind
const PLURAL: &str = concat!("bicycle", "parts");

/// Adds the operator as `cargo xtask new-operator` does, and runs the checks.
pub(crate) fn check() -> Result<Outcome> {
    let copy = CheckoutCopy::new()?;
    let api = Api::new(KIND, "parts.example.org");
    let names = Names::new(Some(NAME), &api)?;
    scaffold::write(copy.folder(), &new_operator::additions(&names, &workspace::files()?)?)?;
    checks(&copy)?; // the next use of the copy undoes the additions
    Ok(Outcome::Passed)
}

fn checks(copy: &CheckoutCopy) -> Result<()> {
    let package = format!("{NAME}-operator");
    let run = |what: &str, arguments: &[&str]| {
        eprintln!("{what}");
        let mut cargo = copy.cargo(workspace::cargo());
        cargo.env("CI", "true"); // a test that cannot run here fails
        workspace::run(cargo.args(arguments), &format!("{what} failed with one more operator, see above"))
    };
    run("format", &["fmt", "--package", &package, "--package", "e2e"])?;
    run("generated files", &["run", "--quiet", "--package", "xtask", "--", "generate"])?;
    let definition = copy.folder().join(format!("charts/operators/files/{NAME}/crd-{PLURAL}.yaml"));
    ensure!(definition.is_file(), "the chart has no definition of the new kind");
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
