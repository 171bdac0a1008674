//! The permissions that controllers need, derived from their declarations, so that they cannot drift from the code.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::Resource;

/// The verbs that a controller needs on one resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permission {
    group: String,
    resource: String,
    verbs: BTreeSet<&'static str>,
}

impl Permission {
    /// These verbs, such as `patch`, on the objects of a kind.
    pub fn on<K: Resource<DynamicType = ()>>(verbs: &[&'static str]) -> Self {
        Self {
            group: K::group(&()).into_owned(),
            resource: K::plural(&()).into_owned(),
            verbs: verbs.iter().copied().collect(),
        }
    }

    /// The same verbs on a subresource of the kind instead, such as `eviction`.
    pub fn subresource(mut self, name: &str) -> Self {
        self.resource = format!("{}/{name}", self.resource);
        self
    }

    /// The rule for events, which the runtime writes for every operator.
    pub(crate) fn events() -> Self {
        Self { group: "events.k8s.io".to_owned(), resource: "events".to_owned(), verbs: ["create", "patch"].into() }
    }
}

/// Returns one rule for each resource, in a stable order, without wildcards.
pub(crate) fn policy_rules(rules: impl IntoIterator<Item = Permission>) -> Vec<PolicyRule> {
    let mut united: BTreeMap<(String, String), BTreeSet<&'static str>> = BTreeMap::new();
    for rule in rules {
        united.entry((rule.group, rule.resource)).or_default().extend(rule.verbs);
    }
    united
        .into_iter()
        .map(|((group, resource), verbs)| PolicyRule {
            api_groups: Some(vec![group]),
            resources: Some(vec![resource]),
            verbs: verbs.into_iter().map(str::to_owned).collect(),
            ..PolicyRule::default()
        })
        .collect()
}
