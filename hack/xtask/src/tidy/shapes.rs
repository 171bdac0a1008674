//! Checks that the operators that the book names for a part of the runtime use it.

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
}
