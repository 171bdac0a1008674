//! `cargo xtask tidy`: checks the rules of this repository that are visible in its files. It builds nothing.

mod architecture;
mod documents;
mod manifests;
mod mutants;
mod published;
mod reliability;
pub(crate) mod rust;
mod shapes;
mod text;
mod worlds;

use std::fmt;
use std::process::ExitCode;

use anyhow::Result;

use crate::workspace::{self, File};

/// Check the rules that are visible in files, such as which crate may depend on which
#[derive(clap::Args)]
pub(crate) struct Args {}

/// One rule, and the function that finds its breaches in all files.
struct Check {
    /// The rule, as a statement that must be true everywhere.
    rule: &'static str,
    find: fn(&[File]) -> Vec<Finding>,
}

const CHECKS: &[Check] = &[
    Check { rule: "operators do not know each other", find: architecture::operators_do_not_know_each_other },
    Check { rule: "shared code names no operator", find: architecture::shared_code_names_no_operator },
    Check { rule: "an operator's own libraries serve it alone", find: architecture::own_libraries_serve_one_operator },
    Check { rule: "crates depend downwards", find: architecture::crates_depend_downwards },
    Check { rule: "api and desired do not use the runtime", find: architecture::types_know_no_runtime },
    Check { rule: "pure modules do no I/O", find: architecture::pure_files_do_no_io },
    Check { rule: "only the manager creates watches and queues", find: architecture::only_the_manager_watches },
    Check { rule: "worlds judge operators without their code", find: worlds::worlds_use_only_the_api },
    Check { rule: "worlds decide nothing with libraries", find: worlds::worlds_use_no_library_of_operators },
    Check { rule: "branches in simulated code have an order", find: worlds::branches_have_an_order },
    Check { rule: "a skipped test is counted, with its reason", find: architecture::skipped_tests_are_counted },
    Check { rule: "permissions have no wildcards", find: architecture::permissions_have_no_wildcards },
    Check { rule: "every crate has the lints of the workspace", find: manifests::lints },
    Check { rule: "folders have the names of their crates", find: manifests::folders },
    Check { rule: "versions of dependencies are in the root manifest", find: manifests::versions },
    Check { rule: "the root manifest has no unused dependencies", find: manifests::used },
    Check { rule: "crates that others can depend on say what a registry needs", find: published::metadata },
    Check { rule: "they depend on nothing that no registry has", find: published::dependencies_are_published },
    Check { rule: "they leave the version of Kubernetes to their users", find: published::kubernetes_is_left_to_users },
    Check { rule: "docs.rs can build their pages", find: published::pages_choose_kubernetes },
    Check { rule: "every compiler is the oldest one that they promise", find: published::compiler_is_the_oldest },
    Check { rule: "exceptions to lints have a reason", find: text::exceptions_have_reasons },
    Check { rule: "files are short", find: text::files_are_short },
    Check { rule: "no white space at the end of lines", find: text::no_trailing_space },
    Check { rule: "no paths of one machine", find: text::no_machine_paths },
    Check { rule: "no hosts of package registries", find: text::no_registries },
    Check { rule: "actions of CI are pinned by commit", find: text::actions_are_pinned },
    Check { rule: "base images are pinned by digest", find: text::images_are_pinned },
    Check { rule: "sentences name who acts", find: text::sentences_name_who_acts },
    Check { rule: "no notes about work to do later", find: text::nothing_for_later },
    Check { rule: "every pattern for mutants matches a file", find: mutants::patterns_match_files },
    Check { rule: "mutants are made of all parts of a module", find: mutants::folders_of_modules_are_selected },
    Check { rule: "excluded mutants have a reason", find: mutants::exclusions_have_reasons },
    Check { rule: "the licence is present", find: documents::licence },
    Check { rule: "links lead to existing files", find: documents::links },
    Check { rule: "documents name code that exists", find: documents::names_of_code },
    Check { rule: "the tests of each fault exist", find: reliability::named_tests_exist },
    Check { rule: "operators show what the book says", find: shapes::operators_show_what_the_book_says },
    Check { rule: "operators use all of the runtime", find: shapes::operators_use_all_of_the_runtime },
];

/// A breach of a rule.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    path: String,
    /// The line number, counted from one; `None` for the file as a whole.
    line: Option<usize>,
    /// What is wrong, and how to fix it.
    message: String,
}

impl Finding {
    fn in_line(file: &File, line: usize, message: impl Into<String>) -> Self {
        Self { path: file.path.clone(), line: Some(line), message: message.into() }
    }

    fn in_file(path: &str, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line: None, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, message } = self;
        write!(f, "{path}{}: {message}", line.map(|line| format!(":{line}")).unwrap_or_default())
    }
}

/// The links in these documents that lead to no file, a line each.
pub(crate) fn broken_links(files: &[File]) -> Vec<String> {
    documents::links(files).iter().map(ToString::to_string).collect()
}

pub(crate) fn run() -> Result<ExitCode> {
    let files = workspace::files()?;
    let mut count = 0;
    for check in CHECKS {
        let findings = (check.find)(&files);
        if !findings.is_empty() {
            println!("{}:", check.rule);
        }
        for finding in &findings {
            println!("  {finding}");
        }
        count += findings.len();
    }
    if count > 0 {
        println!("\n{count} findings");
        return Ok(ExitCode::FAILURE);
    }
    println!("{} files keep {} rules", files.len(), CHECKS.len());
    Ok(ExitCode::SUCCESS)
}

/// A finding for each line of `text` for which `is_wrong` is true.
fn lines(file: &File, text: &str, message: &str, is_wrong: impl Fn(&str) -> bool) -> Vec<Finding> {
    let wrong = (1..).zip(text.lines()).filter(|(_, line)| is_wrong(line));
    wrong.map(|(n, _)| Finding::in_line(file, n, message)).collect()
}

/// Helpers for the tests of the checks.
#[cfg(test)]
mod testing {
    use super::*;

    /// The places of the check's findings in these files, such as "a.rs:3".
    pub(super) fn found(check: fn(&[File]) -> Vec<Finding>, files: &[(&str, &str)]) -> Vec<String> {
        let file = |(path, text): &(&str, &str)| File { path: (*path).to_owned(), text: (*text).to_owned() };
        let files: Vec<_> = files.iter().map(file).collect();
        check(&files).iter().map(|it| it.path.clone() + &it.line.map(|n| format!(":{n}")).unwrap_or_default()).collect()
    }
}
