//! A rule for the document that names the tests of each fault. A test that is renamed or removed would leave the document without
//! notice, and its fault without a test.

use std::collections::BTreeSet;

use super::Finding;
use super::documents::is_name_of_test;
use super::manifests::{crates, name};
use super::rust::code;
use crate::workspace::File;

/// The document.
const DOCUMENT: &str = "shared/manager/RELIABILITY.md";
/// The header of the column that names other code than tests. It is the last one of its table.
const GUARD: &str = "| Guard |";

pub(super) fn named_tests_exist(files: &[File]) -> Vec<Finding> {
    let Some(document) = files.iter().find(|file| file.path == DOCUMENT) else { return Vec::new() };
    let folders: BTreeSet<&str> = crates(files).map(name).collect();
    let tests: BTreeSet<String> = crates(files).flat_map(|manifest| tests_of(manifest, files)).collect();
    let exists = |code: &str| {
        if code.contains("::") {
            // A test, or a module with tests.
            tests
                .iter()
                .any(|test| test.strip_prefix(code).is_some_and(|rest| rest.is_empty() || rest.starts_with("::")))
        } else {
            // `…` stands for the rest of the name.
            let is_it = |name: &str| code.strip_suffix('…').map_or(name == code, |begin| name.starts_with(begin));
            tests.iter().filter_map(|test| test.rsplit("::").next()).any(is_it)
        }
    };
    let is_test = |code: &&str| match code.split_once("::") {
        Some((first, _)) => folders.contains(first),
        None => code.strip_suffix('…').map_or_else(|| is_name_of_test(code), |begin| begin.contains('_')),
    };
    let mut findings = Vec::new();
    for (number, text) in texts_about_tests(document) {
        for code in text.split('`').skip(1).step_by(2).filter(is_test).filter(|code| !exists(code)) {
            let advice =
                format!("names {code}, which is neither a test nor a module with tests: name the test of this fault");
            findings.push(Finding::in_line(document, number, advice));
        }
    }
    findings
}

/// The lines of the document with their numbers, without the column that names other code.
fn texts_about_tests(document: &File) -> Vec<(usize, &str)> {
    let (mut texts, mut has_guards) = (Vec::new(), false);
    for (number, line) in (1..).zip(document.text.lines()) {
        has_guards = line.starts_with('|') && (has_guards || line.ends_with(GUARD));
        let row = line.trim_end().trim_end_matches('|');
        texts.push((number, if has_guards { row.rsplit_once('|').map_or(row, |(tests, _)| tests) } else { line }));
    }
    texts
}

/// The paths of all tests of this crate, such as `queue::core::tests::key_waits`. The first part is the folder of the crate. A test
/// is there with and without the module `tests`, because this module may be inside of the file.
fn tests_of(manifest: &File, files: &[File]) -> Vec<String> {
    let inside = format!("{}/", manifest.folder());
    let mut tests = Vec::new();
    for file in files.iter().filter(|file| file.is("rs")) {
        let Some(mut module) = file.path.strip_prefix(&inside).and_then(module) else { continue };
        module.insert(0, name(manifest));
        let module = module.join("::");
        for test in test_functions(&code(&file.text)) {
            tests.extend([format!("{module}::{test}"), format!("{module}::tests::{test}")]);
        }
    }
    tests
}

/// The path of the module in this file of a crate. The name of a test program is the first part.
fn module(path: &str) -> Option<Vec<&str>> {
    let below = path.strip_prefix("src/").or_else(|| path.strip_prefix("tests/"))?;
    let mut parts: Vec<&str> = below.strip_suffix(".rs")?.split('/').collect();
    parts.pop_if(|last| ["lib", "main", "mod"].contains(last));
    Some(parts)
}

/// The names of the functions with an attribute such as `#[test]` or `#[tokio::test(start_paused = true)]`.
fn test_functions(code: &str) -> Vec<&str> {
    let (mut tests, mut has_attribute) = (Vec::new(), false);
    for line in code.lines().map(str::trim_start) {
        let attribute = line.strip_prefix("#[").and_then(|rest| rest.split(['(', ']']).next());
        has_attribute |= attribute.is_some_and(|path| path.rsplit("::").next() == Some("test"));
        if let Some(function) = function(line)
            && std::mem::take(&mut has_attribute)
        {
            tests.push(function);
        }
    }
    tests
}

/// The name of the function whose declaration this line begins with.
fn function(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let is_declaration = before.split_whitespace().all(|word| ["pub", "async"].contains(&word));
    is_declaration.then(|| after.split(['(', '<']).next()).flatten()
}

#[cfg(test)]
mod tests {
    use super::super::testing::found;
    use super::*;

    const TESTS: &str = "fn helper_that_tests_call() {}\n#[test]\nfn key_waits_for_its_turn() {}\n\
                         #[tokio::test(start_paused = true)]\n#[expect(clippy::unwrap_used, reason = \"short\")]\n\
                         async fn two_workers_share_a_queue() {}\n// #[test] fn key_is_only_a_comment() {}\n";

    #[test]
    fn name_of_a_test_that_does_not_exist_is_found() {
        let document = "See `queue::core` and `make test`.\n\n\
                        |  | Fault | Tests | Guard |\n|---|---|---|---|\n\
                        | A1 | x | `queue::core::tests::key_waits_for_its_turn` | `queue::core::no_test` |\n\
                        | A2 | x | `two_workers_share_a_queue`, `two_workers_…` in both, `FLAGS=all` | |\n\
                        | A3 | x | `queue::program`, `queue::program::deep::key_waits_for_its_turn` | |\n\
                        | A4 | x | `queue::core::key_waits` | |\n\
                        | A5 | x | `queue::core::helper_that_tests_call` | |\n\
                        | A6 | x | `queue::deep::key_waits_for_its_turn` | |\n\
                        | A7 | x | `key_is_only_a_comment`, `three_workers_…` | |\n\n\
                        |  | Fault | Checks |\n|---|---|---|\n\
                        | A8 | x | `Key`, `queue::core::gone` |\n";
        let files = [
            (DOCUMENT, document),
            ("shared/queue/Cargo.toml", ""),
            ("shared/queue/src/core.rs", TESTS),
            ("shared/queue/tests/program/main.rs", "#[test]\nfn program_starts() {}\n"),
            ("shared/queue/tests/program/deep.rs", TESTS),
        ];
        let expected = [8, 9, 10, 11, 11, 15].map(|line| format!("{DOCUMENT}:{line}"));
        assert_eq!(found(named_tests_exist, &files), expected);
    }
}
