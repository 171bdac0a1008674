//! The labels that tie a custom resource to its children, and the selectors for its pods.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::{api::core::v1::TopologySpreadConstraint, apimachinery::pkg::apis::meta::v1::LabelSelector};
use kube::{Resource, ResourceExt, core::ObjectMeta};

use crate::normalize;

const NAME: &str = "app.kubernetes.io/name";
const INSTANCE: &str = "app.kubernetes.io/instance";
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// Identifies a custom resource in the labels of its children: by kind, in lower case, and by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct App {
    kind: String,
    instance: String,
}

impl App {
    /// Returns the app that `owner` describes.
    pub fn of<K: Resource<DynamicType = ()>>(owner: &K) -> Self {
        Self { kind: K::kind(&()).to_lowercase(), instance: owner.name_any() }
    }

    /// Labels of every child.
    pub fn labels(&self) -> BTreeMap<String, String> {
        let mut labels = self.selector();
        labels.insert(MANAGED_BY.to_owned(), format!("{}-operator", self.kind));
        labels
    }

    /// Labels that select the pods. They must never change: the selector of a Deployment is immutable.
    pub fn selector(&self) -> BTreeMap<String, String> {
        [(NAME, &self.kind), (INSTANCE, &self.instance)].map(|(key, value)| (key.to_owned(), value.clone())).into()
    }

    /// Returns the metadata of a child with this name.
    pub fn metadata(&self, name: String) -> ObjectMeta {
        ObjectMeta { name: Some(name), labels: Some(self.labels()), ..Default::default() }
    }

    /// Returns the metadata of the pod template. `labels` and `annotations` are the user's; our labels win.
    pub fn pod_metadata(
        &self,
        labels: &BTreeMap<String, String>,
        annotations: &BTreeMap<String, String>,
    ) -> ObjectMeta {
        let mut labels = labels.clone();
        labels.extend(self.labels());
        ObjectMeta { labels: Some(labels), annotations: normalize::map(annotations), ..Default::default() }
    }

    /// Normalizes spread constraints. Those without a selector count the app's pods.
    pub fn spread(&self, given: &[TopologySpreadConstraint]) -> Option<Vec<TopologySpreadConstraint>> {
        let mut constraints = normalize::list(given)?;
        for constraint in &mut constraints {
            constraint.label_selector.get_or_insert_with(|| self.label_selector());
        }
        Some(constraints)
    }

    /// [`Self::selector`] as a `LabelSelector`.
    pub fn label_selector(&self) -> LabelSelector {
        LabelSelector { match_labels: Some(self.selector()), match_expressions: None }
    }
}

/// Writes the selector in the syntax of `kubectl -l` and of the scale subresource, sorted by key.
impl fmt::Display for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{INSTANCE}={},{NAME}={}", self.instance, self.kind)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    #[test]
    fn app_has_three_labels_and_selects_by_two() {
        let metadata = ObjectMeta { name: Some("a-b".to_owned()), ..Default::default() };
        let app = App::of(&ConfigMap { metadata, ..Default::default() });
        assert_eq!(
            app.labels().into_iter().collect::<Vec<_>>(),
            [
                ("app.kubernetes.io/instance", "a-b"),
                ("app.kubernetes.io/managed-by", "configmap-operator"),
                ("app.kubernetes.io/name", "configmap"),
            ]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
        );
        assert_eq!(app.to_string(), "app.kubernetes.io/instance=a-b,app.kubernetes.io/name=configmap");
        assert_eq!(app.selector().len(), 2);
    }

    #[test]
    fn user_labels_never_replace_operator_labels() {
        let theirs = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let app = App { kind: "helloapp".to_owned(), instance: "a".to_owned() };
        let metadata = app.pod_metadata(&theirs(&[("team", "x"), (INSTANCE, "b")]), &theirs(&[("d", "e")]));
        let labels = metadata.labels.expect("labels");
        assert_eq!((labels.get("team"), labels.get(INSTANCE)), (Some(&"x".to_owned()), Some(&"a".to_owned())));
        assert_eq!(metadata.annotations, Some(theirs(&[("d", "e")])));
    }
}
