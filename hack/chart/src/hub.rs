//! The annotations of `Chart.yaml` that Artifact Hub shows. They come from the custom resource definitions and from the samples,
//! which tests apply.

use anyhow::{Context as _, Result};
use controller_manager::OPERATORS;
use serde_json::{Value, json};

/// The annotations, as the lines of YAML below `annotations:`.
pub fn annotations() -> Result<String> {
    let (mut kinds, mut examples) = (Vec::new(), Vec::new());
    for operator in OPERATORS {
        for crd in operator.crds() {
            let names = &crd.spec.names;
            let version = crd.spec.versions.iter().find(|version| version.storage).context("no version is stored")?;
            kinds.push(json!({
                "kind": names.kind, "version": version.name, "name": format!("{}.{}", names.plural, crd.spec.group),
                "displayName": names.kind, "description": about(version),
            }));
        }
        let sample: Value = serde_saphyr::from_str(operator.sample()).context("a sample is not valid YAML")?;
        examples.push(sample);
    }
    let mut text = links(env!("CARGO_PKG_REPOSITORY"));
    for (key, value) in [
        ("operator", json!("true")),
        ("operatorCapabilities", json!("Deep Insights")),
        ("license", json!("Apache-2.0")),
        ("category", json!("integration-delivery")),
        ("crds", block(&kinds)?),
        ("crdsExamples", block(&examples)?),
        ("images", block(&images())?),
    ] {
        text.push_str(&line(&format!("artifacthub.io/{key}"), &value));
    }
    Ok(text)
}

/// The images of the operators' pods and of the samples, for a mirror: what `controller-manager images` prints. A release adds its own.
fn images() -> Vec<Value> {
    let entry = |image: String| {
        let last = image.rsplit('/').next().unwrap_or_default();
        let name = last.split([':', '@']).next().unwrap_or_default();
        json!({"name": name, "image": image})
    };
    manager::images(OPERATORS).into_iter().map(entry).collect()
}

/// The annotation with links to the project; nothing while it has no public address.
fn links(address: &str) -> String {
    if address.is_empty() {
        return String::new();
    }
    let links = format!("- name: source\n  url: {address}\n- name: support\n  url: {address}/issues\n");
    line("artifacthub.io/links", &json!(links))
}

fn about(version: &impl serde::Serialize) -> String {
    let version = serde_json::to_value(version).unwrap_or_default();
    let text = version.pointer("/schema/openAPIV3Schema/description").and_then(Value::as_str).unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A list as YAML text, because the value of an annotation is a string.
fn block(items: &[Value]) -> Result<Value> {
    Ok(json!(serde_saphyr::to_string(&items).context("could not write YAML")?))
}

fn line(key: &str, value: &Value) -> String {
    let text = value.as_str().unwrap_or_default();
    if !text.contains('\n') {
        return format!("  {key}: {value}\n");
    }
    format!("  {key}: |\n    {}\n", text.trim_end().replace('\n', "\n    "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_need_an_address() {
        assert_eq!(links(""), "");
        let links = links("https://example.com/operators");
        assert!(links.starts_with("  artifacthub.io/links: |\n    - name: source\n"), "{links}");
        assert!(links.contains("url: https://example.com/operators/issues\n"), "{links}");
    }

    fn chart() -> String {
        std::fs::read_to_string(crate::folder().join("Chart.yaml")).expect("a file")
    }

    #[test]
    fn chart_names_a_team_without_an_address_as_its_maintainer() {
        let chart: Value = serde_saphyr::from_str(&chart()).expect("YAML");
        let maintainers = chart["maintainers"].as_array().expect("a list");
        assert!(!maintainers.is_empty());
        for maintainer in maintainers {
            assert!(maintainer["name"].as_str().is_some_and(|name| !name.is_empty()), "{maintainer}");
            assert_eq!(
                maintainer["email"],
                Value::Null,
                "a person may leave the team; SECURITY.md says how to reach it"
            );
        }
    }

    #[test]
    fn chart_has_the_version_of_the_workspace() {
        let chart = chart();
        let version = chart.lines().find_map(|line| line.strip_prefix("version: "));
        assert_eq!(version, Some(env!("CARGO_PKG_VERSION")), "set both in one commit");
    }
}
