//! Waits until the API server serves a kind that the cluster lacks, by a watch of the kind's definition alone.
//!
//! The watch selects the definition by its name, so RBAC can limit the right to it. It starts at no version: the API server first sends
//! the definition, if there is one. So the verb `watch` is enough. What it sends may come from its cache. So each watch shows a recent
//! state and what follows, also after a restore from a backup.

use std::sync::Arc;

use futures::StreamExt;
use kube::{Client, Resource, core::WatchEvent};
use serde::Deserialize;
use tokio::time::Instant;

use super::{Failure, Reflector, WatchConnection, resource_name, watch::SHORT};

/// The definition of a kind that not every cluster has.
pub(super) struct Definition {
    client: Client,
    /// The name of the definition, which is that of the resource.
    name: String,
    /// The version of the API in which the informer reads the kind.
    version: String,
}

/// What a `CustomResourceDefinition` says about whether a version is served.
#[derive(Deserialize)]
struct Stored {
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
struct Spec {
    versions: Vec<Version>,
}

#[derive(Deserialize)]
struct Version {
    name: String,
    served: bool,
}

#[derive(Default, Deserialize)]
struct Status {
    /// `null` in a definition that the API server has just taken.
    #[serde(default)]
    conditions: Option<Vec<Condition>>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}

impl Definition {
    pub(super) fn of<K: Resource<DynamicType = ()>>(client: Client) -> Self {
        Self { client, name: resource_name::<K>(), version: K::version(&()).into_owned() }
    }

    /// Returns when the API server is about to serve the kind, or when only a list can tell: the API server refuses the watch, or the
    /// watch breaks.
    pub(super) async fn until_served(&self, connection: &Arc<WatchConnection>) {
        let reflector = Reflector::of_definition(connection.beside(self.client.clone()), &self.name);
        loop {
            let begun = Instant::now();
            match self.watch(&reflector).await {
                // The API server ends each watch after some minutes.
                Ok(false) if begun.elapsed() > SHORT => {}
                Ok(_) => return,
                Err(error) => {
                    let error = api_errors::chain(&error);
                    tracing::debug!(definition = self.name, error, "Cannot watch the definition; a list has to tell");
                    return;
                }
            }
        }
    }

    /// Whether the kind is served, as soon as the watch shows that it is; `false` at the end of the watch.
    async fn watch(&self, reflector: &Reflector) -> Result<bool, Failure> {
        let mut events = std::pin::pin!(reflector.watch(None).await?);
        while let Some(event) = events.next().await {
            if let WatchEvent::Added(definition) | WatchEvent::Modified(definition) = event?
                && serves(definition.get(), &self.version)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Whether the API server serves this version of the defined kind. If the definition is unreadable, a list has to tell.
fn serves(definition: &str, version: &str) -> bool {
    let Ok(Stored { spec, status }) = serde_json::from_str(definition) else { return true };
    let is_established = |it: &Condition| it.type_ == "Established" && it.status == "True";
    spec.versions.iter().any(|it| it.name == version && it.served)
        && status.conditions.iter().flatten().any(is_established)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn definition_serves_a_version_once_it_is_established() {
        let definition = |conditions| {
            json!({
                "spec": {"versions": [{"name": "v1", "served": true}, {"name": "v1alpha1", "served": false}]},
                "status": {"conditions": conditions},
            })
        };
        let condition = |type_: &str, status: &str| json!([{"type": type_, "status": status}]);
        for (conditions, version, expected) in [
            (condition("Established", "True"), "v1", true),
            (condition("Established", "True"), "v1alpha1", false),
            (condition("Established", "True"), "v2", false),
            (condition("Established", "False"), "v1", false),
            (condition("NamesAccepted", "True"), "v1", false),
            (json!(null), "v1", false),
        ] {
            let definition = definition(conditions);
            assert_eq!(serves(&definition.to_string(), version), expected, "{version} of {definition}");
        }
        assert!(!serves(r#"{"spec": {"versions": [{"name": "v1", "served": true}]}}"#, "v1"), "without a status");
        assert!(serves(r#"{"spec": 1}"#, "v1"), "a list has to tell");
    }
}
