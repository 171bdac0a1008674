//! What Artifact Hub shows about one release: its image, and what has changed. The annotations that are the same for each release are
//! in the chart itself.
//!
//! `artifacthub.io/signKey` is left out: it names the PGP key of a `.prov` file, which a release does not have. Artifact Hub looks for
//! signatures of cosign in the registry.

use anyhow::{Context as _, Result, ensure};
use images::Digest;
use serde_json::{Value, json};

use crate::Plan;

/// The kinds of changes, which are also the headings of a changelog in the form of Keep a Changelog.
const KINDS: [&str; 6] = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"];

/// `Chart.yaml` with the annotations of this release.
pub(crate) fn annotated(chart: &str, plan: &Plan, notes: &str, index: &Digest) -> Result<String> {
    let platforms: Vec<_> = plan.platforms.iter().map(ToString::to_string).collect();
    let image = format!("{}:{}@{index}", plan.image(), plan.version);
    let mut images = vec![json!({"name": "controller-manager", "image": image, "platforms": platforms})];
    let mut described: Value = serde_saphyr::from_str(chart).context("Chart.yaml")?;
    let annotations = described["annotations"].as_object_mut().context("Chart.yaml has no annotations")?;
    if let Some(others) = annotations.get("artifacthub.io/images").and_then(Value::as_str) {
        let others: Vec<Value> = serde_saphyr::from_str(others).context("artifacthub.io/images")?;
        images.extend(others); // those of the operators' pods
    }
    let prerelease = !plan.version.pre.is_empty();
    let mut ours = json!({
        "artifacthub.io/changes": yaml(&changes(notes))?,
        "artifacthub.io/images": yaml(&json!(images))?,
        "artifacthub.io/prerelease": prerelease.to_string(),
    });
    annotations.append(ours.as_object_mut().context("these are annotations")?);
    yaml_text(&described)
}

/// The entries of a changelog under the headings of these kinds.
fn changes(notes: &str) -> Value {
    let mut kind = None;
    let mut changes: Vec<(String, String)> = Vec::new();
    for line in notes.lines() {
        if let Some(heading) = line.strip_prefix("### ") {
            kind = KINDS.iter().find(|known| **known == heading.trim()).map(|known| known.to_lowercase());
        } else if let (Some(text), Some(kind)) = (line.strip_prefix("- "), &kind) {
            changes.push((kind.clone(), text.to_owned()));
        } else if let (Some(text), Some((_, entry))) = (line.strip_prefix("  "), changes.last_mut())
            && kind.is_some()
        {
            entry.push(' ');
            entry.push_str(text.trim());
        }
    }
    changes.into_iter().map(|(kind, description)| json!({"kind": kind, "description": description})).collect()
}

/// A list as YAML text, because the value of an annotation is a string.
fn yaml(list: &Value) -> Result<Value> {
    Ok(json!(yaml_text(list)?))
}

pub(crate) fn yaml_text(value: &Value) -> Result<String> {
    let text = serde_saphyr::to_string(value).context("could not write YAML")?;
    let read: Value = serde_saphyr::from_str(&text).context("this is not the YAML that was written")?;
    ensure!(read == *value, "this text would be read as something else:\n{text}");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_have_the_kind_of_their_heading() {
        let notes = "About it.\n\n- not a change\n\n### Added\n\n- One: \"two\"\n  lines.\n- Two.\n\n### Upgrading\n\n- no change\n  either\n\n\
                     ### Fixed\n\n- Three.\n";
        let expected = json!([
            {"kind": "added", "description": "One: \"two\" lines."},
            {"kind": "added", "description": "Two."},
            {"kind": "fixed", "description": "Three."},
        ]);
        assert_eq!(changes(notes), expected);
    }
}
