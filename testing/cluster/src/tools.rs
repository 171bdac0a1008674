//! Finds or builds the programs of clusters.
//!
//! The sources of a program, in this order:
//!
//! 1. the folders with finished programs that `OPERATORS_TOOLS` and `KUBEBUILDER_ASSETS` name;
//! 2. the cache, in the folder that `OPERATORS_CACHE` names or in `~/.cache/operators`. Each tool has a folder whose name
//!    contains a hash of all inputs of the build, so a changed pin rebuilds only that tool;
//! 3. a build from the Go module under `hack/tools` that pins the tool. A build holds a lock for its tool, so two simultaneous
//!    calls share the work. An interrupted build continues from Go's own cache.

mod build;
mod catalogue;
mod host;
mod key;
mod lock;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

pub use self::catalogue::{TOOLS, Tool};
pub(crate) use self::key::hex;
pub(crate) use self::lock::Lock;
use crate::progress::Progress;

/// Programs that are ready to run, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Tools {
    binaries: BTreeMap<String, PathBuf>,
}

impl Tools {
    /// Finds `tools`, and builds those that are missing. The first time, this may take a quarter of an hour.
    pub fn locate_or_build(tools: &[Tool], progress: Progress<'_>) -> Result<Self> {
        let mut found = Self::default();
        let mut absent = Vec::new();
        for &tool in tools {
            match locate(tool)? {
                Some(binaries) => found.binaries.extend(binaries),
                None => absent.push(tool),
            }
        }
        if !absent.is_empty() {
            build::prepare(&absent)?; // reports what the machine lacks before the first long build
        }
        for (n, &tool) in absent.iter().enumerate() {
            let folder = build::build(tool, (n + 1, absent.len()), progress)?;
            found.binaries.extend(in_folders(tool, &[folder]));
            found.binaries.extend(in_folders(tool, &ready_made())); // the user's own programs take precedence
        }
        Ok(found)
    }

    /// Finds those of `tools` that need no build, and ignores the others.
    pub fn locate(tools: &[Tool]) -> Result<Self> {
        let mut found = Self::default();
        for &tool in tools {
            found.binaries.extend(locate(tool)?.unwrap_or_default());
        }
        Ok(found)
    }

    /// The path of the program.
    ///
    /// # Errors
    ///
    /// If the program does not belong to the tools of this value.
    pub fn binary(&self, name: &str) -> Result<&Path> {
        self.binaries.get(name).map(PathBuf::as_path).with_context(|| format!("{name} is not among these tools"))
    }

    /// Whether the program is among these tools.
    pub fn has(&self, name: &str) -> bool {
        self.binaries.contains_key(name)
    }

    /// The folders of all programs, without duplicates.
    pub fn folders(&self) -> Vec<&Path> {
        let mut folders: Vec<_> = self.binaries.values().filter_map(|file| file.parent()).collect();
        folders.sort_unstable();
        folders.dedup();
        folders
    }

    /// A PATH with the folders of all programs before those of `rest`.
    pub fn path(&self, rest: Option<OsString>) -> OsString {
        let rest = rest.unwrap_or_default();
        let folders = self.folders().into_iter().map(Path::to_path_buf).chain(std::env::split_paths(&rest));
        std::env::join_paths(folders).unwrap_or(rest)
    }
}

/// The Kubernetes version that `hack/tools` pins for all tests that name no other, such as "v1.36.3".
pub fn kubernetes_version() -> Result<String> {
    kubernetes_version_of(Tool::Kubernetes)
}

/// The version that `hack/tools` pins for one of the tools with the programs of Kubernetes.
pub(crate) fn kubernetes_version_of(tool: Tool) -> Result<String> {
    pinned(tool, "k8s.io/kubernetes")
}

/// The version of a module that the tool's `go.mod` requires.
fn pinned(tool: Tool, module: &str) -> Result<String> {
    let file = sources().join(tool.name()).join("go.mod");
    let go_mod = std::fs::read_to_string(&file).with_context(|| format!("could not read {}", file.display()))?;
    let version = key::version_of(&go_mod, module);
    Ok(version.with_context(|| format!("{} does not require {module}", file.display()))?.to_owned())
}

/// The version of a tool that `hack/tools` pins, such as "v1.2.3".
///
/// # Errors
///
/// If no module outside of this repository has the tool's version.
pub fn version_of(tool: Tool) -> Result<String> {
    let upstream = tool.recipe().and_then(|recipe| recipe.upstream);
    let upstream = upstream.with_context(|| format!("{} has no version of its own", tool.name()))?;
    pinned(tool, upstream)
}

/// The folder with the sources of a Go module that a tool's `go.mod` pins. Downloads the module if it is missing.
pub(crate) fn module_folder(tool: Tool, module: &str) -> Result<PathBuf> {
    let recipe = tool.recipe().context("the tool has no Go module")?;
    build::module_folder(recipe, module)
}

/// A hash of the pins of these tools, the folders of finished programs, and `also`. It is quick to compute.
pub(crate) fn pins_key(tools: &[Tool], also: &str) -> Result<String> {
    let mut hash = Sha256::new();
    hash.update(also);
    for folder in ready_made() {
        hash.update(folder.as_os_str().as_encoded_bytes());
    }
    for recipe in tools.iter().filter_map(|tool| tool.recipe()) {
        hash.update(key::source_key(&sources().join(recipe.module), recipe)?);
    }
    Ok(hex(&hash.finalize()[..4]))
}

/// The folder of the tools that this crate has built.
pub fn cache() -> PathBuf {
    std::env::var_os("OPERATORS_CACHE")
        .filter(|folder| !folder.is_empty())
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("XDG_CACHE_HOME")?).join("operators")))
        .or_else(|| Some(std::env::home_dir()?.join(".cache/operators")))
        .unwrap_or_else(|| std::env::temp_dir().join("operators-cache"))
        .join("tools")
}

/// The folder `hack/tools`.
fn sources() -> PathBuf {
    sources_of(Path::new(env!("CARGO_MANIFEST_DIR")))
}

/// The folder `hack/tools`, for this crate in the folder `package`. The package in a registry contains it as `tools`, which is a link
/// in a checkout, and missing in a copy without links. The path to the folder must not lead through a missing link.
fn sources_of(package: &Path) -> PathBuf {
    let packaged = package.join("tools");
    if packaged.is_dir() { packaged } else { package.join("../../hack/tools") }
}

/// All programs of the tool; `None` if one is missing and has to be built.
fn locate(tool: Tool) -> Result<Option<BTreeMap<String, PathBuf>>> {
    let mut folders = ready_made();
    match tool.recipe() {
        None => folders.extend(host::nft_folder()),
        Some(recipe) => folders.extend(build::finished(recipe)?),
    }
    let found = in_folders(tool, &folders);
    Ok((found.len() == tool.binaries().len()).then_some(found))
}

/// Whether the program is in a folder that the user's environment names. Such a folder may be in the cache, too.
pub(crate) fn is_ready_made(program: &Path) -> bool {
    ready_made().iter().any(|folder| program.starts_with(folder))
}

/// The folders with finished programs that the user's environment names.
fn ready_made() -> Vec<PathBuf> {
    ["OPERATORS_TOOLS", "KUBEBUILDER_ASSETS"]
        .into_iter()
        .filter_map(std::env::var_os)
        .filter(|folder| !folder.is_empty())
        .map(PathBuf::from)
        .collect()
}

/// The programs of the tool that are in these folders. If several folders have a program, the first one wins.
fn in_folders(tool: Tool, folders: &[PathBuf]) -> BTreeMap<String, PathBuf> {
    let first = |name: &str| folders.iter().map(|folder| folder.join(name)).find(|file| file.is_file());
    tool.binaries().into_iter().filter_map(|name| Some((name.to_owned(), first(name)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_folder_with_a_program_wins() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for file in [first.path().join("ctr"), second.path().join("ctr"), second.path().join("containerd")] {
            std::fs::write(file, "").unwrap();
        }
        let folders = [first.path().to_path_buf(), second.path().to_path_buf()];
        let found = in_folders(Tool::Containerd, &folders);
        assert_eq!(found["ctr"], first.path().join("ctr"));
        assert_eq!(found["containerd"], second.path().join("containerd"));
        assert!(!found.contains_key("containerd-shim-runc-v2"));
    }

    #[test]
    fn copy_of_the_checkout_without_links_has_the_pins_too() {
        let checkout = tempfile::tempdir().unwrap();
        let package = checkout.path().join("testing/cluster");
        for folder in [&package, &checkout.path().join("hack/tools")] {
            std::fs::create_dir_all(folder).unwrap();
        }
        std::fs::write(checkout.path().join("hack/tools/pin"), "copy").unwrap();
        let pin = || std::fs::read_to_string(sources_of(&package).join("pin")).unwrap();
        assert_eq!(pin(), "copy");
        std::fs::create_dir(package.join("tools")).unwrap();
        std::fs::write(package.join("tools/pin"), "package").unwrap();
        assert_eq!(pin(), "package");
    }

    #[test]
    fn path_variable_lists_own_folders_once_and_first() {
        let binaries = [("a", "/one/a"), ("b", "/one/b"), ("c", "/two/c")];
        let tools = Tools { binaries: binaries.map(|(name, file)| (name.to_owned(), file.into())).into() };
        assert_eq!(tools.path(Some("/usr/bin".into())), "/one:/two:/usr/bin");
    }
}
