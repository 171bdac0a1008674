//! The plugin of kubectl for download: an archive for each platform, and a manifest by which krew, the package manager of such
//! plugins, installs it.

use std::collections::BTreeMap;

use anyhow::Result;
use bytes::Bytes;
use images::{Digest, Layer, Platform, image};
use serde_json::{Value, json};

use crate::{Plan, Ready, git, hub};

/// The program. By this name, kubectl finds the plugin.
pub const PROGRAM: &str = "kubectl-operators";
/// The manifest for krew.
pub const KREW: &str = "krew.yaml";
/// The program by which kubectl completes the words after the plugin's name, and its place in the repository.
const COMPLETION: (&str, &str) = ("kubectl_complete-operators", "shared/kubectl-operators/kubectl_complete-operators");
const LICENSE: &str = "LICENSE";

/// The plugin for one platform.
#[derive(Clone, Debug)]
pub struct Plugin {
    /// Where it runs.
    pub platform: Platform,
    /// The program.
    pub program: Bytes,
}

/// The files for download, by name. Without an address of the repository there is no manifest, because it has to say where the
/// archives are.
pub(crate) fn files(plan: &Plan, ready: &Ready, plugins: &[Plugin]) -> Result<BTreeMap<String, Bytes>> {
    let committed = |path: &str| git::git(&plan.checkout, &["show", &format!("{}:{path}", ready.commit)]);
    let (completion, license) = (committed(COMPLETION.1)?, committed(LICENSE)?);
    let mut files = BTreeMap::new();
    for Plugin { platform, program } in plugins {
        let mut archive = Layer::new(); // without times, so the same files always give the same archive
        archive.file(PROGRAM, program.to_vec(), 0o755).file(COMPLETION.0, completion.clone(), 0o755);
        archive.file(LICENSE, license.clone(), 0o644);
        files.insert(archive_name(*platform), Bytes::from(image::gzip(&archive.tar()?)?));
    }
    if let Some(address) = plan.builder.address() {
        files.insert(KREW.to_owned(), hub::yaml_text(&manifest(plan, plugins, &files, address))?.into());
    }
    Ok(files)
}

fn archive_name(platform: Platform) -> String {
    format!("{PROGRAM}-linux-{}.tar.gz", platform.architecture())
}

fn manifest(plan: &Plan, plugins: &[Plugin], archives: &BTreeMap<String, Bytes>, address: &str) -> Value {
    let version = format!("v{}", plan.version);
    let platform = |plugin: &Plugin| {
        let name = archive_name(plugin.platform);
        let archive = archives.get(&name)?;
        Some(json!({
            "selector": {"matchLabels": {"os": "linux", "arch": plugin.platform.architecture()}},
            "uri": format!("{address}/releases/download/{version}/{name}"),
            "sha256": Digest::of(archive).hex(),
            "bin": PROGRAM,
        }))
    };
    json!({
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "operators"},
        "spec": {
            "version": version,
            "homepage": address,
            "shortDescription": "Show and steer the objects of operators",
            "description": "Shows the objects of all operators that are built on this runtime in one table, with what is wrong \
                            first, and pauses, resumes and reconciles them.",
            "platforms": plugins.iter().filter_map(platform).collect::<Vec<_>>(),
        },
    })
}
