//! Rules for every text.

use super::rust::code;
use super::{Finding, lines};
use crate::workspace::File;

/// Longer is mostly two things in one file.
const LONGEST: usize = 600;

/// Longer all the same: the file, and why it is one thing.
const LONG: &[(&str, &str)] = &[];

pub(super) fn files_are_short(files: &[File]) -> Vec<Finding> {
    let is_long = |file: &&File| {
        let written = file.is("rs") || file.is("go") || file.is("py") || file.is("sh") || file.name() == "Makefile";
        written && file.text.lines().count() > LONGEST && !LONG.iter().any(|(path, _)| *path == file.path)
    };
    let advice = format!("has more than {LONGEST} lines: divide it, or give a reason in hack/xtask/src/tidy/text.rs");
    files.iter().filter(is_long).map(|file| Finding::in_file(&file.path, advice.clone())).collect()
}

pub(super) fn no_trailing_space(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| !is_foreign(file)) {
        findings.extend(lines(file, &file.text, "remove the white space at the end", |line| {
            line.ends_with([' ', '\t', '\r'])
        }));
        if !file.text.is_empty() && (!file.text.ends_with('\n') || file.text.ends_with("\n\n")) {
            findings.push(Finding::in_file(&file.path, "end it with one line break"));
        }
    }
    findings
}

pub(super) fn no_machine_paths(files: &[File]) -> Vec<Finding> {
    // In two halves, so that this file keeps its own rule.
    let paths = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];
    let is_wrong =
        |line: &str| paths.iter().any(|path| line.match_indices(path).any(|(at, _)| starts_a_path(&line[..at])));
    files.iter().flat_map(|file| lines(file, &file.text, "other machines have no such path", is_wrong)).collect()
}

/// Whether a "/" after this text is the root, and not a folder of something else.
fn starts_a_path(before: &str) -> bool {
    !before.ends_with(|c: char| c.is_alphanumeric() || "._-~$})".contains(c))
}

pub(super) fn no_registries(files: &[File]) -> Vec<Finding> {
    let hosts = [
        concat!("index.crates", ".io"),
        concat!("static.crates", ".io"),
        concat!("proxy.golang", ".org"),
        concat!("sum.golang", ".org"),
        concat!("deb.debian", ".org"),
        concat!("security.debian", ".org"),
        concat!("registry.npmjs", ".org"),
        concat!("GOPROXY", "="),
    ];
    let message = "where packages come from is for each machine to say, not for the repository";
    let is_wrong = |line: &str| hosts.iter().any(|host| line.contains(host));
    let files = files.iter().filter(|file| !is_foreign(file));
    files.flat_map(|file| lines(file, &file.text, message, is_wrong)).collect()
}

pub(super) fn nothing_for_later(files: &[File]) -> Vec<Finding> {
    let words = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X:"), concat!("to", "do!")];
    let is_wrong =
        |line: &str| words.iter().any(|word| super::rust::names(line, word) || line.contains(&format!("{word}(")));
    let files = files.iter().filter(|file| !is_foreign(file));
    files.flat_map(|file| lines(file, &file.text, "do it now, or write an issue", is_wrong)).collect()
}

pub(super) fn exceptions_have_reasons(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.is("rs")) {
        let code = code(&file.text);
        for attribute in ["[allow(", "[expect("] {
            for (at, _) in code.match_indices(attribute) {
                let end = code[at..].find(")]").map_or(code.len(), |length| at + length);
                if !code[at..end].contains("reason =") {
                    let line = code[..at].matches('\n').count() + 1;
                    findings.push(Finding::in_line(file, line, "say why: `#[expect(…, reason = \"…\")]`"));
                }
            }
        }
    }
    findings
}

/// Written by others, or by programs.
fn is_foreign(file: &File) -> bool {
    let by_name = matches!(file.name(), "Cargo.lock" | "go.sum" | "go.mod" | "LICENSE");
    by_name || file.is("snap") || file.path.contains("proptest-regressions/")
}

#[cfg(test)]
mod tests {
    use super::super::testing::found;
    use super::*;

    #[test]
    fn a_long_file_is_found() {
        let long = "line\n".repeat(LONGEST + 1);
        let files = [("a.rs", long.as_str()), ("a.md", long.as_str()), ("b.rs", "line\n")];
        assert_eq!(found(files_are_short, &files), ["a.rs"]);
    }

    #[test]
    fn every_exception_from_length_is_needed_and_has_a_reason() {
        for (path, reason) in LONG {
            let text = std::fs::read_to_string(crate::workspace::root().join(path)).unwrap_or_default();
            assert!(text.lines().count() > LONGEST && !reason.is_empty(), "{path} needs no exception any more");
        }
    }

    #[test]
    fn white_space_at_the_end_is_found() {
        let files = [("a.rs", "a \nb\n"), ("b.md", "b"), ("c.md", "c\n\n"), ("Cargo.lock", "d "), ("e.md", "")];
        assert_eq!(found(no_trailing_space, &files), ["a.rs:1", "b.md", "c.md"]);
    }

    #[test]
    fn paths_of_a_machine_are_found() {
        let path = concat!("/ro", "ot/");
        let text = format!("cd {path}x\nof(\"{path}\")\n$ROOT{path}x\n\"/root\"\n");
        assert_eq!(found(no_machine_paths, &[("a.md", &text)]), ["a.md:1", "a.md:2"]);
    }

    #[test]
    fn hosts_are_found() {
        let text = concat!("see crates", ".io\nhttps://index.crates", ".io/x\n");
        assert_eq!(found(no_registries, &[("a.toml", text), ("Cargo.lock", text)]), ["a.toml:2"]);
    }

    #[test]
    fn what_is_left_for_later_is_found() {
        let text = concat!("// TO", "DO: more\nto", "do!();\nmethod()\nTO", "DOS\n// TO", "DO(me)\n");
        assert_eq!(found(nothing_for_later, &[("a.rs", text)]), ["a.rs:1", "a.rs:2", "a.rs:5"]);
    }

    #[test]
    fn an_exception_without_a_reason_is_found() {
        let text = "#[expect(dead_code, reason = \"soon\")]\n#![allow(dead_code)]\n// #[allow(x)]\n#[expect(\n    unused,\n)]\n";
        assert_eq!(found(exceptions_have_reasons, &[("a.rs", text)]), ["a.rs:2", "a.rs:4"]);
    }
}
