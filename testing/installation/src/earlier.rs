//! An earlier release of the chart, for tests of upgrades and rollbacks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use chart::helm::succeeded;
use serde_json::{Value, json};

/// The version of the earlier release. Every release of this repository has a higher one.
pub const EARLIER: &str = "0.0.9";

/// Writes the chart as an earlier release into `folder`, and returns the chart's folder. Its custom resource definition in the
/// file `definition`, a path in the chart, does not know the field `field` of `spec`.
///
/// # Errors
///
/// If the chart has no such file, or the definition no such field.
pub fn earlier_chart(folder: &Path, definition: &str, field: &str) -> Result<PathBuf> {
    let chart = folder.join("operators");
    succeeded(Command::new("cp").arg("--recursive").arg(chart::folder()).arg(&chart))?;
    edit(&chart.join("Chart.yaml"), |text| {
        let is_version = |line: &&str| line.starts_with("version: ");
        let line = text.lines().find(is_version).context("no version")?;
        Ok(text.replace(line, &format!("version: {EARLIER}")))
    })?;
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

fn edit(file: &Path, change: impl FnOnce(&str) -> Result<String>) -> Result<()> {
    let text = fs::read_to_string(file).with_context(|| format!("could not read {}", file.display()))?;
    let changed = change(&text).with_context(|| file.display().to_string())?;
    fs::write(file, changed).with_context(|| format!("could not write {}", file.display()))
}
