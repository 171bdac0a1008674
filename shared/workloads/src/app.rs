//! The labels that tie a custom resource to its children, and the selectors that find its pods.

use std::{collections::BTreeMap, fmt};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{Resource, ResourceExt, core::ObjectMeta};

use crate::given;

const NAME: &str = "app.kubernetes.io/name";
const INSTANCE: &str = "app.kubernetes.io/instance";
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// One custom resource as its children know it: by kind and by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct App {
    kind: String,
    instance: String,
}

impl App {
    /// The app that `owner` describes.
    pub fn of<K: Resource<DynamicType = ()>>(owner: &K) -> Self {
        Self { kind: K::kind(&()).to_lowercase(), instance: owner.name_any() }
    }

    /// What every child carries.
    pub fn labels(&self) -> BTreeMap<String, String> {
        let mut labels = self.selector();
        labels.insert(MANAGED_BY.to_owned(), format!("{}-operator", self.kind));
        labels
    }

    /// What finds the pods. It must stay as it is for ever, since selectors cannot be changed.
    pub fn selector(&self) -> BTreeMap<String, String> {
        [(NAME, &self.kind), (INSTANCE, &self.instance)].map(|(key, value)| (key.to_owned(), value.clone())).into()
    }

    /// The metadata of a child with this name.
    pub fn metadata(&self, name: String) -> ObjectMeta {
        ObjectMeta { name: Some(name), labels: Some(self.labels()), ..Default::default() }
    }

    /// The metadata of the pods: `labels` and `annotations` are the user's, and ours win.
    pub fn pod_metadata(
        &self,
        labels: &BTreeMap<String, String>,
        annotations: &BTreeMap<String, String>,
    ) -> ObjectMeta {
        let mut labels = labels.clone();
        labels.extend(self.labels());
        ObjectMeta { labels: Some(labels), annotations: given::map(annotations), ..Default::default() }
    }

    /// [`Self::selector`], for the fields that want it wrapped.
    pub fn label_selector(&self) -> LabelSelector {
        LabelSelector { match_labels: Some(self.selector()), match_expressions: None }
    }
}

/// The selector as `kubectl -l` and the scale subresource take it, sorted by key.
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
    fn three_labels_of_which_two_select() {
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
    fn a_users_labels_never_replace_ours() {
        let theirs = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let app = App { kind: "helloapp".to_owned(), instance: "a".to_owned() };
        let metadata = app.pod_metadata(&theirs(&[("team", "x"), (INSTANCE, "b")]), &theirs(&[("d", "e")]));
        let labels = metadata.labels.expect("labels");
        assert_eq!((labels.get("team"), labels.get(INSTANCE)), (Some(&"x".to_owned()), Some(&"a".to_owned())));
        assert_eq!(metadata.annotations, Some(theirs(&[("d", "e")])));
    }
}
