//! Simulated worlds judge an operator by its specification. So their tests use nothing of the code that they judge.

use super::Finding;
use super::architecture::{REGISTRY, operator_crates, reasons};
use super::manifests::name;
use super::rust::{code, without_comments};
use crate::workspace::File;

/// The section of an operator's manifest with what else of its crate its worlds may use, each with the reason.
const MAY_USE: &str = "[package.metadata.worlds-may-use]";
/// The module with the types that users of the API see, too.
const API: &str = "api";

pub(super) fn worlds_use_only_the_api(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for manifest in operator_crates(files) {
        let operator = name(manifest).replace('-', "_");
        let may_use: Vec<&str> = reasons(manifest, MAY_USE).map(|(item, _)| item).collect();
        // The worlds of the registry have several operators in one process.
        let folders = [manifest.folder(), &format!("operators/{REGISTRY}")].map(|folder| format!("{folder}/tests/"));
        for file in files_of_worlds(files, &folders) {
            for (line, item) in items(&code(&file.text), &operator) {
                // Types of the root are those of the API, and those that build the controller.
                let is_allowed = item.starts_with(char::is_uppercase) || item == API || may_use.contains(&&*item);
                if !is_allowed {
                    let advice = format!(
                        "worlds judge {operator} by its specification: use only its root types and `{API}`, or list {item} \
                         with the reason under {MAY_USE} in its manifest"
                    );
                    findings.push(Finding::in_line(file, line, advice));
                }
            }
        }
    }
    findings
}

/// The files of the tests in these folders that play worlds, and those that they take from other tests with `#[path]`.
fn files_of_worlds<'a>(files: &'a [File], folders: &[String]) -> Vec<&'a File> {
    let is_one = |file: &File| {
        let mut inside = folders.iter().filter_map(|folder| file.path.strip_prefix(folder.as_str()));
        file.is("rs") && inside.any(|path| path.starts_with("simulation"))
    };
    let mut taken = Vec::new();
    for file in files.iter().filter(|file| is_one(file)) {
        let text = without_comments(&file.text);
        let paths = text.split("#[path = \"").skip(1).filter_map(|after| after.split('"').next());
        taken.extend(paths.map(|path| resolved(&format!("{}/{path}", file.folder()))));
    }
    files.iter().filter(|file| is_one(file) || taken.contains(&file.path)).collect()
}

/// The path without `..`.
fn resolved(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}

/// The items at the root of this crate that the code names, each with its line. `*` stands for all of them.
fn items(code: &str, of: &str) -> Vec<(usize, String)> {
    let mut items = Vec::new();
    for (at, _) in code.match_indices(of) {
        let end = at + of.len();
        if code[..at].ends_with(is_of_a_word) || code[end..].starts_with(is_of_a_word) {
            continue;
        }
        match code[end..].strip_prefix("::") {
            Some(path) if path.starts_with('{') => {
                items.extend(elements(code, end + "::{".len()).into_iter().filter_map(|start| word(code, start)));
            }
            Some(_) => items.extend(word(code, end + "::".len())),
            None => items.push((line(code, at), "*".to_owned())),
        }
    }
    items
}

/// The places where the elements of a group begin, up to its closing brace.
fn elements(code: &str, begin: usize) -> Vec<usize> {
    let (mut starts, mut depth) = (vec![begin], 0);
    for (at, c) in code[begin..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => starts.push(begin + at + 1),
            _ => {}
        }
    }
    starts
}

/// The next word after this place, or `*`, with its line. `None` if there is none before the end of the group.
fn word(code: &str, start: usize) -> Option<(usize, String)> {
    let text = code[start..].trim_start();
    let end = text.find(|c: char| !is_of_a_word(c)).unwrap_or(text.len());
    let word = if text.starts_with('*') { "*" } else { &text[..end] };
    (!word.is_empty()).then(|| (line(code, code.len() - text.len()), word.to_owned()))
}

fn line(code: &str, at: usize) -> usize {
    code[..at].matches('\n').count() + 1
}

fn is_of_a_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::super::testing::found;
    use super::*;

    #[test]
    fn use_of_the_judged_code_is_found() {
        let world = "#[path = \"in_memory/shop.rs\"]\nmod shop;\n// a_operator::desired is not used\nuse a_operator::{\n    \
                     A, AOperator, api::v1::ASpec, client::{Client, desired},\n    desired::{self, Child}, timing,\n};\n\
                     fn f() { a_operator::course::next(); not_a_operator::course(); }\nuse a_operator as all;\n\
                     use a_operator::*;\nuse a_operator::AOperator;\n";
        let together = "#[path = \"../../a-operator/tests/in_memory/shared.rs\"]\nmod shared;\nuse a_operator::AOperator;\n\
                        use b_operator::desired;\n";
        let files = [
            (
                "operators/a-operator/Cargo.toml",
                "[package.metadata.worlds-may-use]\nclient = \"a reason\"\n\n[lints]\n",
            ),
            ("operators/a-operator/tests/simulation.rs", world),
            (
                "operators/a-operator/tests/simulation/judge.rs",
                "#[path = \"../in_memory/deep.rs\"]\nmod deep;\nuse a_operator::status::Status;\n",
            ),
            ("operators/a-operator/tests/in_memory/shop.rs", "\nuse a_operator::known;\n"),
            ("operators/a-operator/tests/in_memory/other.rs", "use a_operator::known;\n"),
            ("operators/a-operator/tests/in_memory/shared.rs", "use a_operator::known;\n"),
            ("operators/a-operator/tests/in_memory/deep.rs", "use a_operator::known;\n"),
            ("operators/b-operator/Cargo.toml", ""),
            ("operators/b-operator/tests/simulation.rs", "use b_operator::{BOperator, declare};\n"),
            ("operators/controller-manager/tests/simulation.rs", together),
            ("operators/controller-manager/tests/registry.rs", "use b_operator::desired;\n"),
        ];
        let of_a = [6, 6, 8, 9, 10].map(|line| format!("operators/a-operator/tests/simulation.rs:{line}"));
        let others = [
            "operators/a-operator/tests/simulation/judge.rs:3",
            "operators/a-operator/tests/in_memory/shop.rs:2",
            "operators/a-operator/tests/in_memory/shared.rs:1",
            "operators/a-operator/tests/in_memory/deep.rs:1",
            "operators/b-operator/tests/simulation.rs:1",
            "operators/controller-manager/tests/simulation.rs:4",
        ];
        assert_eq!(found(worlds_use_only_the_api, &files), [&of_a[..], &others.map(str::to_owned)].concat());
    }
}
