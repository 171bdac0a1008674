//! The objects that Helm renders from the chart, and look-ups in them for tests and tasks.

use anyhow::{Context as _, Result};
use serde_json::Value;

/// All objects of a render, in Helm's order.
#[derive(Debug, Clone)]
pub struct Rendered {
    /// The YAML, as Helm wrote it.
    pub text: String,
    /// The objects in the text.
    pub objects: Vec<Value>,
}

impl Rendered {
    /// Parses a stream of YAML documents, without those that are empty.
    pub fn parse(text: &str) -> Result<Self> {
        let documents = text.split("\n---\n").map(|document| document.trim_start_matches("---\n"));
        let mut objects = Vec::new();
        for document in documents {
            let object: Value = serde_saphyr::from_str(document).with_context(|| format!("not YAML:\n{document}"))?;
            if !object.is_null() {
                objects.push(object);
            }
        }
        Ok(Self { text: text.to_owned(), objects })
    }

    /// The objects of this kind.
    pub fn of(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter(move |object| object["kind"] == kind)
    }

    /// The object of this kind and name.
    pub fn object(&self, kind: &str, name: &str) -> Option<&Value> {
        self.of(kind).find(|object| object["metadata"]["name"] == name)
    }

    /// Every pod spec in the objects, with `kind/name` of the object that contains it.
    pub fn pods(&self) -> Vec<(String, &Value)> {
        let pods = self.objects.iter().filter_map(|object| {
            let spec = match object["kind"].as_str()? {
                "Pod" => &object["spec"],
                "Deployment" | "StatefulSet" | "Job" => &object["spec"]["template"]["spec"],
                _ => return None,
            };
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            Some((format!("{}/{name}", object["kind"].as_str()?), spec))
        });
        pods.collect()
    }
}
