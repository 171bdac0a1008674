//! The bill of materials: the crates that are linked into the programs, with their versions and licences.
//!
//! The list comes from `cargo tree`, with the features and the target of the build. So it has no crates that only tests, build
//! scripts or procedural macros use.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

/// A linked crate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Component {
    /// The name of the crate.
    pub name: String,
    /// The version of the crate.
    pub version: String,
    /// The licence, as an SPDX expression.
    pub license: String,
    /// The SHA-256 of the package; `None` for crates of this workspace.
    pub sha256: Option<String>,
}

/// The crates that are linked into the programs of these packages, compiled for `target`. Sorted and without duplicates.
pub fn components(workspace: &Path, packages: &[&str], target: &str) -> Result<Vec<Component>> {
    let lock = std::fs::read_to_string(workspace.join("Cargo.lock")).context("could not read Cargo.lock")?;
    let checksums = checksums(&lock);
    let mut components = BTreeSet::new();
    for package in packages {
        let mut tree = crate::cargo();
        tree.args(["tree", "--locked", "--package", package, "--target", target, "--edges", "normal,no-proc-macro"]);
        tree.args(["--prefix", "none", "--no-dedupe", "--format", "{p}|{l}"]).current_dir(workspace);
        let output = tree.output().context("could not run cargo")?;
        ensure!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr).trim_end());
        let lines = String::from_utf8(output.stdout).context("the output of cargo tree is not UTF-8")?;
        components.extend(lines.lines().filter_map(|line| component(line, &checksums)));
    }
    Ok(components.into_iter().collect())
}

/// The bill of materials as `CycloneDX` 1.6. It has no time and no serial number, so the same components always give the same
/// text.
pub fn cyclonedx(name: &str, digest: &str, components: &[Component]) -> Result<String> {
    let document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {
            "type": "container", "name": name, "version": digest, "bom-ref": format!("{name}@{digest}"),
        }},
        "components": components.iter().map(listed).collect::<Vec<_>>(),
    });
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

fn listed(component: &Component) -> Value {
    let Component { name, version, license, sha256 } = component;
    let purl = format!("pkg:cargo/{name}@{version}");
    let mut listed = json!({
        "type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl,
        "licenses": [{"expression": license}],
    });
    if let Some(sha256) = sha256 {
        listed["hashes"] = json!([{"alg": "SHA-256", "content": sha256}]);
    }
    listed
}

/// Parses a line of `cargo tree`, such as `serde v1.0.0 (/somewhere)|MIT OR Apache-2.0`.
fn component(line: &str, checksums: &BTreeMap<(String, String), String>) -> Option<Component> {
    let (package, license) = line.split_once('|')?;
    let mut words = package.split_whitespace();
    let (name, version) = (words.next()?.to_owned(), words.next()?.trim_start_matches('v').to_owned());
    let sha256 = checksums.get(&(name.clone(), version.clone())).cloned();
    Some(Component { name, version, license: license.replace('/', " OR "), sha256 })
}

/// The checksums of all packages in a `Cargo.lock`.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let package = |text: &str| {
        let value = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "))?;
            Some(line.trim_matches('"').to_owned())
        };
        Some(((value("name")?, value("version")?), value("checksum")?))
    };
    lock.split("[[package]]").filter_map(package).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_tree_line_becomes_component() {
        let lock =
            "[[package]]\nname = \"itoa\"\nversion = \"1.0.1\"\nchecksum = \"ab\"\n\n[[package]]\nname = \"ours\"\n";
        let checksums = checksums(lock);
        let itoa = component("itoa v1.0.1|MIT/Apache-2.0", &checksums).unwrap();
        assert_eq!((itoa.license.as_str(), itoa.sha256.as_deref()), ("MIT OR Apache-2.0", Some("ab")));
        let ours = component("ours v0.0.0 (/somewhere/ours)|Apache-2.0", &checksums).unwrap();
        assert_eq!((ours.name.as_str(), ours.version.as_str(), ours.sha256), ("ours", "0.0.0", None));
        assert_eq!(component("", &checksums), None);
    }

    #[test]
    fn only_linked_crates_are_listed() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let components = components(&workspace, &["operators-metrics-proxy"], &target).unwrap();
        let has = |name: &str| components.iter().any(|component| component.name == name);
        assert!(has("operators-metrics-proxy") && has("rustls") && has("serde"));
        assert!(!has("proptest") && !has("serde_derive"), "tests and macros are not linked");
        assert!(components.iter().all(|component| !component.license.is_empty()));
        let sourced = components
            .iter()
            .filter(|component| component.version != env!("CARGO_PKG_VERSION") || component.sha256.is_some());
        assert!(sourced.clone().count() > 50 && sourced.clone().all(|component| component.sha256.is_some()));
    }

    #[test]
    fn document_names_image_and_components() {
        let part = Component { name: "a".into(), version: "1.0.0".into(), license: "MIT".into(), sha256: None };
        let text = cyclonedx("image", "sha256:ab", &[part]).unwrap();
        let document: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(document["metadata"]["component"]["version"], "sha256:ab");
        assert_eq!(document["components"][0]["purl"], "pkg:cargo/a@1.0.0");
    }
}
