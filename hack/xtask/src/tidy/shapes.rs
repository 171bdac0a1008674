//! Checks that the operators that the book names for a part of the runtime use it, and that operators use each part.

use super::Finding;
use super::rust::{code, names};
use crate::workspace::File;

const PAGE: &str = "docs/book/src/how-to/shapes.md";

/// Folders with operators of one file each.
const SMALL: &[&str] = &["shared/manager/examples/example-operators/src", "hack/bench/sketches/src"];

/// The two tables with operators.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Table {
    /// Kinds, which the operators own.
    Children,
    /// Names of functions and types of the runtime.
    Parts,
}

pub(super) fn operators_show_what_the_book_says(files: &[File]) -> Vec<Finding> {
    let Some(page) = files.iter().find(|file| file.path == PAGE) else { return Vec::new() };
    let (mut table, mut findings) = (None, Vec::new());
    for (number, line) in (1..).zip(page.text.lines()) {
        if let Some(title) = line.strip_prefix("## ") {
            table = match title {
                "Children" => Some(Table::Children),
                "Parts of the runtime" => Some(Table::Parts),
                _ => None,
            };
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let (Some(table), [_, what, operators, _]) = (table, cells.as_slice()) else { continue };
        let words: Vec<&str> = match table {
            Table::Children => what.split(", ").filter(|kind| kind.starts_with(char::is_uppercase)).collect(),
            Table::Parts => what.split('`').skip(1).step_by(2).filter_map(|word| word.rsplit("::").next()).collect(),
        };
        let operators: Vec<&str> = operators.split(", ").collect();
        let uses = |operator: &str, word: &str| sources(files, operator).any(|file| is_used(table, file, word));
        let idle = operators.iter().filter(|it| !words.is_empty() && !words.iter().any(|word| uses(it, word)));
        findings.extend(idle.map(|it| Finding::in_line(page, number, format!("{it} uses none of these: {what}"))));
        let lost = words.iter().filter(|word| !operators.iter().any(|it| uses(it, word)));
        findings
            .extend(lost.map(|word| Finding::in_line(page, number, format!("none of these operators uses {word}"))));
    }
    findings
}

/// The sources of an operator, by the name that the book gives it: that of a module, or that of a kind.
fn sources<'a>(files: &'a [File], operator: &str) -> impl Iterator<Item = &'a File> {
    let folder = format!("operators/{}-operator/src/", operator.to_lowercase());
    let module = format!("{operator}.rs");
    let is_small = move |file: &File| SMALL.contains(&file.folder()) && file.name() == module;
    files.iter().filter(move |file| file.is("rs") && (file.path.starts_with(&folder) || is_small(file)))
}

fn is_used(table: Table, file: &File, word: &str) -> bool {
    let code = code(&file.text);
    let mut lines = code.lines().filter(|line| !line.starts_with("use "));
    lines.any(|line| names(line, word) && (table == Table::Parts || line.contains(".owns")))
}

/// The types by which an operator uses the runtime.
const TYPES: &[&str] = &["Context", "ControllerBuilder", "Lookup", "Manager", "ValidationResult", "Webhook"];

/// The folders with these types.
const RUNTIME: &[&str] = &["shared/manager/src/", "shared/webhooks/src/"];

/// Finds public functions of [`TYPES`] that only tests call, or no code. A function counts as used if operators call any function of
/// its name.
pub(super) fn operators_use_all_of_the_runtime(files: &[File]) -> Vec<Finding> {
    let operators: Vec<String> = files.iter().filter(|it| is_of_an_operator(it)).map(|it| code(&it.text)).collect();
    let is_of_the_runtime = |file: &&File| file.is("rs") && RUNTIME.iter().any(|folder| file.path.starts_with(folder));
    let mut findings = Vec::new();
    for file in files.iter().filter(is_of_the_runtime) {
        let mut is_within = false;
        for (number, line) in (1..).zip(code(&file.text).lines()) {
            if line.starts_with("impl") {
                is_within = !line.contains(" for ") && TYPES.iter().any(|it| names(line, it));
            }
            let Some(name) = public_function(line).filter(|_| is_within) else { continue };
            if !operators.iter().any(|code| calls(code, name)) {
                let advice = format!("no operator and no example calls {name}: remove it, or use it");
                findings.push(Finding::in_line(file, number, advice));
            }
        }
    }
    findings
}

/// Whether the file is a source of an operator, without tests.
fn is_of_an_operator(file: &File) -> bool {
    let is_source =
        (file.path.starts_with("operators/") && file.path.contains("/src/")) || SMALL.contains(&file.folder());
    file.is("rs") && is_source && file.name() != "tests.rs" && !file.path.contains("/tests/")
}

/// The name of the public function of a type that this line declares.
fn public_function(line: &str) -> Option<&str> {
    let (before, after) = line.strip_prefix("    pub ")?.split_once("fn ")?;
    after.split(['(', '<']).next().filter(|_| matches!(before, "" | "async " | "const "))
}

/// Whether the code calls a function of a type by this name.
fn calls(code: &str, name: &str) -> bool {
    let in_a_word = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(name)
        .any(|(at, _)| code[..at].ends_with(['.', ':']) && !code[at + name.len()..].starts_with(in_a_word))
}

#[cfg(test)]
mod tests {
    use super::super::testing::found;
    use super::*;

    #[test]
    fn operator_that_does_not_use_what_the_book_says_is_found() {
        let page = "## Children\n\n| child | shown by |\n|---|---|\n| Job, Secret | small, Large |\n| Pod | small |\n\n\
                    ## Parts of the runtime\n\n| part | shown by |\n|---|---|\n| a: `A::runs` | small |\n| b: `reads` | Large |\n\
                    | c | Large |\n\n## Other\n\n| a: `none` | small |\n";
        let small = "use k8s::Pod;\nfn setup() {\n    a.owns::<Whole<Secret>>().runs();\n}\n";
        let large = "fn setup() {\n    a.owns_if_installed::<Job>(); // reads\n}\n";
        let files = [
            (PAGE, page),
            ("hack/bench/sketches/src/small.rs", small),
            ("operators/large-operator/src/operator.rs", large),
        ];
        let line = |number: usize| format!("{PAGE}:{number}");
        assert_eq!(found(operators_show_what_the_book_says, &files), [line(6), line(6), line(13), line(13)]);
    }

    #[test]
    fn function_that_no_operator_calls_is_found() {
        let context = "impl<K> Context<K> {\n    pub fn get(&self) {}\n    pub async fn lost<C>(&self) {}\n    fn own() {}\n}\n\
                       impl Clone for Context<()> {\n    pub fn other() {}\n}\nimpl Names {\n    pub fn of() {}\n}\n";
        let webhook = "impl Webhook {\n    pub const fn defaulting() {}\n    pub fn lost_path() {}\n}\n";
        let operator = "fn a() {\n    ctx.get(); // ctx.lost()\n    lost();\n    ctx.lost_more();\n    Webhook::defaulting();\n}\n";
        let files = [
            ("operators/large-operator/src/controller.rs", operator),
            ("operators/large-operator/src/status/tests.rs", "fn a() {\n    ctx.lost();\n}\n"),
            ("shared/manager/src/context.rs", context),
            ("shared/webhooks/src/lib.rs", webhook),
        ];
        let expected = ["shared/manager/src/context.rs:3", "shared/webhooks/src/lib.rs:3"];
        assert_eq!(found(operators_use_all_of_the_runtime, &files), expected);
    }
}
