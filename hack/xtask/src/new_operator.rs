//! `cargo xtask new-operator`: adds an operator to this workspace, a copy of the template under other names.

use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use chart::helm::{Helm, Version};
use chart::snapshots::{self, Snapshot};
use controller_manager::OPERATORS;

use crate::scaffold::{self, Api, Names};
use crate::workspace::{self, File};

/// Add an operator to this workspace: its crate with tests, its end-to-end test, its entries in the lists and in the chart
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The name of the operator: its crate is NAME-operator, and its flag in the chart is operators.NAME.enabled
    #[arg(value_name = "NAME", value_parser = scaffold::word)]
    name: String,
    #[command(flatten)]
    api: Api,
}

/// A file that lists the operators.
struct List {
    path: &'static str,
    /// What each line of the list contains.
    like: &'static str,
    /// The line for an operator, with the names of the template.
    line: &'static str,
}

/// The files that list the operators, one line each.
const LISTS: &[List] = &[
    List {
        path: "Cargo.toml",
        like: "-operator = { path = \"operators/",
        line: "gadget-operator = { path = \"operators/gadget-operator\" }",
    },
    List {
        path: "README.md",
        like: "-operator`](operators/",
        line: "| [`operators/gadget-operator`](operators/gadget-operator/README.md) | keeps one ConfigMap for each Gadget |",
    },
    List {
        path: "operators/controller-manager/Cargo.toml",
        like: "-operator.workspace = true",
        line: "gadget-operator.workspace = true",
    },
    List {
        path: "operators/controller-manager/src/lib.rs",
        like: "_operator::",
        line: "    &gadget_operator::GadgetOperator,",
    },
    List { path: "e2e/Cargo.toml", like: "-operator.workspace = true", line: "gadget-operator.workspace = true" },
    List { path: "e2e/tests/e2e/main.rs", like: "mod ", line: "mod gadget;" },
];

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let names = Names::new(Some(&args.name), &args.api)?;
    let added = additions(&names, &workspace::files()?)?;
    let root = workspace::root();
    scaffold::write(root, &added)?;
    for File { path, .. } in &added {
        println!("wrote {path}");
    }
    let package = format!("{}-operator", names.name);
    let mut format = workspace::cargo();
    workspace::run(format.args(["fmt", "--package", &package, "--package", "e2e"]), "rustfmt fails, see above")?;
    // In a new process, because this one does not have the operator.
    let mut generate = workspace::cargo();
    generate.args(["run", "--package", "xtask", "--", "generate"]);
    workspace::run(&mut generate, "the generated files are not up to date: run `make generate`")?;
    write_snapshots()
        .with_context(|| format!("the chart's snapshots lack the new operator: run `{}`", snapshots::UPDATE))?;
    println!("\nNext:");
    let tests = format!("cargo xtask test --only tools,tests --filter 'package({package})'");
    for (command, what) in [(&*tests, "the tests of the operator, with a real API server"), ("make test", "everything")]
    {
        println!("  {command:<72}  # {what}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes what the chart renders now. This process can do it although it does not have the operator: Helm reads the files that the
/// other process has written.
fn write_snapshots() -> Result<()> {
    let helm = Helm::of(Version::Four)?;
    for snapshot in [Snapshot::of_objects(&helm)?, Snapshot::of_notes(&helm)?] {
        if snapshot.stored()? != snapshot.text {
            snapshot.write()?;
            println!("wrote {}", snapshot.path());
        }
    }
    Ok(())
}

/// The files of the new operator, and the lists of operators with one line more.
///
/// # Errors
///
/// There is such an operator already.
fn additions(names: &Names, files: &[File]) -> Result<Vec<File>> {
    let Names { name, kind, .. } = names;
    let folder = format!("operators/{name}-operator/");
    let is_there = files.iter().any(|file| file.path.starts_with(&folder));
    ensure!(!is_there, "{folder} exists: choose another name, or remove the folder and its line in each list");
    let has_kind = |operator: &&dyn manager::Operator| operator.crds().iter().any(|crd| crd.spec.names.kind == *kind);
    if let Some(other) = OPERATORS.iter().copied().find(has_kind) {
        anyhow::bail!("the operator {} has the kind {kind}: choose another kind", other.name());
    }
    let mut added = names.operator(&folder)?;
    added.push(File { path: format!("e2e/tests/e2e/{name}.rs"), text: names.end_to_end_test()? });
    for List { path, like, line } in LISTS {
        let file = files.iter().find(|file| file.path == *path).with_context(|| format!("there is no {path}"))?;
        let text = with_line(&file.text, like, &names.applied_to(line));
        let text = text.with_context(|| format!("{path} has no line with \"{like}\""))?;
        added.push(File { path: (*path).to_owned(), text });
    }
    Ok(added)
}

/// Adds a line to the list of lines that contain `like`: in the order of the alphabet if the list has it, otherwise at its end.
/// `None` if there is no such list.
fn with_line(text: &str, like: &str, new: &str) -> Option<String> {
    let mut lines: Vec<&str> = text.lines().collect();
    let listed: Vec<usize> = (0..lines.len()).filter(|at| lines[*at].contains(like)).collect();
    let later = listed.iter().copied().find(|at| lines[*at] > new).filter(|_| listed.is_sorted_by_key(|at| lines[*at]));
    lines.insert(later.or(listed.last().map(|last| last + 1))?, new);
    Some(lines.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scaffold::tests::names;

    #[test]
    fn line_has_its_place_in_the_list() {
        let list = "a = 1\nb-operator\nd-operator\n\ne = 2\n";
        let with = |new: &str| with_line(list, "-operator", new);
        assert_eq!(with("c-operator").as_deref(), Some("a = 1\nb-operator\nc-operator\nd-operator\n\ne = 2\n"));
        assert_eq!(with("e-operator").as_deref(), Some("a = 1\nb-operator\nd-operator\ne-operator\n\ne = 2\n"));
        let unsorted = "d-operator\nb-operator\n";
        assert_eq!(with_line(unsorted, "-operator", "a-operator"), Some(format!("{unsorted}a-operator\n")));
        assert_eq!(with_line("none\n", "-operator", "a-operator"), None);
    }

    #[test]
    fn each_list_gets_one_line() {
        let files = workspace::files().expect("the files of the checkout");
        let names = names("store", "Entry", "x.org").expect("names");
        let added = additions(&names, &files).expect("each list is there");
        for List { path, .. } in LISTS {
            let lines = |files: &[File]| {
                let file = files.iter().find(|file| file.path == *path).expect("the list");
                file.text.lines().count()
            };
            assert_eq!(lines(&added), lines(&files) + 1, "{path}");
        }
    }

    #[test]
    fn what_exists_is_not_written_over() {
        let files = workspace::files().expect("the files of the checkout");
        let existing = OPERATORS.iter().find(|operator| operator.is_example()).expect("an example");
        let refused = |name: &str, kind: &str| {
            let names = names(name, kind, "x.org").expect("names");
            additions(&names, &files).expect_err("is refused").to_string()
        };
        let folder = refused(existing.name(), "Entry");
        assert!(folder.ends_with("remove the folder and its line in each list"), "{folder}");
        let kind = &existing.crds()[0].spec.names.kind;
        assert!(refused("store", kind).ends_with("choose another kind"));
    }
}
