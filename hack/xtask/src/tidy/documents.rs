//! Rules for the licence and for Markdown documents.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::manifests::{crates, name};
use crate::workspace::File;

pub(super) fn licence(files: &[File]) -> Vec<Finding> {
    match files.iter().find(|file| file.path == "LICENSE") {
        Some(file) if file.text.contains("Apache License") => Vec::new(),
        _ => {
            vec![Finding::in_file("LICENSE", "must contain the Apache License, which the manifests name")]
        }
    }
}

pub(super) fn links(files: &[File]) -> Vec<Finding> {
    // Links of the template hold in the project that it becomes.
    let is_template = |file: &File| file.path.starts_with("hack/scaffold/project/");
    let exists = |path: &str| files.iter().any(|file| file.path == path || file.path.starts_with(&format!("{path}/")));
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.is("md") && !is_template(file)) {
        for (n, line) in (1..).zip(file.text.lines()) {
            for target in targets(line).filter(|target| !target.is_empty() && !target.contains(':')) {
                let path = resolved(file.folder(), target);
                if !path.is_empty() && !exists(&path) {
                    findings.push(Finding::in_line(file, n, format!("links to {path}, which does not exist")));
                }
            }
        }
    }
    findings
}

pub(super) fn names_of_code(files: &[File]) -> Vec<Finding> {
    let documents = files.iter().filter(|file| file.is("md"));
    let all = words(files.iter().filter(|file| !file.is("md")));
    let of_crates: BTreeMap<String, BTreeSet<&str>> = crates(files)
        .map(|manifest| {
            let folder = format!("{}/", manifest.folder());
            let code = files.iter().filter(|file| file.is("rs") && file.path.starts_with(&folder));
            (name(manifest).replace('-', "_"), words(code))
        })
        .collect();
    let is_there = |code: &str| match code.split_once("::") {
        Some((first, path)) => {
            let known = of_crates.get(&first.replace('-', "_"));
            known.is_none_or(|known| path.split("::").all(|part| known.contains(part)))
        }
        None => !is_name_of_test(code) || all.contains(code),
    };
    let mut findings = Vec::new();
    for file in documents {
        for (n, line) in (1..).zip(file.text.lines()) {
            for code in line.split('`').skip(1).step_by(2).filter(|code| is_path(code) && !is_there(code)) {
                findings.push(Finding::in_line(file, n, format!("names {code}, which does not exist")));
            }
        }
    }
    findings
}

/// All identifiers in the files, and in their paths, because a file is a module.
fn words<'a>(files: impl Iterator<Item = &'a File>) -> BTreeSet<&'a str> {
    let words = |text: &'a str| text.split(|c: char| !c.is_alphanumeric() && c != '_');
    files.flat_map(|file| words(&file.path).chain(words(&file.text))).collect()
}

/// Whether this is the path of an item, such as `manager::Context`, or a single name.
fn is_path(code: &str) -> bool {
    code.split("::").all(|part| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-'))
}

/// Whether this is probably the name of a test, which is a sentence, and not the name of a metric, which code may compute.
pub(super) fn is_name_of_test(code: &str) -> bool {
    let is_metric = ["_seconds", "_total"].iter().any(|unit| code.ends_with(unit));
    code.matches('_').count() >= 3 && !is_metric && !code.chars().any(|c| c.is_uppercase() || c == '-')
}

/// The targets of the links `[text](target)` in a line, without `#heading`. Text between back-ticks, such as a pattern, is not a
/// link.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').step_by(2).flat_map(|text| {
        let starts = text.match_indices("](").map(|(at, open)| &text[at + open.len()..]);
        starts.filter_map(|rest| rest.split(['#', ')', ' ']).next())
    })
}

/// The target of a link as a path relative to the root of the checkout. `folder` is the folder of the document.
fn resolved(folder: &str, target: &str) -> String {
    let mut parts: Vec<_> = if target.starts_with('/') { Vec::new() } else { folder.split('/').collect() };
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.retain(|part| !part.is_empty());
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::super::testing::found;
    use super::*;

    #[test]
    fn missing_apache_licence_is_found() {
        assert_eq!(found(licence, &[("LICENSE", "   Apache License\n")]), Vec::<String>::new());
        assert_eq!(found(licence, &[("README.md", "")]), ["LICENSE"]);
    }

    #[test]
    fn only_broken_links_are_found() {
        let text = "[a](../shared/a.md#part) [web](https://example.com/x) [here](#part)\n[b](b.md), [`c`](src)\n[root](..) `[0-9](x)`\n";
        let files = [("operators/README.md", text), ("shared/a.md", ""), ("operators/src/lib.rs", "")];
        assert_eq!(found(links, &files), ["operators/README.md:2"]);
    }

    #[test]
    fn only_missing_code_is_found() {
        let text = "`a::tests::it_holds_what_it_says` `a-b::Kind` `kube::Api` `it_holds_what_it_says` `--flag` `a_b`\n\
                    `a::tests::it_is_gone` `a::gone::Kind`\n`the_test_that_is_gone`\n";
        let files = [
            ("README.md", text),
            ("shared/a/Cargo.toml", ""),
            ("shared/a/src/lib.rs", "mod tests { fn it_holds_what_it_says() {} }"),
            ("shared/a-b/Cargo.toml", ""),
            ("shared/a-b/src/lib.rs", "struct Kind;"),
        ];
        assert_eq!(found(names_of_code, &files), ["README.md:2", "README.md:2", "README.md:3"]);
    }
}
