//! Simulated worlds judge an operator by its specification. So their tests use nothing of the code that they judge. A seed repeats a
//! world, so nothing in it may be random.

use super::Finding;
use super::architecture::{REGISTRY, operator_crates, owner, reasons};
use super::manifests::{crates, name};
use super::rust::{code, without_comments};
use crate::workspace::File;

/// The section of an operator's manifest with what else of its crate its worlds may use, each with the reason.
const MAY_USE: &str = "[package.metadata.worlds-may-use]";
/// The module with the types that users of the API see, too.
const API: &str = "api";
/// The crates with decisions that operators share.
const SHARED: &[&str] = &["workloads"];
/// Folders of the code that runs in simulated worlds, besides that of operators.
const SIMULATED: &[&str] = &[
    "shared/cache/src/",
    "shared/leader-election/src/",
    "shared/manager/src/",
    "shared/workloads/src/",
    "shared/workqueue/src/",
    "testing/model-apiserver/src/",
    "testing/simulation/src/",
];
/// What of it worlds do not run: the process around it, which waits for signals.
const OUTSIDE: &[&str] = &["shared/manager/src/run.rs"];

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

/// The libraries of operators, and those that operators share, decide what worlds judge.
pub(super) fn worlds_use_no_library_of_operators(files: &[File]) -> Vec<Finding> {
    let own = crates(files).filter(|file| owner(file).is_some()).map(|file| name(file).replace('-', "_"));
    let libraries: Vec<String> = own.chain(SHARED.iter().map(|library| (*library).to_owned())).collect();
    let mut findings = Vec::new();
    for manifest in crates(files) {
        let may_use: Vec<&str> = reasons(manifest, MAY_USE).map(|(item, _)| item).collect();
        let inside = format!("{}/", manifest.folder());
        let worlds = files_of_worlds(files, &[format!("{inside}tests/")]);
        for file in worlds.into_iter().filter(|file| file.path.starts_with(&inside)) {
            let code = code(&file.text);
            for library in libraries.iter().filter(|library| !may_use.contains(&library.as_str())) {
                let advice = format!(
                    "worlds judge by the specification, and {library} decides for operators: write it anew, or list {library} with \
                     the reason under {MAY_USE} in the manifest"
                );
                findings.extend(paths(&code, library).map(|line| Finding::in_line(file, line, advice.clone())));
            }
        }
    }
    findings
}

/// The lines of the code in which a path begins with this crate.
fn paths<'a>(code: &'a str, of: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_path = move |at: &usize| {
        let (before, after) = (&code[..*at], &code[at + of.len()..]);
        let is_first = !before.ends_with(is_of_a_word) && !before.ends_with("::");
        is_first && (after.starts_with("::") || (before.ends_with("use ") && !after.starts_with(is_of_a_word)))
    };
    code.match_indices(of).map(|(at, _)| at).filter(is_path).map(|at| line(code, at))
}

pub(super) fn branches_have_an_order(files: &[File]) -> Vec<Finding> {
    let advice =
        "begin with `biased;`: otherwise the order of the branches is random, and a seed does not repeat its world";
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| is_simulated(file)) {
        let code = code(file.text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default());
        for (at, macro_) in code.match_indices("select!") {
            let branches = code[at + macro_.len()..].trim_start().trim_start_matches(['{', '(']).trim_start();
            if !branches.starts_with("biased;") {
                findings.push(Finding::in_line(file, line(&code, at), advice));
            }
        }
    }
    findings
}

/// Whether worlds run the code of this file.
fn is_simulated(file: &File) -> bool {
    let of_operator = file.path.strip_prefix("operators/").and_then(|path| path.split('/').nth(1)) == Some("src");
    let is_inside = of_operator || SIMULATED.iter().any(|folder| file.path.starts_with(folder));
    let is_test = file.name() == "tests.rs" || file.path.contains("/tests/");
    file.is("rs") && is_inside && !is_test && !OUTSIDE.contains(&file.path.as_str())
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
    #[test]
    fn judge_that_uses_a_library_of_operators_is_found() {
        let judge = "use clock::{Due, next};\nuse workloads as shared;\nlet clock = self::clock::of(clock);\n// clock::next\n\
                     fn f() { workloads::health(); workloads_of::x(); }\nuse shop_server::Book;\n";
        let files = [
            ("operators/a-operator/Cargo.toml", "[package.metadata.worlds-may-use]\nshop_server = \"a reason\"\n"),
            ("operators/a-operator/clock/Cargo.toml", ""),
            ("operators/a-operator/shop-server/Cargo.toml", ""),
            ("operators/a-operator/tests/simulation/subject.rs", judge),
            ("operators/a-operator/tests/in_memory.rs", judge),
            ("operators/controller-manager/Cargo.toml", ""),
            (
                "operators/controller-manager/tests/simulation.rs",
                "#[path = \"../../a-operator/tests/simulation/subject.rs\"]\nmod a;\nuse shop_server::Book;\n",
            ),
        ];
        let of_a = [1, 2, 5].map(|line| format!("operators/a-operator/tests/simulation/subject.rs:{line}"));
        let mut found = found(worlds_use_no_library_of_operators, &files);
        found.sort();
        assert_eq!(found, [&of_a[..], &["operators/controller-manager/tests/simulation.rs:3".to_owned()]].concat());
    }

    #[test]
    fn random_order_of_branches_is_found_where_worlds_run() {
        let text = "tokio::select! {\n    // why\n    biased;\n    () = a => {}\n}\nselect! { () = a => {} }\n\
                    // select! { }\n#[cfg(test)]\nmod tests {\n    select! { () = a => {} }\n}\n";
        let files = [
            ("operators/a-operator/src/controller.rs", text),
            ("operators/a-operator/server/src/program.rs", text),
            ("operators/a-operator/src/known/tests.rs", text),
            ("shared/manager/src/workers.rs", text),
            ("shared/manager/src/run.rs", text),
            ("shared/manager/tests/upstream/faults.rs", text),
            ("shared/serving/src/listener.rs", text),
        ];
        let expected = ["operators/a-operator/src/controller.rs:6", "shared/manager/src/workers.rs:6"];
        assert_eq!(found(branches_have_an_order, &files), expected);
    }
}
