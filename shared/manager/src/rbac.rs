//! The permissions that controllers need, derived from their declarations, so that they cannot drift from the code.

use std::collections::{BTreeMap, BTreeSet};

use cache::resource_name;
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::Resource;

/// The verbs that a controller needs on one resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permission {
    group: String,
    resource: String,
    /// The name of the only object; `None` for all objects.
    name: Option<String>,
    verbs: BTreeSet<&'static str>,
}

impl Permission {
    /// These verbs, such as `patch`, on the objects of a kind.
    pub fn on<K: Resource<DynamicType = ()>>(verbs: &[&'static str]) -> Self {
        Self {
            group: K::group(&()).into_owned(),
            resource: K::plural(&()).into_owned(),
            name: None,
            verbs: verbs.iter().copied().collect(),
        }
    }

    /// The same verbs on a subresource of the kind instead, such as `scale`.
    pub fn subresource(mut self, name: &str) -> Self {
        self.resource = format!("{}/{name}", self.resource);
        self
    }

    /// The rule for events, which the runtime writes for every operator.
    pub(crate) fn events() -> Self {
        let (group, resource) = ("events.k8s.io".to_owned(), "events".to_owned());
        Self { group, resource, name: None, verbs: ["create", "patch"].into() }
    }

    /// The watch of the definition of a kind, by which the cache notices that the kind is installed.
    pub(crate) fn watch_of_definition<K: Resource<DynamicType = ()>>() -> Self {
        Self {
            group: "apiextensions.k8s.io".to_owned(),
            resource: "customresourcedefinitions".to_owned(),
            name: Some(resource_name::<K>()),
            verbs: ["watch"].into(),
        }
    }
}

/// Returns one rule for each resource, or for each object that is named, in a stable order, without wildcards.
pub(crate) fn policy_rules(rules: impl IntoIterator<Item = Permission>) -> Vec<PolicyRule> {
    let mut united: BTreeMap<(String, String, Option<String>), BTreeSet<&'static str>> = BTreeMap::new();
    for rule in rules {
        united.entry((rule.group, rule.resource, rule.name)).or_default().extend(rule.verbs);
    }
    united
        .into_iter()
        .map(|((group, resource, name), verbs)| PolicyRule {
            api_groups: Some(vec![group]),
            resources: Some(vec![resource]),
            resource_names: name.map(|name| vec![name]),
            verbs: verbs.into_iter().map(str::to_owned).collect(),
            ..PolicyRule::default()
        })
        .collect()
}
