//! Counts an operator's requests to the API server, from the audit log.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use anyhow::Result;
use cluster::audit;
use k8s_openapi::api::rbac::v1::PolicyRule;

/// The reason why a run need not use `get` on a kind that an operator reconciles or owns.
pub const PAST_THE_CACHE: &str = "for a read where the cache is not sufficient, such as after a conflict";
/// The reason why a run need not use `delete` on a kind of children.
pub const FOR_ADOPTION: &str =
    "clusters that restrict owner references, such as OpenShift, require it of a client that adopts a child";

/// The requests of one user, counted by verb and resource: `patch deployments`, `patch memcacheds/status`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requests(BTreeMap<Sort, usize>);

/// The requests that one permission allows, or those of them that were refused.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Sort {
    /// Such as `patch deployments`, `dry-run patch deployments` or `patch deployments 403`.
    what: String,
    group: String,
}

impl Requests {
    /// All requests of `user` so far.
    pub(crate) fn of(user: &str, log: &Path) -> Result<Self> {
        let mut requests = Self::default();
        for request in audit::requests_of(user, log)? {
            let refused = if request.is_forbidden { " 403" } else { "" };
            let sort = Sort { what: format!("{request}{refused}"), group: request.group };
            *requests.0.entry(sort).or_default() += 1;
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
        let written = self.0.iter().filter(|(sort, _)| writes(&sort.what));
        written.flat_map(|(sort, count)| std::iter::repeat_n(sort.what.as_str(), *count)).collect()
    }

    /// The requests that were sent after `before` was counted.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let earlier = |sort: &Sort| before.0.get(sort).copied().unwrap_or_default();
        let more = self.0.iter().map(|(sort, count)| (sort.clone(), count.saturating_sub(earlier(sort))));
        Self(more.filter(|(_, count)| *count > 0).collect())
    }

    /// All requests except those of one sort.
    #[must_use]
    pub fn without(mut self, what: &str) -> Self {
        self.0.retain(|sort, _| sort.what != what);
        self
    }

    /// The number of requests of one sort.
    pub fn count(&self, what: &str) -> usize {
        self.0.iter().filter(|(sort, _)| sort.what == what).map(|(_, count)| count).sum()
    }

    /// The requests that RBAC refused.
    pub fn forbidden(&self) -> Vec<&str> {
        self.0.keys().map(|sort| sort.what.as_str()).filter(|what| what.ends_with(" 403")).collect()
    }

    /// The permissions of these rules that no request has used, such as `delete deployments.apps` or
    /// `patch tracks.examples.example.com/status`.
    pub fn unused(&self, rules: &[PolicyRule]) -> Vec<String> {
        let unused = allowed(rules).into_iter().filter(|(sort, _)| !self.0.contains_key(sort));
        unused.map(|(_, permission)| permission).collect()
    }

    /// What is wrong with the permissions of an operator, one sentence each: no request has used one that is not `rarely_used`, or
    /// one that is listed there is not granted. The list has permissions under the reason why a run need not use them.
    pub(crate) fn findings(&self, rules: &[PolicyRule], rarely_used: &[(&str, &[&str])]) -> Vec<String> {
        let listed: Vec<&str> = rarely_used.iter().flat_map(|(_, permissions)| *permissions).copied().collect();
        let is_explained = |unused: &str| {
            // The runtime sends events later than the writes that they report. No request is one for finalizers: clusters that
            // restrict `blockOwnerDeletion`, such as OpenShift, look for this permission when an owner is set.
            let is_of_the_runtime = unused.ends_with(" events.events.k8s.io") || unused.ends_with("/finalizers");
            // An operator that watches one namespace does not watch the definitions of its optional kinds.
            let is_of_definitions = unused == "watch customresourcedefinitions.apiextensions.k8s.io";
            is_of_the_runtime || is_of_definitions || listed.contains(&unused)
        };
        let mut findings = self.unused(rules);
        findings.retain(|unused| !is_explained(unused));
        for finding in &mut findings {
            finding.push_str(" is granted, but no request used it");
        }
        let granted: BTreeSet<String> = allowed(rules).into_iter().map(|(_, permission)| permission).collect();
        let stale = listed.into_iter().filter(|permission| !granted.contains(*permission));
        findings.extend(stale.map(|permission| format!("{permission} is listed, but not granted")));
        findings
    }
}

/// The permissions of these rules, and what the requests look like that each allows.
fn allowed(rules: &[PolicyRule]) -> Vec<(Sort, String)> {
    let mut allowed = Vec::new();
    for rule in rules {
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                for verb in &rule.verbs {
                    let sort = Sort { what: format!("{verb} {resource}"), group: group.clone() };
                    allowed.push((sort, audit::permission(verb, group, resource)));
                }
            }
        }
    }
    allowed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(requests: &[(&str, &str)]) -> Requests {
        let sort = |what: &str, group: &str| Sort { what: what.to_owned(), group: group.to_owned() };
        Requests(requests.iter().map(|(what, group)| (sort(what, group), 1)).collect())
    }

    fn rule(group: &str, resource: &str, verbs: &[&str]) -> PolicyRule {
        PolicyRule {
            api_groups: Some(vec![group.to_owned()]),
            resources: Some(vec![resource.to_owned()]),
            verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
            ..PolicyRule::default()
        }
    }

    #[test]
    fn permission_without_a_successful_request_is_unused() {
        let requests =
            sent(&[("get toys 403", ""), ("list toys", ""), ("patch toys/status", ""), ("dry-run create toys", "")]);
        let rules = [rule("", "toys", &["get", "list", "patch", "create"]), rule("", "toys/status", &["patch"])];
        assert_eq!(requests.unused(&rules), ["get toys", "patch toys", "create toys"]);
    }

    #[test]
    fn permission_is_used_by_requests_to_its_own_group() {
        let requests = sent(&[("patch toys/status", "new.example.com"), ("get toys", "")]);
        let rules =
            [rule("old.example.com", "toys/status", &["patch"]), rule("new.example.com", "toys/status", &["patch"])];
        assert_eq!(requests.unused(&rules), ["patch toys.old.example.com/status"]);
        assert_eq!((requests.count("patch toys/status"), requests.count("get toys")), (1, 1));
        assert_eq!(requests.without("patch toys/status"), sent(&[("get toys", "")]));
    }

    #[test]
    fn superfluous_permission_is_found_also_if_another_kind_need_not_use_the_same_verb() {
        let rules = [
            rule("apps", "sets", &["get", "list"]),
            rule("", "secrets", &["get"]),
            rule("example.com", "toys/finalizers", &["update"]),
            rule("events.k8s.io", "events", &["create", "patch"]),
            rule("apiextensions.k8s.io", "customresourcedefinitions", &["watch"]),
        ];
        let requests = sent(&[("list sets", "apps")]);
        let found = |listed: &[&str]| requests.findings(&rules, &[(PAST_THE_CACHE, listed)]);
        assert_eq!(found(&["get sets.apps", "get secrets"]), [""; 0]);
        assert_eq!(found(&["get sets.apps"]), ["get secrets is granted, but no request used it"]);
        let wrong_group = ["get sets.apps is granted, but no request used it", "get sets is listed, but not granted"];
        assert_eq!(found(&["get sets", "get secrets"]), wrong_group);
    }
}
