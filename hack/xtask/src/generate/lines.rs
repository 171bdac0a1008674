//! Counts the lines of code of the operators that the book compares with those of other projects, and of the operator of its tutorial.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};

use crate::tidy::rust::without_comments;
use crate::workspace::File;

/// An operator, and its counterpart on controller-runtime.
struct Compared {
    /// What it does.
    what: &'static str,
    file: &'static str,
    peer: Peer,
}

/// Where an operator on controller-runtime is.
enum Peer {
    /// In a file of this repository.
    File(&'static str),
    /// Elsewhere: its name and its lines. The page of the book has the command that counts them.
    Elsewhere(&'static str, usize),
}

const OPERATORS: &[Compared] = &[
    Compared {
        what: "CronJob, as in kubebuilder's tutorial",
        file: "hack/bench/sketches/src/cron_jobs.rs",
        peer: Peer::Elsewhere("the tutorial's own", 449),
    },
    Compared {
        what: "Certificate and Issuer, as in cert-manager: a Secret that is renewed in time",
        file: "hack/bench/sketches/src/certificates.rs",
        peer: Peer::File("hack/bench/controller-runtime/sketches/certificates/certificates.go"),
    },
    Compared {
        what: "namespaces with quotas, accounts, roles and bindings",
        file: "shared/manager/examples/example-operators/src/tenants.rs",
        peer: Peer::File("hack/bench/controller-runtime/sketches/tenants/tenants.go"),
    },
    Compared {
        what: "a ConfigMap that is served on each node, and under the host of its Ingress; a webhook",
        file: "shared/manager/examples/example-operators/src/banners.rs",
        peer: Peer::File("hack/bench/controller-runtime/sketches/banners/banners.go"),
    },
];

/// The files of a small operator, in the order in which the tutorial shows them. The first one is the schema.
const PARTS: &[&str] = &["api.rs", "desired.rs", "status.rs", "controller.rs", "operator.rs", "lib.rs", "main.rs"];

/// The table of the operators with their lines of code, beside those of their counterparts.
pub(super) fn table(files: &[File]) -> Result<String> {
    let text = |path: &str| {
        let file = files.iter().find(|file| file.path == path);
        file.map(|file| &*file.text).with_context(|| format!("{path} does not exist"))
    };
    let mut table = "| operator | file | lines | on controller-runtime | lines | ratio |\n\
                     |---|---|---:|---|---:|---:|\n"
        .to_owned();
    for Compared { what, file, peer } in OPERATORS {
        let lines = count(text(file)?);
        let (name, peers) = match peer {
            Peer::File(path) => (format!("`{path}`"), count_go(text(path)?)),
            Peer::Elsewhere(name, lines) => ((*name).to_owned(), *lines),
        };
        let hundredths = (100 * lines + peers / 2).checked_div(peers).unwrap_or_default();
        let (whole, part) = (hundredths / 100, hundredths % 100);
        writeln!(table, "| {what} | `{file}` | {lines} | {name} | {peers} | {whole}.{part:02} |")?;
    }
    Ok(table)
}

/// The table of the files of the small operator in this folder with their lines of code, without tests.
pub(super) fn of_operator(folder: &str, files: &[File]) -> Result<String> {
    let source = format!("{folder}/src/");
    let code: Vec<&File> = files.iter().filter(|file| file.path.starts_with(&source)).collect();
    ensure!(code.len() == PARTS.len(), "{source} has other files than {}", PARTS.join(", "));
    let mut table = "| file | lines |\n|---|---:|\n".to_owned();
    let mut sum = 0;
    for part in PARTS {
        let file = code.iter().find(|file| file.name() == *part);
        let file = file.with_context(|| format!("{source}{part} does not exist"))?;
        let lines = count(file.text.split("#[cfg(test)]").next().unwrap_or_default());
        sum += if *part == PARTS[0] { 0 } else { lines };
        writeln!(table, "| `{part}` | {lines} |")?;
    }
    writeln!(table, "| all but the schema in `{}` | {sum} |", PARTS[0])?;
    Ok(table)
}

/// The number of lines without blank ones, comments and imports.
fn count(rust: &str) -> usize {
    let code = without_comments(rust);
    let (mut count, mut is_import) = (0, false);
    for line in code.lines().filter(|line| !line.trim().is_empty()) {
        is_import |= line.starts_with("use ");
        count += usize::from(!is_import);
        is_import &= !line.trim_end().ends_with(';');
    }
    count
}

/// The same number for a Go file whose comments have lines of their own.
fn count_go(go: &str) -> usize {
    let (mut count, mut is_import) = (0, false);
    for line in go.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")) {
        is_import |= line == "import (";
        count += usize::from(!is_import);
        is_import &= line != ")";
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The operator of the tutorial.
    const FOLDER: &str = "operators/foo-operator";

    #[test]
    fn blank_lines_comments_and_imports_do_not_count() {
        let rust = "//! a\n\nuse a::{\n    b,\n    c,\n};\nuse d; // e\n\n/// f\nfn g() {\n    // h\n    i(\"// j\"); // k\n}\n";
        assert_eq!(count(rust), 3);
    }

    #[test]
    fn blank_lines_comments_and_imports_of_go_do_not_count() {
        let go = "// Package a does b.\npackage a\n\nimport (\n\t\"b\"\n)\n\n// c\nvar d = (1) // e\n\nfunc f() {\n\t// g\n}\n";
        assert_eq!(count_go(go), 4);
    }

    #[test]
    fn table_has_the_lines_of_each_file() {
        let mut files = Vec::new();
        for Compared { file, peer, .. } in OPERATORS {
            files.push(File { path: (*file).to_owned(), text: "fn a() {}\n".to_owned() });
            if let Peer::File(path) = peer {
                files.push(File { path: (*path).to_owned(), text: "package a\n\nfunc a() {\n}\n".to_owned() });
            }
        }
        let made = table(&files).unwrap();
        let here = made.lines().filter(|line| line.ends_with("| 3 | 0.33 |") && line.contains("` | 1 | `")).count();
        assert_eq!(here, files.len() - OPERATORS.len(), "{made}");
        assert!(made.contains("| 1 | the tutorial's own | 449 | 0.00 |"), "{made}");
        for left_out in 0..files.len() {
            let mut others = files.clone();
            let removed = others.remove(left_out);
            assert!(table(&others).is_err(), "without {}", removed.path);
        }
    }

    #[test]
    fn lines_of_the_tutorial_are_those_without_tests_and_schema() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n}\n".to_owned();
        let mut files: Vec<File> =
            PARTS.iter().map(|part| File { path: format!("{FOLDER}/src/{part}"), text: text.clone() }).collect();
        let table = of_operator(FOLDER, &files).unwrap();
        assert!(table.ends_with("| `main.rs` | 1 |\n| all but the schema in `api.rs` | 6 |\n"), "{table}");
        files.push(File { path: format!("{FOLDER}/src/other.rs"), text });
        assert!(of_operator(FOLDER, &files).is_err());
    }

    #[test]
    fn operator_of_the_tutorial_has_about_a_hundred_lines() {
        let table = of_operator(FOLDER, &crate::workspace::files().unwrap()).unwrap();
        let lines: usize = table.trim_end().trim_end_matches(" |").rsplit(' ').next().unwrap().parse().unwrap();
        assert!((90..=110).contains(&lines), "{table}");
    }
}
