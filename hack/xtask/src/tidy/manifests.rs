//! Rules for every `Cargo.toml`.

use std::collections::BTreeSet;

use super::Finding;
use crate::workspace::File;

/// A dependency as a manifest writes it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Dependency<'a> {
    pub(super) name: &'a str,
    pub(super) line: usize,
    is_of_workspace: bool,
}

/// What the package names of the crates that others can depend on begin with: the names themselves are taken in the registry.
pub(super) const PREFIX: &str = "operators-";

/// The manifests of all crates of the workspace, without the root manifest.
pub(super) fn crates(files: &[File]) -> impl Iterator<Item = &File> {
    // A crate with its own workspace has one because it cannot follow the rules of this one.
    let is_ours = |file: &&File| !file.text.lines().any(|line| line.trim() == "[workspace]");
    files.iter().filter(|file| file.name() == "Cargo.toml" && file.path != "Cargo.toml").filter(is_ours)
}

/// The name of the crate's folder, which must also be the name of the crate, but for [`PREFIX`].
pub(super) fn name(manifest: &File) -> &str {
    manifest.folder().rsplit('/').next().unwrap_or_default()
}

/// All dependencies of a crate, including those for tests, build scripts and single platforms.
pub(super) fn dependencies(manifest: &File) -> Vec<Dependency<'_>> {
    let mut dependencies = Vec::new();
    let mut section = "";
    for (line, text) in (1..).zip(manifest.text.lines()) {
        if let Some(header) = text.trim().strip_prefix('[') {
            section = header.trim_end_matches(']');
            if let Some((_, name)) = section.split_once("dependencies.") {
                let of_workspace = |line: &&str| line.replace(' ', "") == "workspace=true";
                let is_of_workspace = manifest
                    .text
                    .lines()
                    .skip(line)
                    .take_while(|line| !line.starts_with('['))
                    .any(|line| of_workspace(&line));
                dependencies.push(Dependency { name, line, is_of_workspace });
            }
        } else if let Some((key, value)) = text.split_once('=')
            && section.ends_with("dependencies")
        {
            let (name, rest) = key.trim().split_once('.').unwrap_or((key.trim(), ""));
            let is_of_workspace = rest == "workspace" || value.replace(' ', "").contains("workspace=true");
            dependencies.push(Dependency { name, line, is_of_workspace });
        }
    }
    dependencies
}

pub(super) fn lints(files: &[File]) -> Vec<Finding> {
    let has = |file: &&File| file.text.replace("\r\n", "\n").contains("[lints]\nworkspace = true");
    let lacking = crates(files).filter(|file| !has(file));
    lacking.map(|file| Finding::in_file(&file.path, "add `[lints]` with `workspace = true`")).collect()
}

pub(super) fn folders(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in crates(files) {
        let line = (1..)
            .zip(file.text.lines())
            .find_map(|(n, line)| Some((n, line.strip_prefix("name = ")?.trim_matches('"'))));
        match line {
            Some((n, other)) if other.strip_prefix(PREFIX).unwrap_or(other) != name(file) => {
                findings.push(Finding::in_line(
                    file,
                    n,
                    format!("rename the crate to {} or its folder to {other}", name(file)),
                ));
            }
            _ => {}
        }
    }
    findings
}

pub(super) fn versions(files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in crates(files) {
        for Dependency { name, line, .. } in dependencies(file).into_iter().filter(|it| !it.is_of_workspace) {
            let message = format!("write `{name}.workspace = true`, and the version in the root manifest");
            findings.push(Finding::in_line(file, line, message));
        }
    }
    findings
}

pub(super) fn used(files: &[File]) -> Vec<Finding> {
    let used: BTreeSet<_> = crates(files).flat_map(dependencies).map(|it| it.name).collect();
    let mut findings = Vec::new();
    for root in files.iter().filter(|file| file.path == "Cargo.toml") {
        for Dependency { name, line, .. } in dependencies(root) {
            if !used.contains(name) {
                findings.push(Finding::in_line(root, line, format!("no crate uses {name}: remove it")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::testing::found;
    use super::*;

    const MANIFEST: &str = r#"[package]
name = "foo"

[dependencies]
kube.workspace = true # a comment
serde = { workspace = true, features = ["rc"] }
axum = "1"

[dev-dependencies.insta]
workspace = true

[target.'cfg(unix)'.build-dependencies]
cc = { version = "1" }

[dependencies.tokio]
version = "1"

[lints]
workspace = true
"#;

    #[test]
    fn separate_workspace_is_exempt_from_lints_rule() {
        let files = [("Cargo.toml", ""), ("hack/bench/race/Cargo.toml", "[workspace]\n[dependencies]\nkube = \"4\"")];
        assert!(found(lints, &files).is_empty());
    }

    #[test]
    fn all_dependency_tables_are_parsed() {
        let file = File { path: "shared/foo/Cargo.toml".to_owned(), text: MANIFEST.to_owned() };
        let names: Vec<_> = dependencies(&file).iter().map(|it| it.name).collect();
        assert_eq!(names, ["kube", "serde", "axum", "insta", "cc", "tokio"]);
        assert_eq!(name(&file), "foo");
    }

    #[test]
    fn version_outside_root_manifest_is_found() {
        let files = [("Cargo.toml", "[workspace.dependencies]\naxum = \"1\""), ("shared/foo/Cargo.toml", MANIFEST)];
        let expected = ["shared/foo/Cargo.toml:7", "shared/foo/Cargo.toml:13", "shared/foo/Cargo.toml:15"];
        assert_eq!(found(versions, &files), expected);
    }

    #[test]
    fn unused_workspace_dependency_is_found() {
        let root =
            "[workspace.dependencies]\nkube = \"5\"\nfs4 = \"1\"\n[workspace.lints.rust]\nunsafe_code = \"forbid\"\n";
        let files = [("Cargo.toml", root), ("shared/foo/Cargo.toml", MANIFEST)];
        assert_eq!(found(used, &files), ["Cargo.toml:3"]);
    }

    #[test]
    fn missing_lints_and_wrong_name_are_found() {
        let without = "[package]\nname = \"bar\"\n";
        let files = [("Cargo.toml", ""), ("shared/foo/Cargo.toml", MANIFEST), ("shared/baz/Cargo.toml", without)];
        assert_eq!(found(lints, &files), ["shared/baz/Cargo.toml"]);
        assert_eq!(found(folders, &files), ["shared/baz/Cargo.toml:2"]);
    }
}
