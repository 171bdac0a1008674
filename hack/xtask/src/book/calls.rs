//! The names of our API in the pages for users of other libraries: methods, such as `ctx.apply(desired)` and `.owns::<K>()`, and
//! paths with arguments, such as `Webhook::validating(f)`. `cargo xtask tidy` checks plain paths in all documents.

use std::collections::BTreeSet;

use super::File;
use crate::tidy::rust::without_comments;

/// The folder of these pages.
const PAGES: &str = "docs/book/src/migration/";
/// The document from which one more such page is generated.
const SOURCE: &str = "shared/manager/FROM-CONTROLLER-RUNTIME.md";
/// The folders with the code of the API that these pages name.
const CODE: [&str; 2] = ["shared/manager/src/", "shared/webhooks/src/"];

/// One line for each name that the code does not have. `files` is the whole checkout.
pub(super) fn check(files: &[File]) -> Vec<String> {
    let is_code = |file: &&File| file.is("rs") && CODE.iter().any(|folder| file.path.starts_with(folder));
    let code: String = files.iter().filter(is_code).map(|file| without_comments(&file.text)).collect();
    let words: BTreeSet<&str> = code.split(|letter: char| !is_of_name(letter)).collect();
    let is_function = |name: &str| ["(", "<"].iter().any(|next| code.contains(&format!("fn {name}{next}")));
    let exists = |path: &str| {
        let (outer, name) = path.rsplit_once("::").unwrap_or(("", path));
        let is_there = if name.starts_with(char::is_uppercase) { words.contains(name) } else { is_function(name) };
        is_there && outer.split("::").filter(|part| !part.is_empty()).all(|part| words.contains(part))
    };
    let is_page = |file: &&File| file.is("md") && (file.path.starts_with(PAGES) || file.path == SOURCE);
    let mut findings = Vec::new();
    for page in files.iter().filter(is_page) {
        for (line, text) in (1..).zip(page.text.lines()) {
            for code in ours(text) {
                if path_in(code).is_some_and(|path| !exists(path)) {
                    findings.push(format!("{}:{line}: `{code}`: the runtime has nothing of this name", page.path));
                }
            }
        }
    }
    findings
}

/// The texts between back-ticks that may name our API. The first column of a table has the names of the other library, and a sentence
/// has names of both.
fn ours(line: &str) -> Vec<&str> {
    match line.strip_prefix('|') {
        Some(row) => row.split('|').skip(1).flat_map(quoted).collect(),
        None => quoted(line).filter(|code| code.starts_with("ctx.")).collect(),
    }
}

fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The path in this code without its receiver, type parameters and arguments; `None` if the code is neither a method nor a path, such
/// as a flag.
fn path_in(code: &str) -> Option<&str> {
    let method = code.strip_prefix("ctx.").or_else(|| code.strip_prefix('.'));
    let path = method.unwrap_or(code).split(['(', '<']).next().unwrap_or_default();
    let path = path.strip_suffix("::").unwrap_or(path); // of `owns::<K>`
    let is_path = path.split("::").all(|part| !part.is_empty() && part.chars().all(is_of_name));
    let is_api = method.is_some() || code.contains('(') || path.contains("::");
    (is_path && is_api).then_some(path)
}

fn is_of_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_found_in_calls() {
        for (code, path) in [
            ("ctx.requeue_at(t)", Some("requeue_at")),
            ("ctx.get", Some("get")),
            (".owns::<Whole<Y>>()", Some("owns")),
            ("Controller::of::<K>()", Some("Controller::of")),
            ("Action::Done", Some("Action::Done")),
            ("defaulting(f)", Some("defaulting")),
            ("Secret", None),
            ("--flag", None),
            ("async fn(Arc<K>, Context<K>)", None),
            ("booking/admission.rs", None),
        ] {
            assert_eq!(path_in(code), path, "{code}");
        }
    }

    #[test]
    fn names_that_the_code_lacks_are_found() {
        let text = "| other | here |\n| `.gone(x)` | `.owns::<K>()`, `ctx.requeue_at(t)`, `Webhook::validating(f)`, `Action::Done` |\n\
                    | x | `.gone::<K>()` | `ctx.lost(…)` |\n`ctx.gone`, unlike `kopf.adopt(x)`\n\
                    | x | `Webhook::none(f)`, `Action::Gone`, `Gone::validating(f)` |\n";
        let code = "// fn gone() Gone\nstruct Webhook;\nenum Action { Done }\nfn owns<K>() {}\nfn requeue_at() {}\nfn validating() {}\n";
        let file = |path: &str, text: &str| File { path: path.to_owned(), text: text.to_owned() };
        let found = check(&[
            file("docs/book/src/migration/page.md", text),
            file("docs/book/src/other.md", "`ctx.gone`\n"),
            file("shared/manager/FROM-CONTROLLER-RUNTIME.md", "`ctx.gone`\n"),
            file("shared/manager/src/a.rs", code),
            file("shared/other/src/a.rs", "fn gone() {}\nfn lost() {}\n"),
        ]);
        let names: Vec<&str> = found.iter().filter_map(|it| it.split('`').nth(1)).collect();
        let expected = [
            ".gone::<K>()",
            "ctx.lost(…)",
            "ctx.gone",
            "Webhook::none(f)",
            "Action::Gone",
            "Gone::validating(f)",
            "ctx.gone",
        ];
        assert_eq!(names, expected, "{found:?}");
        assert!(found[0].starts_with("docs/book/src/migration/page.md:3: "), "{found:?}");
    }
}
