//! What was asked of an API server, from its audit log: the one witness that no client can talk to.

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

/// What a user asked for, once for each request: when it was answered, or when the answer began for one that may go on for
/// ever.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audited {
    /// Such as `patch`.
    pub verb: String,
    /// Empty for the core group.
    pub group: String,
    /// The plural; empty for what is no resource.
    pub resource: String,
    /// Such as `status`, or empty.
    pub subresource: String,
    /// Whether somebody without the right was turned away.
    pub is_forbidden: bool,
}

/// All requests of `user` that a cluster's [audit log](crate::Cluster::audit_log) tells of so far.
pub fn requests_of(user: &str, log: &Path) -> Result<Vec<Audited>> {
    let text = std::fs::read_to_string(log).with_context(|| format!("could not read {}", log.display()))?;
    Ok(read(user, &text))
}

fn read(user: &str, text: &str) -> Vec<Audited> {
    // The last line may be half written; it is then of a request that is not answered yet.
    let lines = text.lines().filter(|line| line.contains(user)).filter_map(|line| serde_json::from_str(line).ok());
    lines.filter(|line: &Line| line.user.username == user && line.is_counted()).map(Line::told).collect()
}

impl fmt::Display for Audited {
    /// `patch deployments`, `patch memcacheds/status`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slash = if self.subresource.is_empty() { "" } else { "/" };
        write!(f, "{} {}{slash}{}", self.verb, self.resource, self.subresource)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    stage: String,
    verb: String,
    user: User,
    #[serde(default)]
    object_ref: Object,
    #[serde(default)]
    annotations: Annotations,
}

#[derive(Deserialize)]
struct User {
    username: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Object {
    api_group: String,
    resource: String,
    subresource: String,
}

#[derive(Deserialize, Default)]
struct Annotations {
    #[serde(rename = "authorization.k8s.io/decision", default)]
    decision: String,
}

impl Line {
    fn is_counted(&self) -> bool {
        self.stage == if self.verb == "watch" { "ResponseStarted" } else { "ResponseComplete" } || self.is_forbidden()
    }

    fn is_forbidden(&self) -> bool {
        self.annotations.decision == "forbid"
    }

    fn told(self) -> Audited {
        let is_forbidden = self.is_forbidden();
        let Object { api_group, resource, subresource } = self.object_ref;
        Audited { verb: self.verb, group: api_group, resource, subresource, is_forbidden }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_request_of_the_user_counts_once() {
        let line = |user: &str, verb: &str, stage: &str, decision: &str| {
            let object = json!({"apiGroup": "apps", "resource": "deployments", "subresource": "status"});
            let annotations = json!({"authorization.k8s.io/decision": decision});
            let user = json!({"username": user});
            json!({"stage": stage, "verb": verb, "user": user, "objectRef": object, "annotations": annotations})
        };
        let lines = [
            line("ours", "get", "RequestReceived", ""),
            line("ours", "get", "ResponseComplete", "allow"),
            line("ours", "watch", "ResponseStarted", "allow"),
            line("ours", "watch", "ResponseComplete", "allow"),
            line("ours", "watch", "ResponseStarted", "allow"), // goes on
            line("ours", "delete", "ResponseComplete", "forbid"),
            line("not-ours", "patch", "ResponseComplete", "allow"),
            json!({"stage": "ResponseComplete", "verb": "get", "user": {"username": "ours"}}),
        ];
        let half = "{\"stage\": \"ours".to_owned();
        let text: Vec<String> = lines.iter().map(ToString::to_string).chain([half]).collect();
        let told: Vec<String> =
            read("ours", &text.join("\n")).iter().map(|it| format!("{it} {}", it.is_forbidden)).collect();
        let status = "deployments/status";
        assert_eq!(
            told,
            [
                format!("get {status} false"),
                format!("watch {status} false"),
                format!("watch {status} false"),
                format!("delete {status} true"),
                "get  false".to_owned()
            ]
        );
    }
}
