//! Plain manifests for `kubectl apply`, for users without Helm: everything in one file, and the same divided into six.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::{NAMESPACE, rendered::Rendered};

/// The six files, in the order in which users apply them.
const FILES: [&str; 6] = [
    "1-namespace.yaml",
    "2-service-account.yaml",
    "3-roles.yaml",
    "4-bindings.yaml",
    "5-definitions.yaml",
    "6-controller.yaml",
];

/// The files of `make dist`, by name: `install.yaml` with all objects, and the six files.
pub fn files(rendered: &Rendered) -> Result<BTreeMap<String, String>> {
    let mut sorted: BTreeMap<&str, Vec<Value>> = FILES.iter().map(|file| (*file, Vec::new())).collect();
    sorted.insert(FILES[0], vec![namespace()]);
    for object in &rendered.objects {
        let file = file_of(object["kind"].as_str().unwrap_or_default());
        sorted.entry(file).or_default().push(object.clone());
    }
    let mut files = BTreeMap::new();
    for (name, objects) in &sorted {
        files.insert((*name).to_owned(), documents(objects)?);
    }
    let all: Vec<Value> = sorted.into_values().flatten().collect();
    files.insert("install.yaml".to_owned(), documents(&all)?);
    Ok(files)
}

fn file_of(kind: &str) -> &'static str {
    match kind {
        "Namespace" => FILES[0],
        "ServiceAccount" => FILES[1],
        "Role" | "ClusterRole" => FILES[2],
        "RoleBinding" | "ClusterRoleBinding" => FILES[3],
        "CustomResourceDefinition" => FILES[4],
        _ => FILES[5],
    }
}

/// The namespace of the operators. The chart does not contain it, because Helm creates it with `--create-namespace`.
fn namespace() -> Value {
    let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}})
}

fn documents(objects: &[Value]) -> Result<String> {
    let mut text = String::new();
    for object in objects {
        let document = serde_saphyr::to_string(object).context("could not write YAML")?;
        text.extend(["---\n", document.trim_end(), "\n"]);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page says how to remove all but the definitions and their objects.
    #[test]
    fn documented_deletion_keeps_definitions_and_namespace() {
        let page = include_str!("../../../docs/book/src/how-to/install.md");
        let command = page.lines().find(|line| line.starts_with("kubectl delete -f dist/6")).expect("the command");
        let deleted: Vec<_> = command.split(" -f dist/").skip(1).collect();
        assert_eq!(deleted, [FILES[5], FILES[3], FILES[2], FILES[1]]);
        assert_eq!(file_of("CustomResourceDefinition"), FILES[4]);
    }

    #[test]
    fn objects_are_in_dependency_order() {
        let kinds = ["Deployment", "ClusterRole", "CustomResourceDefinition", "RoleBinding", "ServiceAccount"];
        let objects = kinds.map(|kind| json!({"kind": kind, "metadata": {"name": "a"}})).into();
        let files = files(&Rendered { text: String::new(), objects }).expect("files");
        assert_eq!(files.len(), 7);
        let kinds: Vec<_> = files["install.yaml"].lines().filter_map(|line| line.strip_prefix("kind: ")).collect();
        let order =
            ["Namespace", "ServiceAccount", "ClusterRole", "RoleBinding", "CustomResourceDefinition", "Deployment"];
        assert_eq!(kinds, order);
    }
}
