//! `cargo xtask tidy`: the rules of this repository that can be seen in its files, without building anything.

mod architecture;
mod documents;
mod manifests;
mod rust;
mod text;

use std::process::ExitCode;

use anyhow::Result;

use crate::workspace::{self, File};

/// Check the rules that can be seen in files, such as who may depend on whom
#[derive(clap::Args)]
pub(crate) struct Args {}

/// One rule. It looks at all files and says what it finds.
struct Check {
    /// What holds everywhere.
    rule: &'static str,
    find: fn(&[File]) -> Vec<Finding>,
}

const CHECKS: &[Check] = &[
    Check { rule: "operators do not know each other", find: architecture::operators_do_not_know_each_other },
    Check { rule: "crates depend downwards", find: architecture::crates_depend_downwards },
    Check { rule: "what users write and get knows no runtime", find: architecture::types_know_no_runtime },
    Check { rule: "what is pure does no I/O", find: architecture::pure_files_do_no_io },
    Check { rule: "only the manager watches and queues", find: architecture::only_the_manager_watches },
    Check { rule: "a skipped test is counted, with its reason", find: architecture::skipped_tests_are_counted },
    Check { rule: "permissions have no wildcards", find: architecture::permissions_have_no_wildcards },
    Check { rule: "every crate has the lints of the workspace", find: manifests::lints },
    Check { rule: "folders are called like their crates", find: manifests::folders },
    Check { rule: "versions of dependencies are in the root", find: manifests::versions },
    Check { rule: "the root offers only what is used", find: manifests::used },
    Check { rule: "exceptions from lints have a reason", find: text::exceptions_have_reasons },
    Check { rule: "files are short", find: text::files_are_short },
    Check { rule: "no white space at the end", find: text::no_trailing_space },
    Check { rule: "no paths of one machine", find: text::no_machine_paths },
    Check { rule: "no hosts of package registries", find: text::no_registries },
    Check { rule: "nothing is left to do later", find: text::nothing_for_later },
    Check { rule: "the licence is here", find: documents::licence },
    Check { rule: "links lead to files", find: documents::links },
];

/// A breach of a rule.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    path: String,
    /// Counted from one; none for a file as a whole.
    line: Option<usize>,
    /// What is wrong, and what to do about it.
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

pub(crate) fn run() -> Result<ExitCode> {
    let files = workspace::files()?;
    let mut count = 0;
    for check in CHECKS {
        let findings = (check.find)(&files);
        if !findings.is_empty() {
            println!("{}:", check.rule);
        }
        for Finding { path, line, message } in &findings {
            println!("  {path}{}: {message}", line.map(|line| format!(":{line}")).unwrap_or_default());
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

/// A finding for each line of the file that `is_wrong`.
fn lines(file: &File, text: &str, message: &str, is_wrong: impl Fn(&str) -> bool) -> Vec<Finding> {
    let wrong = (1..).zip(text.lines()).filter(|(_, line)| is_wrong(line));
    wrong.map(|(n, _)| Finding::in_line(file, n, message)).collect()
}

/// What the tests of the checks have in common.
#[cfg(test)]
mod testing {
    use super::*;

    /// The places that the check finds in these files, such as "a.rs:3".
    pub(super) fn found(check: fn(&[File]) -> Vec<Finding>, files: &[(&str, &str)]) -> Vec<String> {
        let file = |(path, text): &(&str, &str)| File { path: (*path).to_owned(), text: (*text).to_owned() };
        let files: Vec<_> = files.iter().map(file).collect();
        check(&files).iter().map(|it| it.path.clone() + &it.line.map(|n| format!(":{n}")).unwrap_or_default()).collect()
    }
}
