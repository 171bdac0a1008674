//! A registry in a folder, in the form of cargo's source `local-registry`: the packages, and an index with their checksums. It has the
//! packages of this workspace, and all others in the versions of `Cargo.lock`. So a project that replaces crates.io by it has no other
//! source: neither paths nor the network.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use images::Digest;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::workspace;

/// The registry.
#[derive(Debug)]
pub(super) struct Registry {
    folder: PathBuf,
    packages: Vec<Package>,
}

/// A version of a package, as `cargo metadata` describes it.
#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    version: String,
    /// `None` for a package of this workspace.
    source: Option<String>,
    /// `None` if the package may go to any registry.
    publish: Option<Vec<String>>,
    manifest_path: PathBuf,
    links: Option<String>,
    features: BTreeMap<String, Vec<String>>,
    dependencies: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
    rename: Option<String>,
    req: String,
    /// `None` for an ordinary one.
    kind: Option<String>,
    optional: bool,
    uses_default_features: bool,
    features: Vec<String>,
    target: Option<String>,
}

impl Registry {
    /// Makes the registry in a folder that does not exist. `archives` is the folder where cargo has packaged the crates of this
    /// workspace.
    pub(super) fn create(folder: PathBuf, archives: &Path) -> Result<Self> {
        let lock = fs::read_to_string(workspace::root().join("Cargo.lock")).context("there is no Cargo.lock")?;
        let checksums = checksums(&lock);
        let mut packages = all()?;
        packages.retain(|package| package.source.is_some() || package.publish.is_none());
        let mut index = BTreeMap::<String, String>::new();
        fs::create_dir_all(&folder).with_context(|| format!("could not create {}", folder.display()))?;
        for package in &packages {
            let file = package.file();
            let (place, checksum) = if package.source.is_none() {
                let place = archives.join(&file);
                let content =
                    fs::read(&place).with_context(|| format!("cargo has not packaged {}", place.display()))?;
                (place, Digest::of(&content).hex().to_owned())
            } else {
                let place = cached(&package.manifest_path);
                let place = place.with_context(|| format!("{file} is not from a registry"))?;
                ensure!(place.is_file(), "cargo's cache lacks {}: `cargo fetch` brings it", place.display());
                (place, checksums.get(&file).with_context(|| format!("Cargo.lock has no checksum of {file}"))?.clone())
            };
            symlink(place, folder.join(&file)).with_context(|| format!("could not link {file}"))?;
            writeln!(index.entry(file_in_index(&package.name)).or_default(), "{}", line(package, &checksum))?;
        }
        for (file, lines) in index {
            let file = folder.join("index").join(file);
            fs::create_dir_all(file.parent().unwrap_or(&folder))?;
            fs::write(&file, lines).with_context(|| format!("could not write {}", file.display()))?;
        }
        Ok(Self { folder, packages })
    }

    /// The settings of cargo that make a project take all packages from this registry.
    pub(super) fn settings(&self) -> String {
        format!(
            "[source.crates-io]\nreplace-with = \"ours\"\n\n[source.ours]\nlocal-registry = {:?}\n",
            self.folder.display().to_string()
        )
    }

    /// The features of this package that choose a version of Kubernetes, such as `v1_36`, the oldest first.
    pub(super) fn kubernetes(&self) -> Vec<&str> {
        let packages = self.packages.iter().filter(|package| package.name == "k8s-openapi");
        packages
            .flat_map(|package| package.features.keys())
            .map(String::as_str)
            .filter(|it| it.starts_with("v1_"))
            .collect()
    }
}

impl Package {
    fn file(&self) -> String {
        format!("{}-{}.crate", self.name, self.version)
    }
}

/// The packages of this workspace and all that these depend on, on any platform.
fn all() -> Result<Vec<Package>> {
    #[derive(Deserialize)]
    struct Metadata {
        packages: Vec<Package>,
    }
    let output = workspace::cargo().args(["metadata", "--locked", "--format-version", "1"]).output()?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
    let Metadata { packages } = serde_json::from_slice(&output.stdout)?;
    Ok(packages)
}

/// The checksums in a `Cargo.lock`, by the file of the package.
fn checksums(lock: &str) -> BTreeMap<String, String> {
    let value = |block: &str, key: &str| {
        let line = block.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"'));
        line.map(str::to_owned)
    };
    let blocks = lock.split("[[package]]").skip(1);
    let checksum = |block: &str| {
        let file = format!("{}-{}.crate", value(block, "name")?, value(block, "version")?);
        Some((file, value(block, "checksum")?))
    };
    blocks.filter_map(checksum).collect()
}

/// The package in cargo's cache from which cargo has unpacked this manifest: `…/cache/<index>/<package>.crate` for
/// `…/src/<index>/<package>/Cargo.toml`.
fn cached(manifest: &Path) -> Option<PathBuf> {
    let unpacked = manifest.parent()?;
    let index = unpacked.parent()?;
    let mut file = unpacked.file_name()?.to_owned();
    file.push(".crate");
    Some(index.parent()?.with_file_name("cache").join(index.file_name()?).join(file))
}

/// The file of the index with this package, see <https://doc.rust-lang.org/cargo/reference/registry-index.html>.
fn file_in_index(name: &str) -> String {
    let name = name.to_lowercase();
    match name.len() {
        length @ 1..=2 => format!("{length}/{name}"),
        3 => format!("3/{}/{name}", &name[..1]),
        _ => format!("{}/{}/{name}", &name[..2], &name[2..4]),
    }
}

/// The line of the index for a package. Of the packages of this workspace it has no dependencies for tests, some of which are in no
/// registry; of the others it has them, because a feature may name one.
fn line(package: &Package, checksum: &str) -> Value {
    let is_for_users = |it: &&Dependency| package.source.is_some() || it.kind.as_deref() != Some("dev");
    let dependency = |it: &Dependency| {
        let name = it.rename.as_ref().unwrap_or(&it.name);
        let renamed = it.rename.is_some().then_some(&it.name);
        json!({
            "name": name, "package": renamed, "req": it.req, "kind": it.kind.as_deref().unwrap_or("normal"),
            "optional": it.optional, "default_features": it.uses_default_features, "features": it.features,
            "target": it.target,
        })
    };
    let dependencies: Vec<_> = package.dependencies.iter().filter(is_for_users).map(dependency).collect();
    json!({
        "name": package.name, "vers": package.version, "deps": dependencies, "cksum": checksum, "features": {},
        "features2": package.features, "yanked": false, "links": package.links, "v": 2,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_the_places_that_cargo_expects() {
        let files = ["a", "ab", "Abc", "operators-manager"].map(file_in_index);
        assert_eq!(files, ["1/a", "2/ab", "3/a/abc", "op/er/operators-manager"]);
        let unpacked = Path::new("/home-of-cargo/registry/src/index-1/ring-0.1.2/Cargo.toml");
        assert_eq!(
            cached(unpacked).as_deref(),
            Some(Path::new("/home-of-cargo/registry/cache/index-1/ring-0.1.2.crate"))
        );
    }

    #[test]
    fn documents_name_the_versions_of_kubernetes_that_k8s_openapi_offers() {
        let registry = Registry { folder: PathBuf::new(), packages: all().unwrap() };
        let offered = registry.kubernetes();
        let [oldest, newest] = [offered[0], offered[offered.len() - 1]].map(|it| it.replacen("v1_", "1.", 1));
        let sentence = format!("with each version from {oldest} to {newest}");
        let text = fs::read_to_string(workspace::root().join("docs/versions.md")).unwrap();
        assert!(text.contains(&sentence), "docs/versions.md does not say: {sentence}");
    }

    #[test]
    fn checksums_are_those_of_the_lock_file() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nsource = \"x\"\nchecksum = \"0f\"\n\n\
                    [[package]]\nname = \"ours\"\nversion = \"0.1.0\"\ndependencies = [\n \"a\",\n]\n";
        let expected = BTreeMap::from([("a-1.0.0.crate".to_owned(), "0f".to_owned())]);
        assert_eq!(checksums(lock), expected);
    }

    #[test]
    fn line_names_renamed_dependencies_and_leaves_out_those_for_tests() {
        let package = json!({
            "name": "ours", "version": "0.1.0", "source": null, "publish": null, "manifest_path": "", "links": null,
            "features": {"a": ["dep:b"]},
            "dependencies": [
                {"name": "operators-b", "rename": "b", "req": "^0.1.0", "kind": null, "optional": true,
                 "uses_default_features": false, "features": ["c"], "target": null},
                {"name": "fuzz", "rename": null, "req": "*", "kind": "dev", "optional": false,
                 "uses_default_features": true, "features": [], "target": null},
            ],
        });
        let mut package: Package = serde_json::from_value(package).unwrap();
        let expected = json!({
            "name": "ours", "vers": "0.1.0", "cksum": "0f", "features": {}, "features2": {"a": ["dep:b"]},
            "yanked": false, "links": null, "v": 2,
            "deps": [{
                "name": "b", "package": "operators-b", "req": "^0.1.0", "kind": "normal", "optional": true,
                "default_features": false, "features": ["c"], "target": null,
            }],
        });
        assert_eq!(line(&package, "0f"), expected);
        package.source = Some("registry".to_owned());
        assert_eq!(line(&package, "0f")["deps"].as_array().unwrap().len(), 2);
    }
}
