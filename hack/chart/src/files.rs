//! Generates `charts/operators/files`, one folder for each operator and some files for the whole chart, and the chart's values. The
//! templates read these files, so no template names an operator.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use controller_manager::OPERATORS;
use manager::{Operator, normalize, permissions, printed, webhook_configurations, webhook_permissions};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{CHART, document, document::HEADING, values::own_flags};

/// The contents of whole files, by their path relative to the root of the checkout.
pub type Files = BTreeMap<PathBuf, String>;

/// The folder that contains only generated files.
pub const FOLDER: &str = "charts/operators/files";

/// The copy of docs/runbooks.md in the chart's package, from which each alert gets its runbook.
const RUNBOOKS: &str = "files/runbooks.md";

/// The default repositories of the chart's images, by which the templates tell a user's repository from the chart's.
const IMAGES: &str = "files/images.yaml";

/// The defaults that the templates restore where a user has set null.
const DEFAULTS: &str = "files/defaults.yaml";

/// The path of the conversion webhook, the same as in controller-runtime.
const CONVERT: &str = "/convert";

/// All files of the chart that are generated as a whole.
pub fn generated() -> Result<Files> {
    let mut files = Files::new();
    for operator in OPERATORS {
        let folder = Path::new(FOLDER).join(operator.name());
        for crd in operator.crds() {
            let file = folder.join(format!("crd-{}.yaml", crd.spec.names.plural));
            files.insert(file, yaml(&printed(&normalize(&crd)))?);
        }
        files.insert(folder.join("clusterrole-rules.yaml"), yaml(&permissions(&[*operator]))?);
        files.insert(folder.join("sample.yaml"), operator.sample().to_owned());
        let flags = own_flags(*operator);
        if !flags.is_empty() {
            files.insert(folder.join("flags.yaml"), yaml(&flags)?);
        }
        if let Some(webhooks) = webhooks(*operator) {
            files.insert(folder.join("webhooks.yaml"), yaml(&webhooks)?);
        }
    }
    let chart = Path::new(CHART);
    files.insert(chart.join(RUNBOOKS), include_str!("../../../docs/runbooks.md").to_owned());
    files.insert(chart.join(IMAGES), yaml(&document::default_repositories()?)?);
    files.insert(chart.join(DEFAULTS), yaml(&document::defaults()?)?);
    files.insert(chart.join("values.yaml"), document::values_yaml()?);
    files.insert(chart.join("values.schema.json"), document::values_schema()?);
    Ok(files)
}

/// The operator's webhook entries, without the fields that the chart's values decide, and the names of the definitions that
/// need conversion. `None` if the operator has no webhooks.
fn webhooks(operator: &dyn Operator) -> Option<Value> {
    let allowed = webhook_permissions(&[operator], "", "")?;
    let of_definitions = allowed
        .cluster
        .into_iter()
        .filter(|rule| rule.resources.iter().flatten().any(|resource| resource == "customresourcedefinitions"));
    let definitions: Vec<_> = of_definitions.flat_map(|rule| rule.resource_names.unwrap_or_default()).collect();
    let mut webhooks = json!({"conversion": {"path": CONVERT, "definitions": definitions}});
    for mut configuration in webhook_configurations(&[operator], "", "", "") {
        let key = match configuration["kind"].as_str() {
            Some("MutatingWebhookConfiguration") => "mutating",
            _ => "validating",
        };
        let mut entries = configuration["webhooks"].take();
        for entry in entries.as_array_mut().into_iter().flatten() {
            entry["path"] = entry["clientConfig"]["service"]["path"].take();
            if let Some(entry) = entry.as_object_mut() {
                entry.retain(|key, _| !matches!(key.as_str(), "clientConfig" | "timeoutSeconds"));
            }
        }
        webhooks[key] = entries;
    }
    Some(webhooks)
}

fn yaml(value: &impl Serialize) -> Result<String> {
    let text = serde_saphyr::to_string(value).context("could not write YAML")?;
    Ok(format!("{HEADING}{}\n", text.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operator_has_permissions_crds_and_sample() {
        let files = generated().expect("files");
        for operator in OPERATORS {
            let folder = Path::new(FOLDER).join(operator.name());
            for file in ["clusterrole-rules.yaml", "sample.yaml"] {
                assert!(files.contains_key(&folder.join(file)), "{} has no {file}", operator.name());
            }
            for crd in operator.crds() {
                let text = &files[&folder.join(format!("crd-{}.yaml", crd.spec.names.plural))];
                assert!(text.starts_with(HEADING) && text.contains("\nkind: CustomResourceDefinition\n"), "{text}");
            }
        }
    }
}
