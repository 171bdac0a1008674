//! The bill of materials: what is linked into the programs, with versions and licences.
//!
//! The crates come from `cargo tree`, with the features and the target of the build. So the list has no crates that only tests, build
//! scripts or procedural macros use. The compilers themselves name the libraries that they add. The image has nothing else: it has no
//! base.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::cargo::rustc;

/// A linked crate or library.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Component {
    /// The name of the crate or library.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its licence, as an SPDX expression.
    pub license: String,
    /// The SHA-256 of the package; `None` for crates of this workspace and for libraries.
    pub sha256: Option<String>,
    /// The vendor by which databases of vulnerabilities know a library; `None` for crates.
    pub vendor: Option<&'static str>,
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
        let lines = run(&mut tree)?;
        components.extend(lines.lines().filter_map(|line| component(line, &checksums)));
    }
    Ok(components.into_iter().collect())
}

/// The libraries that the compilers add to each static program: the standard library of Rust, which unwinds by a library of GCC, and
/// glibc. `linker` is the C compiler that links for the target.
///
/// # Errors
///
/// Also if this compiler has another C library.
pub fn libraries(workspace: &Path, linker: &str) -> Result<Vec<Component>> {
    let said = rustc(workspace, &["--version", "--verbose"])?;
    let rust = said.lines().find_map(|line| line.strip_prefix("release: ")).context("rustc names no release")?;
    let macros = run(Command::new(linker).args(["-E", "-dM", "-include", "features.h", "-x", "c", "/dev/null"]))?;
    let glibc = version(&macros, &["__GLIBC__", "__GLIBC_MINOR__"]);
    let glibc = glibc.with_context(|| format!("{linker} does not link with glibc"))?;
    let mut libraries = vec![
        library("rust-lang", "rust", rust, "MIT OR Apache-2.0"),
        library("gnu", "glibc", &glibc, "LGPL-2.1-or-later"),
    ];
    // Clang defines the macros of an old GCC.
    if version(&macros, &["__clang_major__"]).is_none()
        && let Some(gcc) = version(&macros, &["__GNUC__", "__GNUC_MINOR__", "__GNUC_PATCHLEVEL__"])
    {
        libraries.push(library("gnu", "gcc", &gcc, "GPL-3.0-or-later WITH GCC-exception-3.1"));
    }
    Ok(libraries)
}

fn library(vendor: &'static str, name: &str, version: &str, license: &str) -> Component {
    let [name, version, license] = [name, version, license].map(str::to_owned);
    Component { name, version, license, sha256: None, vendor: Some(vendor) }
}

/// The version whose numbers these macros are.
fn version(macros: &str, names: &[&str]) -> Option<String> {
    let value = |name: &&str| {
        macros.lines().find_map(|line| line.strip_prefix("#define ")?.strip_prefix(*name)?.strip_prefix(' '))
    };
    Some(names.iter().map(value).collect::<Option<Vec<_>>>()?.join("."))
}

/// Runs a program and returns its standard output.
fn run(command: &mut Command) -> Result<String> {
    let program = command.get_program().display().to_string();
    let output = command.output().with_context(|| format!("could not run {program}"))?;
    ensure!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr).trim_end());
    String::from_utf8(output.stdout).with_context(|| format!("the output of {program} is not UTF-8"))
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

impl Component {
    /// The name and the version as the address of a package, such as `pkg:cargo/serde@1.0.0`.
    pub(crate) fn address(&self) -> String {
        let kind = if self.vendor.is_some() { "generic" } else { "cargo" };
        format!("pkg:{kind}/{}@{}", self.name, self.version)
    }
}

fn listed(component: &Component) -> Value {
    let Component { name, version, license, sha256, vendor } = component;
    let purl = component.address();
    let mut listed = json!({
        "type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl,
        "licenses": [{"expression": license}],
    });
    if let Some(sha256) = sha256 {
        listed["hashes"] = json!([{"alg": "SHA-256", "content": sha256}]);
    }
    if let Some(vendor) = vendor {
        listed["cpe"] = json!(format!("cpe:2.3:a:{vendor}:{name}:{version}:*:*:*:*:*:*:*"));
    }
    listed
}

/// Parses a line of `cargo tree`, such as `serde v1.0.0 (/somewhere)|MIT OR Apache-2.0`.
fn component(line: &str, checksums: &BTreeMap<(String, String), String>) -> Option<Component> {
    let (package, license) = line.split_once('|')?;
    let mut words = package.split_whitespace();
    let (name, version) = (words.next()?.to_owned(), words.next()?.trim_start_matches('v').to_owned());
    let sha256 = checksums.get(&(name.clone(), version.clone())).cloned();
    Some(Component { name, version, license: license.replace('/', " OR "), sha256, vendor: None })
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

    /// A scanner that knows only the crates would find no fault of the resolver of glibc, which is in each program.
    #[test]
    fn libraries_of_the_compilers_are_listed() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let libraries = libraries(&workspace, "cc").unwrap();
        let version = |name: &str| {
            let found = libraries.iter().find(|library| library.name == name);
            found.unwrap_or_else(|| panic!("{name}: {libraries:?}")).version.clone()
        };
        assert!(version("rust").starts_with("1."), "{libraries:?}");
        let glibc = version("glibc");
        assert!(glibc.strip_prefix("2.").is_some_and(|minor| minor.parse::<u8>().is_ok()), "{glibc}");
    }

    #[test]
    fn version_consists_of_macros_with_exactly_these_names() {
        let macros = "#define __GLIBC_USE(F) __GLIBC_USE_ ## F\n#define __GLIBC__ 2\n#define __GLIBC_MINOR__ 36\n\
                      #define __GNUC__ 12\n";
        assert_eq!(version(macros, &["__GLIBC__", "__GLIBC_MINOR__"]).as_deref(), Some("2.36"));
        assert_eq!(version(macros, &["__GNUC__", "__GNUC_MINOR__"]), None);
        assert_eq!(version(macros, &["__clang_major__"]), None);
    }

    #[test]
    fn document_names_image_and_components() {
        let license = "MIT".to_owned();
        let part = Component { name: "a".into(), version: "1.0.0".into(), license, sha256: None, vendor: None };
        let glibc = library("gnu", "glibc", "2.36", "LGPL-2.1-or-later");
        let text = cyclonedx("image", "sha256:ab", &[part, glibc]).unwrap();
        let document: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(document["metadata"]["component"]["version"], "sha256:ab");
        assert_eq!(document["components"][0]["purl"], "pkg:cargo/a@1.0.0");
        assert_eq!(document["components"][0]["cpe"], Value::Null);
        assert_eq!(document["components"][1]["purl"], "pkg:generic/glibc@2.36");
        assert_eq!(document["components"][1]["cpe"], "cpe:2.3:a:gnu:glibc:2.36:*:*:*:*:*:*:*");
    }
}
