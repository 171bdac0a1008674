//! What a user has asked of the API server, from its audit log: the one witness that no client can talk to.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result};
use serde::Deserialize;

/// The requests of one user, counted by what they were: `patch deployments`, `patch memcacheds/status`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requests(BTreeMap<String, usize>);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    stage: String,
    verb: String,
    user: User,
    object_ref: Option<Object>,
    response_status: Option<Response>,
}

#[derive(Deserialize)]
struct User {
    username: String,
}

#[derive(Deserialize)]
struct Object {
    #[serde(default)]
    resource: String,
    #[serde(default)]
    subresource: String,
}

#[derive(Deserialize)]
struct Response {
    #[serde(default)]
    code: u16,
}

impl Requests {
    /// All requests of `user` so far.
    pub(crate) fn of(user: &str, log: &Path) -> Result<Self> {
        let text = fs::read_to_string(log).with_context(|| format!("could not read {}", log.display()))?;
        let mut requests = Self::default();
        // The last line may be half written; it is then of a request that is not answered yet.
        for line in text.lines().filter(|line| line.contains(user)) {
            let Ok(line) = serde_json::from_str::<Line>(line) else { continue };
            if line.user.username == user && line.stage == "ResponseComplete" {
                *requests.0.entry(line.describe()).or_default() += 1;
            }
        }
        Ok(requests)
    }

    /// Those that change something, events aside.
    pub fn writes(&self) -> usize {
        let writes = |what: &&String| {
            ["create ", "update ", "patch ", "delete "].iter().any(|verb| what.starts_with(verb))
                && !what.contains(" events")
        };
        self.0.iter().filter(|(what, _)| writes(what)).map(|(_, count)| count).sum()
    }

    /// How many there were of one sort.
    pub fn count(&self, what: &str) -> usize {
        self.0.get(what).copied().unwrap_or_default()
    }

    /// Those that RBAC refused.
    pub fn forbidden(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).filter(|what| what.ends_with(" 403")).collect()
    }
}

impl Line {
    fn describe(&self) -> String {
        let object = self.object_ref.as_ref();
        let resource = object.map_or("", |object| &object.resource);
        let mut text = format!("{} {resource}", self.verb);
        if let Some(object) = object.filter(|object| !object.subresource.is_empty()) {
            text = format!("{text}/{}", object.subresource);
        }
        if self.response_status.as_ref().is_some_and(|response| response.code == 403) {
            text.push_str(" 403");
        }
        text
    }
}
