//! Rules for the licence and for Markdown documents.

use super::Finding;
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
    let exists = |path: &str| files.iter().any(|file| file.path == path || file.path.starts_with(&format!("{path}/")));
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.is("md")) {
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
}
