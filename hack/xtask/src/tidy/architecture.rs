//! The invariants of `ARCHITECTURE.md` that are visible in manifests and in names.

use super::manifests::{crates, dependencies, name};
use super::rust::{code, names, without_comments};
use super::{Finding, lines};
use crate::workspace::File;

/// The crate that lists all operators.
pub(super) const REGISTRY: &str = "controller-manager";
/// The crate of the end-to-end tests, which use operators as their users do.
const TESTS: &str = "e2e";

pub(super) fn operators_do_not_know_each_other(files: &[File]) -> Vec<Finding> {
    let operators: Vec<_> = operator_crates(files).map(name).collect();
    let mut findings = Vec::new();
    for file in crates(files).filter(|file| ![REGISTRY, TESTS].contains(&name(file))) {
        for dependency in dependencies(file).iter().filter(|it| operators.contains(&it.name) && it.name != name(file)) {
            let advice =
                format!("only {REGISTRY} may depend on {}: move common code to a crate in shared/", dependency.name);
            findings.push(Finding::in_line(file, dependency.line, advice));
        }
    }
    findings
}

pub(super) fn own_libraries_serve_one_operator(files: &[File]) -> Vec<Finding> {
    let libraries = crates(files).filter_map(|file| Some((name(file), owner(file)?))).collect::<Vec<_>>();
    let mut findings = Vec::new();
    for file in crates(files).filter(|file| ["operators/", "shared/"].iter().any(|at| file.path.starts_with(at))) {
        let used: Vec<_> = if name(file) == REGISTRY {
            normal_dependencies(file) // its tests include judges of operators, with what they need
        } else {
            dependencies(file).into_iter().map(|it| (it.name, it.line)).collect()
        };
        for (dependency, line) in used {
            let library = libraries.iter().find(|(library, _)| *library == dependency);
            if let Some((library, owner)) = library.filter(|(_, owner)| !file.path.starts_with(owner)) {
                let advice = format!("{library} belongs to {owner}: move it to shared/ if others need it");
                findings.push(Finding::in_line(file, line, advice));
            }
        }
    }
    findings
}

/// The folder of the operator to which a library belongs, such as `operators/a-operator/`; `None` for all other crates.
pub(super) fn owner(manifest: &File) -> Option<&str> {
    let inside = manifest.path.strip_prefix("operators/")?;
    let (operator, inside) = inside.split_once('/')?;
    inside.contains('/').then(|| &manifest.path[..="operators/".len() + operator.len()])
}

/// The crates of single operators, without the registry.
pub(super) fn operator_crates(files: &[File]) -> impl Iterator<Item = &File> {
    crates(files).filter(|file| file.path.starts_with("operators/") && owner(file).is_none() && name(file) != REGISTRY)
}

/// The section of a manifest with the crates that the crate must not depend on, each with the reason.
const MUST_NOT_USE: &str = "[package.metadata.must-not-use]";

pub(super) fn crates_depend_downwards(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in crates(files) {
        let dependencies = normal_dependencies(file);
        for (forbidden, why) in reasons(file, MUST_NOT_USE) {
            for (_, line) in dependencies.iter().filter(|(dependency, _)| *dependency == forbidden) {
                let advice = format!("{} must not depend on {forbidden}: {why}", name(file));
                findings.push(Finding::in_line(file, *line, advice));
            }
        }
    }
    findings
}

/// The names in this section of a manifest, each with its reason.
pub(super) fn reasons<'a>(manifest: &'a File, section: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let section = manifest.text.split(section).nth(1).unwrap_or_default();
    let lines = section.lines().skip(1).take_while(|line| !line.starts_with('['));
    lines.filter_map(|line| line.split_once(" = ")).map(|(name, why)| (name, why.trim_matches('"')))
}

/// The dependencies of the product. Tests may depend on any crate.
fn normal_dependencies(manifest: &File) -> Vec<(&str, usize)> {
    let tests = (1..).zip(manifest.text.lines()).find(|(_, line)| line.starts_with("[dev-dependencies"));
    let end = tests.map_or(usize::MAX, |(line, _)| line);
    dependencies(manifest).into_iter().filter(|it| it.line < end).map(|it| (it.name, it.line)).collect()
}

pub(super) fn types_know_no_runtime(files: &[File]) -> Vec<Finding> {
    let files = files.iter().filter(|file| is_module(file, &["api", "desired"]));
    let message = "`api` and `desired` must not use `manager`: pass what they need of it as arguments";
    let is_wrong = |line: &str| names(line, "manager") && (line.contains("manager::") || line.contains("use manager"));
    files.flat_map(|file| lines(file, &code(&file.text), message, is_wrong)).collect()
}

pub(super) fn pure_files_do_no_io(files: &[File]) -> Vec<Finding> {
    let files = files.iter().filter(|file| is_module(file, &["api", "desired", "status"]));
    let message = "`api`, `desired` and `status` are pure: code with a client or `await` belongs into `controller`";
    let io = ["Client", "async", "await", "tokio", "std::fs", "std::net", "SystemTime", "Instant"];
    let is_wrong = |line: &str| io.iter().any(|word| names(line, word));
    files.flat_map(|file| lines(file, &code(&file.text), message, is_wrong)).collect()
}

/// Whether the file is one of these modules of an operator, or a submodule of one. An operator's own libraries have other
/// modules.
fn is_module(file: &File, modules: &[&str]) -> bool {
    let path = file.path.strip_prefix("operators/").and_then(|path| path.split_once("/src/"));
    let Some((_, path)) = path.filter(|(operator, _)| file.is("rs") && !operator.contains('/')) else { return false };
    modules.contains(&path.split(['/', '.']).next().unwrap_or_default())
}

pub(super) fn only_the_manager_watches(files: &[File]) -> Vec<Finding> {
    let elsewhere = |file: &&File| {
        let of_product = file.path.starts_with("operators/") || file.path.starts_with("shared/");
        of_product
            && file.is("rs")
            && !["shared/cache/", "shared/manager/", "shared/workqueue/"].iter().any(|at| file.path.starts_with(at))
    };
    let message =
        "only `manager` creates informers and queues: declare them with `Controller::of`, `owns` or `watches_labelled`";
    let is_wrong = |line: &str| {
        let imports = line.contains("use kube::{") && line.contains("runtime::");
        imports || line.contains("kube::runtime") || line.contains("WorkQueue::new")
    };
    files.iter().filter(elsewhere).flat_map(|file| lines(file, &code(&file.text), message, is_wrong)).collect()
}

pub(super) fn skipped_tests_are_counted(files: &[File]) -> Vec<Finding> {
    let elsewhere = |file: &&File| file.is("rs") && !file.path.starts_with("testing/skip/");
    // In two halves, so that this file does not break the rule itself.
    let ways = [concat!("print", "ln!(\"skip"), concat!("#[ig", "nore")];
    let message = "skip a test with `skip::lacking` or `skip::unasked`, which count it with its reason";
    let is_wrong = |line: &str| ways.iter().any(|way| line.contains(way));
    files.iter().filter(elsewhere).flat_map(|file| lines(file, &file.text, message, is_wrong)).collect()
}

pub(super) fn permissions_have_no_wildcards(files: &[File]) -> Vec<Finding> {
    let rules = files.iter().filter(|file| file.path.starts_with("charts/") && file.name() == "clusterrole-rules.yaml");
    let message = "name each resource and verb: a wildcard also permits future ones";
    let is_wrong = |line: &str| !line.starts_with('#') && line.contains('*');
    rules.flat_map(|file| lines(file, &file.text, message, is_wrong)).collect()
}

/// Folders whose doc comments become help texts and the descriptions of values.
const SHOWN: &[&str] = &["hack/chart/src/", "hack/xtask/src/"];

/// Folders of code that serves every operator, also future ones.
const FOR_ALL: &[&str] = &["shared/", "testing/", "hack/chart/src/", "hack/xtask/src/"];

pub(super) fn shared_code_names_no_operator(files: &[File]) -> Vec<Finding> {
    let (own, tests) = (own_words(files), test_modules(files));
    let is_program = |file: &&File| {
        let is_for_all = FOR_ALL.iter().any(|folder| file.path.starts_with(folder)) && file.path.contains("/src/");
        // Images that stand in for the public ones have the names of those.
        let is_for_all = is_for_all && !file.path.contains("/fixtures");
        let is_in =
            |module: &String| file.path.strip_prefix(module.as_str()).is_some_and(|rest| rest.starts_with(['.', '/']));
        file.is("rs") && is_for_all && !tests.iter().any(is_in)
    };
    let mut findings = Vec::new();
    for file in files.iter().filter(is_program) {
        let program = file.text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let is_shown = |line: &&str| SHOWN.iter().any(|at| file.path.starts_with(at)) && line.trim().starts_with("///");
        let code = without_comments(program);
        for (number, (line, text)) in (1..).zip(code.lines().zip(program.lines())) {
            let line = Some(text).filter(is_shown).unwrap_or(line);
            for (word, owner) in own.iter().filter(|(word, _)| names(line, word)) {
                let advice =
                    format!("{word} belongs to {owner}, which must say it itself, such as by a method of `Operator`");
                findings.push(Finding::in_line(file, number, advice));
            }
        }
    }
    findings
}

/// The paths of the modules that exist only in tests, without the extension.
fn test_modules(files: &[File]) -> Vec<String> {
    let mut modules = Vec::new();
    for file in files.iter().filter(|file| file.is("rs")) {
        let folder = match file.name() {
            "lib.rs" | "main.rs" => file.folder(),
            _ => file.path.trim_end_matches(".rs"),
        };
        let declared = file.text.split("#[cfg(test)]\nmod ").skip(1).filter_map(|after| after.split_once(';'));
        let names = declared.map(|(name, _)| name).filter(|name| !name.contains(char::is_whitespace));
        modules.extend(names.map(|name| format!("{folder}/{name}")));
    }
    modules
}

/// What stands before the reason of a problem.
const REASONS: &[&str] = &["ProblemKind::new(\"", "ProblemKind::invalid(\"", "ProblemKind::not_ready(\""];
/// What stands before the reason of an event. Such a reason is often a usual word, so it only counts in quotes.
const EVENTS: &[&str] = &["Event::normal(\"", "Event::warning(\""];

/// The words that belong to single operators, with the owner: their names, their kinds, and the reasons of their problems and
/// events.
fn own_words(files: &[File]) -> Vec<(String, &str)> {
    let mut words = Vec::new();
    for manifest in operator_crates(files) {
        let owner = name(manifest);
        let Some(operator) = owner.strip_suffix("-operator") else { continue };
        words.extend(
            [operator.to_owned(), format!("{operator}s"), format!("{operator}_operator")].map(|it| (it, owner)),
        );
        let folder = manifest.path.trim_end_matches("Cargo.toml").to_owned() + "src/";
        for file in files.iter().filter(|file| file.is("rs") && file.path.starts_with(&folder)) {
            let quoted = |before: &str| {
                let found = file.text.split(before).skip(1).filter_map(|after| after.split('"').next());
                found.map(ToOwned::to_owned).collect::<Vec<_>>()
            };
            let kinds = quoted(" kind = \"").into_iter().flat_map(|kind| [format!("{kind}s"), kind]);
            let reasons = REASONS.iter().flat_map(|before| quoted(before));
            let events = EVENTS.iter().flat_map(|before| quoted(before)).map(|reason| format!("\"{reason}\""));
            words.extend(kinds.chain(reasons).chain(events).map(|word| (word, owner)));
        }
    }
    words.sort_unstable();
    words.dedup();
    words
}

#[cfg(test)]
mod tests {
    use super::super::testing::found;
    use super::*;

    #[test]
    fn operator_dependency_outside_registry_is_found() {
        let one = "[dependencies]\nmanager.workspace = true\nb-operator.workspace = true\n";
        let both = "[dependencies]\na-operator.workspace = true\nb-operator.workspace = true\n";
        let files = [
            ("operators/a-operator/Cargo.toml", one),
            ("operators/b-operator/Cargo.toml", ""),
            ("operators/controller-manager/Cargo.toml", both),
            ("operators/a-operator/clock/Cargo.toml", ""),
            ("e2e/Cargo.toml", both),
            ("shared/manager/Cargo.toml", both),
        ];
        let expected =
            ["operators/a-operator/Cargo.toml:3", "shared/manager/Cargo.toml:2", "shared/manager/Cargo.toml:3"];
        assert_eq!(found(operators_do_not_know_each_other, &files), expected);
    }

    #[test]
    fn shared_code_that_names_an_operator_is_found() {
        let api = "#[kube(group = \"a.com\", kind = \"Car\")]\nconst FLAT: K = ProblemKind::new(\"TyreFlat\", 1);\n";
        let text = "// Car\nlet a = \"cars\";\nuse car_operator::Car;\nlet scars = Carpet;\nlet b = \"TyreFlat\";\n#[cfg(test)]\nmod tests {\n\"Car\"";
        let files = [
            ("operators/car-operator/Cargo.toml", "[package]\nname = \"car-operator\""),
            ("operators/car-operator/src/api.rs", api),
            ("shared/manager/src/a.rs", text),
            ("shared/manager/src/lib.rs", "mod a;\n#[cfg(test)]\nmod b;\n"),
            ("shared/manager/src/b.rs", text),
            ("shared/manager/benches/a.rs", text),
            ("testing/images/src/fixtures.rs", text),
        ];
        let expected = [2, 3, 3, 5].map(|line| format!("shared/manager/src/a.rs:{line}"));
        assert_eq!(found(shared_code_names_no_operator, &files), expected);
    }

    #[test]
    fn use_of_the_library_of_another_operator_is_found() {
        let user = "[dependencies]\nclock.workspace = true\n";
        let in_tests = user.replace("dependencies", "dev-dependencies");
        let files = [
            ("operators/a-operator/Cargo.toml", user),
            ("operators/a-operator/clock/Cargo.toml", ""),
            ("operators/b-operator/Cargo.toml", user),
            ("operators/controller-manager/Cargo.toml", user),
            ("operators/controller-manager/Cargo.toml", &in_tests),
            ("shared/manager/Cargo.toml", user),
            ("e2e/Cargo.toml", user),
        ];
        let expected = ["b-operator", "controller-manager"].map(|name| format!("operators/{name}/Cargo.toml:2"));
        let expected = [&expected[..], &["shared/manager/Cargo.toml:2".to_owned()]].concat();
        assert_eq!(found(own_libraries_serve_one_operator, &files), expected);
    }

    #[test]
    fn forbidden_crate_dependency_is_found() {
        let manifest = "[package.metadata.must-not-use]\nkube = \"the queue knows keys\"\nk8s-openapi = \"the same\"\n\n\
                        [dependencies]\ntokio.workspace = true\nkube.workspace = true\n[dev-dependencies]\nk8s-openapi = \"1\"\n";
        let free = manifest.replace("must-not-use", "other");
        let files = [("shared/workqueue/Cargo.toml", manifest), ("shared/manager/Cargo.toml", &free)];
        assert_eq!(found(crates_depend_downwards, &files), ["shared/workqueue/Cargo.toml:7"]);
    }

    #[test]
    fn runtime_use_in_pure_types_is_found() {
        let text = "//! For manager::Context.\nuse manager::Context;\nlet by = \"controller-manager::x\";\n";
        let files = [
            ("operators/a-operator/src/api/v1.rs", text),
            ("operators/a-operator/src/desired.rs", text),
            ("operators/a-operator/src/status.rs", text),
            ("operators/a-operator/README.md", text),
        ];
        let expected = ["operators/a-operator/src/api/v1.rs:2", "operators/a-operator/src/desired.rs:2"];
        assert_eq!(found(types_know_no_runtime, &files), expected);
    }

    #[test]
    fn io_in_pure_file_is_found() {
        let text = "use kube::{Api, Client};\n// a Client\nasync fn f() {}\nlet now = ctx.now();\n";
        let files = [
            ("operators/a-operator/src/status.rs", text),
            ("operators/a-operator/src/controller.rs", text),
            ("operators/a-operator/server/src/api.rs", text),
        ];
        let expected = ["operators/a-operator/src/status.rs:1", "operators/a-operator/src/status.rs:3"];
        assert_eq!(found(pure_files_do_no_io, &files), expected);
    }

    #[test]
    fn watch_or_queue_outside_manager_is_found() {
        let text = "use kube::{Api, runtime::watcher};\nkube::runtime::wait();\nWorkQueue::new();\nuse kube::Api;\n";
        let files = [
            ("operators/a-operator/src/booking.rs", text),
            ("shared/manager/src/informer.rs", text),
            ("e2e/src/lib.rs", text),
        ];
        let path = "operators/a-operator/src/booking.rs";
        assert_eq!(found(only_the_manager_watches, &files), [1, 2, 3].map(|line| format!("{path}:{line}")));
    }

    #[test]
    fn uncounted_test_skip_is_found() {
        let own = concat!("eprint", "ln!(\"skipped: no network\");\n#[ig", "nore = \"slow\"]\n");
        let files = [("shared/a/tests/it.rs", own), ("testing/skip/src/lib.rs", own)];
        assert_eq!(found(skipped_tests_are_counted, &files), ["shared/a/tests/it.rs:1", "shared/a/tests/it.rs:2"]);
    }

    #[test]
    fn wildcard_permission_is_found() {
        let files = [("charts/operators/files/a/clusterrole-rules.yaml", "# all *\n- verbs:\n  - '*'\n")];
        assert_eq!(found(permissions_have_no_wildcards, &files), ["charts/operators/files/a/clusterrole-rules.yaml:3"]);
    }
}
