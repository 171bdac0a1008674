//! Adds one more operator to a copy of the checkout, and checks that it needs nothing but its own folder, its end-to-end test and
//! one line in each of four files.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use controller_manager::OPERATORS;
use manager::Operator;

use crate::checkout_copy::CheckoutCopy;
use crate::report::Outcome;
use crate::workspace::{self, File};

/// The name of the new operator. In two halves, because in the copy it is the name of an operator, which shared code must not
/// contain.
const NEW: &str = concat!("sproc", "ket");

/// The files that list the operators.
const LISTS: &[&str] = &[
    "Cargo.toml",
    "operators/controller-manager/Cargo.toml",
    "operators/controller-manager/src/lib.rs",
    "e2e/Cargo.toml",
];

/// Copies the example operator under a new name, and runs with it what a change of an operator has to pass.
pub(crate) fn check() -> Result<Outcome> {
    let example = OPERATORS.iter().find(|operator| operator.is_example()).context("no operator is an example")?;
    let copy = CheckoutCopy::new()?;
    for File { path, text } in additions(*example, &workspace::files()?)? {
        let path = copy.folder().join(path);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("")))?;
        fs::write(path, text)?;
    }
    checks(&copy)?; // the next use of the copy undoes the additions
    Ok(Outcome::Passed)
}

fn checks(copy: &CheckoutCopy) -> Result<()> {
    let package = format!("{NEW}-operator");
    let run = |what: &str, arguments: &[&str]| {
        eprintln!("{what}");
        let mut cargo = copy.cargo(workspace::cargo());
        cargo.env("CI", "true"); // a test that cannot run here fails
        workspace::run(cargo.args(arguments), &format!("{what} failed with one more operator, see above"))
    };
    run("generated files", &["run", "--quiet", "--package", "xtask", "--", "generate"])?;
    let definition = copy.folder().join(format!("charts/operators/files/{NEW}"));
    ensure!(definition.is_dir(), "the chart has no files of the new operator");
    run("rules of the files", &["run", "--quiet", "--package", "xtask", "--", "tidy"])?;
    let enabled = format!("operators.{NEW}.enabled=true");
    run("plain manifests", &["run", "--quiet", "--package", "xtask", "--", "chart", "dist", "--set", &enabled])?;
    let manifests = fs::read_to_string(copy.folder().join("dist/install.yaml"))?;
    ensure!(manifests.contains(&format!("{NEW}s.")), "the manifests do not define the kind of the new operator");
    run("lints", &["clippy", "--package", &package, "--all-targets", "--", "-D", "warnings"])?;
    run("acceptance tests", &["test", "--package", &package, "--test", "acceptance"])?;
    run(
        "interferences and random worlds",
        &["test", "--package", &package, "--test", "interference", "--test", "simulation"],
    )?;
    run("tests of the registry", &["test", "--package", "controller-manager", "--test", "registry"])?;
    run("end-to-end tests compile", &["check", "--package", "e2e", "--tests"])
}

/// The files of the new operator, and the lists of operators with one line more.
fn additions(example: &dyn Operator, files: &[File]) -> Result<Vec<File>> {
    let folder = |name: &str| format!("operators/{name}-operator/");
    let old = example.name();
    let own = files.iter().filter(|file| file.path.starts_with(&folder(old)));
    let mut added: Vec<File> =
        own.map(|file| File { path: renamed(&file.path, old), text: renamed(&file.text, old) }).collect();
    ensure!(!added.is_empty(), "{} has no files", folder(old));
    for list in LISTS {
        let file = files.iter().find(|file| file.path == *list).with_context(|| format!("there is no {list}"))?;
        added.push(File { path: file.path.clone(), text: with_one_line_more(&file.text, old)? });
    }
    let main = "e2e/tests/e2e/main.rs";
    let text = fs::read_to_string(workspace::root().join(main))?;
    added.push(File { path: main.to_owned(), text: text + &format!("mod {NEW};\n") });
    let use_it = format!("//! Uses the new operator.\n\nuse {NEW}_operator as _;\n");
    added.push(File { path: format!("e2e/tests/e2e/{NEW}.rs"), text: use_it }); // only compiled
    Ok(added)
}

/// Adds a copy of the line that names the operator's crate, for the new operator.
fn with_one_line_more(text: &str, old: &str) -> Result<String> {
    let names = |line: &&str| line.contains(&format!("{old}-operator")) || line.contains(&format!("{old}_operator"));
    let lines: Vec<&str> = text.lines().filter(names).collect();
    let [line] = *lines else { anyhow::bail!("{} lines name {old}-operator instead of one", lines.len()) };
    Ok(text.replacen(line, &format!("{line}\n{}", renamed(line, old)), 1))
}

/// Replaces the name of the operator, also in type names.
fn renamed(text: &str, old: &str) -> String {
    text.replace(old, NEW).replace(&capitalized(old), &capitalized(NEW))
}

fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_ascii_uppercase().to_string() + letters.as_str()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_gets_one_line_for_the_new_operator() {
        let list = "[dependencies]\na-operator = 1\nfoo-operator = { path = \"operators/foo-operator\" }\nb = 2\n";
        let longer = with_one_line_more(list, "foo").expect("one line names it");
        let new = "sprocket-operator = { path = \"operators/sprocket-operator\" }\n";
        assert_eq!(longer, list.replace("b = 2", &format!("{new}b = 2")));
        let error = with_one_line_more("foo_operator\nfoo_operator", "foo").expect_err("two lines");
        assert_eq!(error.to_string(), "2 lines name foo-operator instead of one");
        assert_eq!(renamed("struct FooSpec; // foos", "foo"), "struct SprocketSpec; // sprockets");
    }

    #[test]
    fn each_list_names_the_example_in_one_line() {
        let files = workspace::files().expect("the files of the checkout");
        let example = OPERATORS.iter().find(|operator| operator.is_example()).expect("an example");
        let added = additions(*example, &files).expect("one line in each list");
        assert!(added.len() > LISTS.len() + 5, "{}", added.len());
    }
}
