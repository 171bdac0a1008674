//! Counts the lines of code of the operators that the book compares with those of other projects, and of the operator of its tutorial.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};

use crate::tidy::rust::without_comments;
use crate::workspace::File;

/// What each operator does, and its file.
const OPERATORS: &[(&str, &str)] = &[
    ("CronJob, as in kubebuilder's tutorial", "hack/bench/sketches/src/cron_jobs.rs"),
    (
        "Certificate and Issuer, as in cert-manager: a Secret that is renewed in time",
        "hack/bench/sketches/src/certificates.rs",
    ),
    (
        "namespaces with quotas, accounts, roles and bindings",
        "shared/manager/examples/example-operators/src/tenants.rs",
    ),
    (
        "a ConfigMap that is served on each node, and under the host of its Ingress; a webhook",
        "shared/manager/examples/example-operators/src/banners.rs",
    ),
];

/// The files of a small operator, in the order in which the tutorial shows them. The first one is the schema.
const PARTS: &[&str] = &["api.rs", "desired.rs", "status.rs", "controller.rs", "operator.rs", "lib.rs", "main.rs"];

/// The table of the operators with their lines of code.
pub(super) fn table(files: &[File]) -> Result<String> {
    let mut table = "| operator | file | lines |\n|---|---|---:|\n".to_owned();
    for (operator, path) in OPERATORS {
        let file = files.iter().find(|file| file.path == *path).with_context(|| format!("{path} does not exist"))?;
        writeln!(table, "| {operator} | `{path}` | {} |", count(&file.text))?;
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
    fn table_has_the_lines_of_each_file() {
        let files = OPERATORS.iter().map(|(_, path)| File { path: (*path).to_owned(), text: "fn a() {}\n".to_owned() });
        let mut files: Vec<File> = files.collect();
        let table_of =
            |files: &[File]| table(files).map(|table| table.lines().filter(|it| it.ends_with("| 1 |")).count());
        assert_eq!(table_of(&files).unwrap(), OPERATORS.len());
        files.pop();
        assert!(table(&files).is_err());
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
