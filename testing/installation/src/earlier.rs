//! Earlier releases of the chart, for tests of upgrades and rollbacks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use chart::helm::succeeded;
use cluster::Missing;
use images::{Store, operator};
use serde_json::{Value, json};

use crate::install::workspace;
use crate::mirror::copy;

/// The version of the earlier release. Every release of this repository has a higher one.
pub const EARLIER: &str = "0.0.9";

/// Writes the chart as an earlier release into `folder`, and returns the chart's folder. Its custom resource definition in the
/// file `definition`, a path in the chart, does not know the field `field` of `spec`.
///
/// # Errors
///
/// If the chart has no such file, or the definition no such field.
pub fn earlier_chart(folder: &Path, definition: &str, field: &str) -> Result<PathBuf> {
    let chart = copy_chart(&chart::folder(), folder, EARLIER)?;
    edit(&chart.join(definition), |text| {
        let mut crd: Value = serde_saphyr::from_str(text)?;
        for version in crd["spec"]["versions"].as_array_mut().context("no versions")? {
            let spec = version.pointer_mut("/schema/openAPIV3Schema/properties/spec").context("no schema of spec")?;
            let fields = spec["properties"].as_object_mut().context("spec has no fields")?;
            fields.remove(field).with_context(|| format!("spec has no field {field}"))?;
            spec["x-kubernetes-validations"] = json!([]); // a rule may name the field
        }
        Ok(crd.to_string())
    })?;
    Ok(chart)
}

/// The earliest commit from which a release can be upgraded, and the version that its release has.
const FIRST: (&str, &str) = ("5e9cc1483e6ad3e5f6eb98f95429378a88ebbd84", "0.0.1");

/// Builds the image of an early commit for clusters of this repository, and writes its chart as a release into `folder`. Returns the
/// chart's folder, and the image as `REPOSITORY@DIGEST`.
///
/// # Errors
///
/// If the clone of this repository lacks the commit, among others.
pub fn first_release(folder: &Path) -> Result<(PathBuf, String)> {
    let workspace = workspace()?;
    let (commit, version) = FIRST;
    let archive = folder.join("checkout.tar");
    let mut git = Command::new("git");
    git.arg("-C").arg(workspace).args(["archive", "--format=tar", commit, "--output"]).arg(&archive);
    succeeded(&mut git).map_err(|error| Missing(format!("the commit {commit} is needed, fetch it: {error:#}")))?;
    // The same folder each time. The files have the time of the commit, so Cargo builds only once.
    let root = root_of(workspace, commit);
    let checkout = root.join("checkout");
    fs::create_dir_all(&checkout).with_context(|| format!("could not create {}", checkout.display()))?;
    succeeded(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&checkout))?;

    let store = Store::open(root.join("images"))?;
    let built = operator::build_trial(&checkout, &store)?;
    let stored = store.find(&built.reference)?.context("the image is not in its store")?;
    let image = copy(&store, &stored, built.reference.with_tag(version))?;
    Store::open(images::default_store()?)?.put(&image)?;
    let image = format!("{}@{}", built.reference.repository, built.digest);
    Ok((copy_chart(&checkout.join("charts/operators"), folder, version)?, image))
}

/// The folder for the build of this commit, which has no file of another one.
fn root_of(workspace: &Path, commit: &str) -> PathBuf {
    workspace.join("target/first-release").join(commit)
}

/// Copies a chart into `folder` with another version, and returns the folder of the copy.
fn copy_chart(chart: &Path, folder: &Path, version: &str) -> Result<PathBuf> {
    let target = folder.join("operators");
    succeeded(Command::new("cp").arg("--recursive").arg(chart).arg(&target))?;
    edit(&target.join("Chart.yaml"), |text| {
        let is_version = |line: &&str| line.starts_with("version: ");
        let line = text.lines().find(is_version).context("no version")?;
        Ok(text.replace(line, &format!("version: {version}")))
    })?;
    Ok(target)
}

fn edit(file: &Path, change: impl FnOnce(&str) -> Result<String>) -> Result<()> {
    let text = fs::read_to_string(file).with_context(|| format!("could not read {}", file.display()))?;
    let changed = change(&text).with_context(|| file.display().to_string())?;
    fs::write(file, changed).with_context(|| format!("could not write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_commit_has_a_folder_of_its_own_and_the_first_one_a_whole_name() {
        let [one, other] = ["a", "b"].map(|commit| root_of(Path::new("/workspace"), commit));
        assert!(one != other && one.ends_with("target/first-release/a"), "{} {}", one.display(), other.display());
        let (commit, _) = FIRST;
        assert!(commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit()), "{commit}");
    }
}
