//! Counts an operator's requests to the API server, from the audit log.

use std::{collections::BTreeMap, path::Path};

use anyhow::Result;
use cluster::audit;

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
}
