//! Rules for the crates that others can depend on, and for what must not be published with them.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::manifests::{Dependency, PREFIX, crates, dependencies, name};
use crate::workspace::File;

/// Whether the crate may go to a registry: each crate that does not inherit `publish = false`.
fn is_published(manifest: &File) -> bool {
    !manifest.text.lines().any(|line| matches!(line.trim(), "publish.workspace = true" | "publish = false"))
}

/// What each of these manifests has, with the reason.
const LINES: &[(&str, &str)] = &[
    ("description = \"", "a registry refuses a package without a description"),
    ("license.workspace = true", "a registry refuses a package without a licence"),
    ("version.workspace = true", "all crates have the version of the release"),
    ("rust-version.workspace = true", "users need to know the oldest compiler"),
    ("repository.workspace = true", "users look for the sources"),
    ("readme = \"README.md\"", "the registry shows it"),
    ("keywords = [\"", "users search for them"),
    ("categories = [\"", "users search for them"),
];

/// The line by which the tests run the examples of the README.
const README: &str = "#[doc = include_str!(\"../README.md\")]";

pub(super) fn metadata(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for manifest in crates(files).filter(|file| is_published(file)) {
        let package = manifest.text.split("\n[").next().unwrap_or_default();
        for (line, why) in LINES.iter().filter(|(line, _)| !package.lines().any(|it| it.starts_with(line))) {
            let advice = format!(
                "add `{line}`, because {why}; or `publish.workspace = true` if no other project needs the crate"
            );
            findings.push(Finding::in_file(&manifest.path, advice));
        }
        if !package.contains(&format!("name = \"{PREFIX}{}\"", name(manifest))) {
            findings.push(Finding::in_file(
                &manifest.path,
                format!("name the package {PREFIX}{}: shorter names are taken", name(manifest)),
            ));
        }
        let [readme, library] = ["README.md", "src/lib.rs"].map(|path| format!("{}/{path}", manifest.folder()));
        let library_has = |line: &str| {
            let library = files.iter().find(|file| file.path == library);
            library.is_some_and(|file| file.text.lines().any(|it| it == line))
        };
        match files.iter().find(|file| file.path == readme) {
            None => {
                let advice = "write README.md beside it: what the crate is, and an example";
                findings.push(Finding::in_file(&manifest.path, advice));
            }
            Some(file) if !has_example(file, files) => {
                findings.push(Finding::in_file(&readme, "add an example in a block of rust: users begin with it"));
            }
            Some(file) if !file.text.contains(&format!("`{PREFIX}{}`", name(manifest))) => {
                let advice = format!("name the package, `{PREFIX}{}`: users depend on it by this name", name(manifest));
                findings.push(Finding::in_file(&readme, advice));
            }
            Some(file) if has_relative_link(file) => {
                let advice = "name the file in place of a link to it: the page in a registry has no other file";
                findings.push(Finding::in_file(&readme, advice));
            }
            Some(readme) if readme.text.contains("```rust") && !library_has(README) => {
                let advice = format!("add `{README}` to an item for doctest: the examples of the README must compile");
                findings.push(Finding::in_file(&library, advice));
            }
            Some(_) => {}
        }
        if !library_has("#![deny(missing_docs)]") {
            findings.push(Finding::in_file(
                &library,
                "add `#![deny(missing_docs)]`: others read the documentation of this crate",
            ));
        }
    }
    findings
}

/// Whether the README has an example: code, or the command of a program.
fn has_example(readme: &File, files: &[File]) -> bool {
    let program = format!("{}/src/main.rs", readme.folder());
    let is_program = files.iter().any(|file| file.path == program);
    readme.text.contains("```rust") || (is_program && readme.text.contains("```console"))
}

/// Whether the document links to another file beside it. A link within the document begins with `#`.
fn has_relative_link(file: &File) -> bool {
    file.text.split("](").skip(1).any(|target| !target.starts_with('#') && !target.starts_with("https://"))
}

/// A registry has no paths: each crate that a published one depends on must be published too, under the version of the release.
pub(super) fn dependencies_are_published(files: &[File]) -> Vec<Finding> {
    let Some(root) = files.iter().find(|file| file.path == "Cargo.toml") else { return Vec::new() };
    let version = root.text.split("[workspace.package]").nth(1).and_then(|text| text.split("version = \"").nth(1));
    let version = version.and_then(|text| text.split('"').next()).unwrap_or_default();
    let ours = ours(root);
    let published: Vec<_> = crates(files).filter(|file| is_published(file)).collect();
    let mut findings = Vec::new();
    for (key, (line, text)) in &ours {
        let Some(file) = published.iter().find(|file| text.contains(&format!("path = \"{}\"", file.folder()))) else {
            continue;
        };
        let wanted = format!("package = \"{PREFIX}{}\", version = \"{version}\"", name(file));
        if !text.contains(&wanted) {
            findings.push(Finding::in_line(
                root,
                *line,
                format!("write `{wanted}`: the package of {key} refers to it by version"),
            ));
        }
    }
    for file in &published {
        for dependency in of_users(file) {
            let Some((_, text)) = ours.get(dependency.name) else { continue };
            if !published.iter().any(|it| text.contains(&format!("path = \"{}\"", it.folder()))) {
                let advice = format!("{} is not published: publish it too, or do without it", dependency.name);
                findings.push(Finding::in_line(file, dependency.line, advice));
            }
        }
    }
    findings
}

/// The dependencies that come to the users of a crate: all but those of its tests, which are the last ones in the manifest.
fn of_users(manifest: &File) -> Vec<Dependency<'_>> {
    let tests = (1..).zip(manifest.text.lines()).find(|(_, line)| line.starts_with("[dev-dependencies"));
    let end = tests.map_or(usize::MAX, |(line, _)| line);
    dependencies(manifest).into_iter().filter(|it| it.line < end).collect()
}

/// docs.rs builds each library without its tests and without variables. So the manifest has to choose a version of Kubernetes for it,
/// by a feature of a direct dependency; otherwise the crate has no pages there.
pub(super) fn pages_choose_kubernetes(files: &[File]) -> Vec<Finding> {
    let lines = crates(files).flat_map(|file| file.text.lines());
    let Some(chosen) = lines.filter(|line| line.starts_with("k8s-openapi")).find_map(choice) else { return Vec::new() };
    let mut knowing = BTreeSet::from(["k8s-openapi", "kube"]);
    loop {
        let uses_one = |file: &&File| of_users(file).iter().any(|it| knowing.contains(it.name));
        let more: Vec<_> = crates(files).filter(uses_one).map(name).filter(|it| !knowing.contains(it)).collect();
        if more.is_empty() {
            break;
        }
        knowing.extend(more);
    }
    let mut findings = Vec::new();
    for file in crates(files).filter(|file| is_published(file) && knowing.contains(name(file))) {
        if !of_users(file).iter().any(|it| it.name == "k8s-openapi") {
            let advice =
                "add `k8s-openapi.workspace = true`: docs.rs can turn on features of direct dependencies alone";
            findings.push(Finding::in_file(&file.path, advice));
        }
        let (_, pages) = file.text.split_once("\n[package.metadata.docs.rs]\n").unwrap_or_default();
        let wanted = format!("features = [\"k8s-openapi/{chosen}\"");
        if !pages.lines().take_while(|line| !line.starts_with('[')).any(|line| line.starts_with(&wanted)) {
            let advice = format!("add `[package.metadata.docs.rs]` with `{wanted}]`: docs.rs cannot build it without");
            findings.push(Finding::in_file(&file.path, advice));
        }
    }
    findings
}

/// The dependencies of the root manifest that are crates of this workspace, with their lines.
fn ours(root: &File) -> BTreeMap<&str, (usize, &str)> {
    let lines = (1..).zip(root.text.lines()).filter(|(_, line)| line.contains("{ path = \""));
    lines.filter_map(|(n, line)| Some((line.split(" = ").next()?, (n, line)))).collect()
}

/// The author of a program chooses the version of Kubernetes, and in this repository all choose the same.
pub(super) fn kubernetes_is_left_to_users(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut first: Option<(String, String)> = None;
    let root = files.iter().filter(|file| file.path == "Cargo.toml");
    for file in root.chain(crates(files)) {
        let is_library = file.path == "Cargo.toml" || is_published(file);
        let mut section = "";
        for (line, text) in (1..).zip(file.text.lines()) {
            if text.starts_with('[') {
                section = text;
            }
            let Some(chosen) = text.starts_with("k8s-openapi").then(|| choice(text)).flatten() else { continue };
            if is_library && !section.starts_with("[dev-dependencies") {
                let advice = "leave the version of Kubernetes to the users of the library; its tests may choose one";
                findings.push(Finding::in_line(file, line, advice));
            }
            let (other, place) = first.get_or_insert_with(|| (chosen.to_owned(), file.path.clone()));
            if *other != chosen {
                findings.push(Finding::in_line(
                    file,
                    line,
                    format!("{place} chooses {other}: choose the same everywhere"),
                ));
            }
        }
    }
    let Some((chosen, place)) = first else { return findings };
    let wanted = chosen.replacen("v1_", "1.", 1);
    // The programs of libraries have no manifest that chooses.
    for (path, before) in [
        ("Dockerfile", "K8S_OPENAPI_ENABLED_VERSION="),
        ("testing/images/src/operator.rs", "const KUBERNETES: &str = \""),
        ("hack/xtask/src/crates.rs", "(\"K8S_OPENAPI_ENABLED_VERSION\", \""),
    ] {
        for file in files.iter().filter(|file| file.path == path) {
            let found =
                file.text.split_once(before).map(|(_, rest)| rest.split(['"', '\n']).next().unwrap_or_default());
            if found != Some(&*wanted) {
                let advice = format!("set the version of Kubernetes to {wanted} after `{before}`, as {place} does");
                findings.push(Finding::in_file(path, advice));
            }
        }
    }
    findings
}

/// The feature of k8s-openapi in this line that chooses a version.
fn choice(line: &str) -> Option<&str> {
    line.split('"').find(|word| word.starts_with("v1_") || matches!(*word, "latest" | "earliest"))
}

/// The compiler that runs all checks is the oldest one that the manifests promise, so that the promise is checked. A build with
/// Docker has the same, in an image whose digest a person has to renew.
pub(super) fn compiler_is_the_oldest(files: &[File]) -> Vec<Finding> {
    let value = |path: &str, key: &str| {
        let file = files.iter().find(|file| file.path == path)?;
        let line = file.text.lines().find_map(|line| line.strip_prefix(key))?;
        Some(line.split('"').nth(1)?.to_owned())
    };
    let (stated, pinned) = (value("Cargo.toml", "rust-version = "), value("rust-toolchain.toml", "channel = "));
    let mut findings = Vec::new();
    let tag = format!("{}-", pinned.as_deref().unwrap_or_default());
    for file in files.iter().filter(|file| file.name() == "Dockerfile") {
        for (line, text) in (1..).zip(file.text.lines()) {
            if text.strip_prefix("FROM rust:").is_some_and(|image| !image.starts_with(&tag)) {
                let advice =
                    format!("name the image `rust:{tag}…` with its digest: rust-toolchain.toml pins that compiler");
                findings.push(Finding::in_line(file, line, advice));
            }
        }
    }
    match (stated, pinned) {
        (Some(stated), Some(pinned)) if pinned == stated || pinned.starts_with(&format!("{stated}.")) => {}
        (stated, pinned) => {
            let advice = format!(
                "pins {}, but Cargo.toml promises `rust-version` {}: nothing would check the promise",
                pinned.unwrap_or_default(),
                stated.unwrap_or_default()
            );
            findings.push(Finding::in_file("rust-toolchain.toml", advice));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::testing::found;
    use super::*;

    const ROOT: &str = "[workspace.package]\nversion = \"1.2.3\"\nrust-version = \"1.95\"\n[workspace.dependencies]\n\
        queue = { path = \"shared/queue\", package = \"operators-queue\", version = \"1.2.3\" }\nown = { path = \"shared/own\" }\n\
        k8s-openapi = { version = \"1\", features = [\"schemars\"] }\n";
    const QUEUE: &str = "[package]\nname = \"operators-queue\"\ndescription = \"A queue.\"\nlicense.workspace = true\n\
        version.workspace = true\nrust-version.workspace = true\nrepository.workspace = true\nreadme = \"README.md\"\n\
        keywords = [\"queue\"]\ncategories = [\"asynchronous\"]\n\n[dependencies]\nk8s-openapi.workspace = true\n\n\
        [dev-dependencies]\nown.workspace = true\nk8s-openapi = { workspace = true, features = [\"v1_36\"] }\n\n\
        [package.metadata.docs.rs]\nfeatures = [\"k8s-openapi/v1_36\"] # for its pages\n";
    const LIBRARY: &str =
        "//! A queue.\n#![deny(missing_docs)]\n#[doc = include_str!(\"../README.md\")]\nstruct Readme;\n";
    const OWN: &str = "[package]\nname = \"own\"\npublish.workspace = true\n[dependencies]\nqueue.workspace = true\n";

    fn with(queue: &str, root: &str) -> Vec<(&'static str, String)> {
        let files = [
            ("Cargo.toml", root),
            ("shared/queue/Cargo.toml", queue),
            (
                "shared/queue/README.md",
                "# queue\n\n[`operators-queue`](https://x.org)\n\n```rust\nqueue::add();\n```\n",
            ),
            ("shared/queue/src/lib.rs", LIBRARY),
            ("shared/own/Cargo.toml", OWN),
            ("rust-toolchain.toml", "[toolchain]\nchannel = \"1.95.0\"\n"),
        ];
        files.map(|(path, text)| (path, text.to_owned())).into()
    }

    fn all(files: &[(&'static str, String)]) -> Vec<String> {
        let files: Vec<_> = files.iter().map(|(path, text)| (*path, &**text)).collect();
        let checks = [
            metadata,
            dependencies_are_published,
            kubernetes_is_left_to_users,
            pages_choose_kubernetes,
            compiler_is_the_oldest,
        ];
        checks.into_iter().flat_map(|check| found(check, &files)).collect()
    }

    #[test]
    fn complete_crate_and_private_crate_pass() {
        assert_eq!(all(&with(QUEUE, ROOT)), Vec::<String>::new());
    }

    #[test]
    fn each_missing_line_is_found() {
        for (line, _) in LINES {
            let without = QUEUE.lines().filter(|it| !it.starts_with(line)).collect::<Vec<_>>().join("\n");
            assert_eq!(all(&with(&without, ROOT)), ["shared/queue/Cargo.toml"], "{line}");
        }
        assert_eq!(all(&with(&QUEUE.replace("operators-queue", "queue"), ROOT)), ["shared/queue/Cargo.toml"]);
    }

    #[test]
    fn missing_files_and_lints_are_found() {
        let files: Vec<_> = with(QUEUE, ROOT).into_iter().filter(|(path, _)| !path.ends_with("README.md")).collect();
        assert_eq!(all(&files), ["shared/queue/Cargo.toml"]);
        let files: Vec<_> = with(QUEUE, ROOT).into_iter().filter(|(path, _)| !path.ends_with("lib.rs")).collect();
        assert_eq!(all(&files), ["shared/queue/src/lib.rs", "shared/queue/src/lib.rs"], "no example, no lint");
    }

    #[test]
    fn readmes_without_an_example_or_the_name_or_with_relative_links_are_found() {
        let changed = |path: &str, old: &str, new: &str| {
            let mut files = with(QUEUE, ROOT);
            for (_, text) in files.iter_mut().filter(|(it, _)| *it == path) {
                *text = text.replace(old, new);
            }
            files
        };
        assert_eq!(all(&changed("shared/queue/src/lib.rs", README, "")), ["shared/queue/src/lib.rs"]);
        assert_eq!(all(&changed("shared/queue/README.md", "`operators-queue`", "`queue`")), ["shared/queue/README.md"]);
        assert_eq!(all(&changed("shared/queue/README.md", "https://x.org", "../a.md")), ["shared/queue/README.md"]);
        assert_eq!(all(&changed("shared/queue/README.md", "https://x.org", "#queue")), Vec::<String>::new());
        let mut program = changed("shared/queue/README.md", "```rust", "```console");
        assert_eq!(all(&program), ["shared/queue/README.md"]);
        program.push(("shared/queue/src/main.rs", "fn main() {}\n".to_owned()));
        assert_eq!(all(&program), Vec::<String>::new());
    }

    #[test]
    fn dependency_that_no_registry_has_is_found() {
        let uses = QUEUE.replace("[dependencies]\n", "[dependencies]\nown.workspace = true\n");
        assert_eq!(all(&with(&uses, ROOT)), ["shared/queue/Cargo.toml:13"]);
        assert_eq!(
            all(&with(QUEUE, &ROOT.replace(", version = \"1.2.3\"", ", version = \"1.2.2\""))),
            ["Cargo.toml:5"]
        );
    }

    #[test]
    fn library_that_chooses_kubernetes_is_found() {
        let chooses =
            QUEUE.replace("k8s-openapi.workspace = true", "k8s-openapi = { workspace = true, features = [\"v1_36\"] }");
        assert_eq!(all(&with(&chooses, ROOT)), ["shared/queue/Cargo.toml:13"]);
        assert_eq!(all(&with(QUEUE, &ROOT.replace("\"schemars\"", "\"v1_36\", \"schemars\""))), ["Cargo.toml:7"]);
        let mut files = with(QUEUE, ROOT);
        files.push(("Dockerfile", "ENV K8S_OPENAPI_ENABLED_VERSION=1.35\n".to_owned()));
        assert_eq!(all(&files), ["Dockerfile"]);
    }

    #[test]
    fn pages_without_a_version_of_kubernetes_are_found() {
        for (old, new) in [
            ("k8s-openapi/v1_36", "k8s-openapi/v1_35"),
            ("[package.metadata.docs.rs]", "[package.metadata.other]"),
            ("[dependencies]\nk8s-openapi.workspace = true", "[dependencies]\nkube.workspace = true"),
        ] {
            assert_eq!(all(&with(&QUEUE.replace(old, new), ROOT)), ["shared/queue/Cargo.toml"], "{new}");
        }
        // A crate may know Kubernetes only through another one.
        let mut files = with(QUEUE, ROOT);
        let stack =
            QUEUE.replace("operators-queue", "operators-stack").replace("k8s-openapi.workspace", "queue.workspace");
        files.extend([
            ("shared/stack/Cargo.toml", stack),
            ("shared/stack/README.md", "`operators-stack`\n```rust\nstack::push();\n```\n".to_owned()),
            ("shared/stack/src/lib.rs", LIBRARY.to_owned()),
        ]);
        assert_eq!(all(&files), ["shared/stack/Cargo.toml"]);
    }

    #[test]
    fn compiler_that_is_newer_than_promised_is_found() {
        assert_eq!(all(&with(QUEUE, &ROOT.replace("1.95", "1.9"))), ["rust-toolchain.toml"]);
    }

    #[test]
    fn image_of_another_compiler_is_found() {
        let found = |tag: &str| {
            let mut files = with(QUEUE, ROOT);
            let text = format!("# the compiler\nFROM rust:{tag} AS build\nENV K8S_OPENAPI_ENABLED_VERSION=1.36\n");
            files.push(("Dockerfile", text));
            all(&files)
        };
        assert_eq!(found("1.95.0-bookworm@sha256:0"), Vec::<String>::new());
        for other in ["1.95-bookworm", "1.95.1-bookworm", "1.95.00-bookworm"] {
            assert_eq!(found(other), ["Dockerfile:2"], "{other}");
        }
    }
}
