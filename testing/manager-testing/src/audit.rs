//! Counts an operator's requests to the API server, from the audit log.

use std::{collections::BTreeMap, path::Path};

use anyhow::Result;
use cluster::audit;
use k8s_openapi::api::rbac::v1::PolicyRule;

/// The requests of one user, counted by verb and resource: `patch deployments`, `patch memcacheds/status`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requests(BTreeMap<String, usize>);

impl Requests {
    /// All requests of `user` so far.
    pub(crate) fn of(user: &str, log: &Path) -> Result<Self> {
        let mut requests = Self::default();
        for request in audit::requests_of(user, log)? {
            let refused = if request.is_forbidden { " 403" } else { "" };
            *requests.0.entry(format!("{request}{refused}")).or_default() += 1;
        }
        Ok(requests)
    }

    /// The number of writes, without events and dry runs.
    pub fn writes(&self) -> usize {
        self.written().len()
    }

    /// The writes, without events and dry runs: sorted, and each as often as it was sent.
    pub fn written(&self) -> Vec<&str> {
        let writes = |what: &str| {
            ["create ", "update ", "patch ", "delete "].iter().any(|verb| what.starts_with(verb))
                && !what.contains(" events")
        };
        let written = self.0.iter().filter(|(what, _)| writes(what));
        written.flat_map(|(what, count)| std::iter::repeat_n(what.as_str(), *count)).collect()
    }

    /// The requests that were sent after `before` was counted.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let more = self.0.iter().map(|(what, count)| (what.clone(), count.saturating_sub(before.count(what))));
        Self(more.filter(|(_, count)| *count > 0).collect())
    }

    /// All requests except those of one sort.
    #[must_use]
    pub fn without(mut self, what: &str) -> Self {
        self.0.remove(what);
        self
    }

    /// The number of requests of one sort.
    pub fn count(&self, what: &str) -> usize {
        self.0.get(what).copied().unwrap_or_default()
    }

    /// The requests that RBAC refused.
    pub fn forbidden(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).filter(|what| what.ends_with(" 403")).collect()
    }

    /// The permissions of these rules that no request has used, such as `delete deployments` or `patch memcacheds/status`.
    /// Resources with the same name in several groups count as one.
    pub fn unused(&self, rules: &[PolicyRule]) -> Vec<String> {
        let permissions = rules.iter().flat_map(|rule| {
            let resources = rule.resources.iter().flatten();
            resources.flat_map(|resource| rule.verbs.iter().map(move |verb| format!("{verb} {resource}")))
        });
        permissions.filter(|what| self.count(what) == 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permission_without_a_successful_request_is_unused() {
        let sent = ["get toys 403", "list toys", "patch toys/status", "dry-run create toys"];
        let requests = Requests(sent.into_iter().map(|what| (what.to_owned(), 1)).collect());
        let rule = |resource: &str, verbs: &[&str]| PolicyRule {
            resources: Some(vec![resource.to_owned()]),
            verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
            ..PolicyRule::default()
        };
        let rules = [rule("toys", &["get", "list", "patch", "create"]), rule("toys/status", &["patch"])];
        assert_eq!(requests.unused(&rules), ["get toys", "patch toys", "create toys"]);
    }
}
