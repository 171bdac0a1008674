//! Reads the requests of a user from the audit log of an API server. Unlike a client's own record, this log contains every
//! request.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

/// One request of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audited {
    /// The verb, such as `patch`.
    pub verb: String,
    /// The API group; empty for the core group.
    pub group: String,
    /// The plural name of the resource; empty for paths that are not resources.
    pub resource: String,
    /// The subresource, such as `status`; may be empty.
    pub subresource: String,
    /// Whether the API server refused the request because of a missing permission.
    pub is_forbidden: bool,
    /// Whether the request is a dry run.
    pub is_dry_run: bool,
}

/// The text of a permission, such as `patch deployments.apps` or `update flighttickets.flights.com/finalizers`. `resource` may have
/// a subresource.
pub fn permission(verb: &str, group: &str, resource: &str) -> String {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let dot = if group.is_empty() { "" } else { "." };
    let slash = if subresource.is_empty() { "" } else { "/" };
    format!("{verb} {resource}{dot}{group}{slash}{subresource}")
}

/// A write request that has reached the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The name of the user.
    pub user: String,
    /// The object's namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// The plural name of the resource.
    pub resource: String,
    /// The object's name; may be empty when the object is created.
    pub name: String,
}

/// All writes of all users, in the order of their arrival. A dry run changes nothing, and a review only asks a question, so both
/// are left out. The log never rotates.
pub fn writes(log: &Path) -> Result<Vec<Write>> {
    let text = std::fs::read_to_string(log).with_context(|| format!("could not read {}", log.display()))?;
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok()); // the last may be incomplete
    Ok(lines.filter(Line::is_write).map(Line::written).collect())
}

/// All requests of `user` that have reached the API server, in the order of their arrival. They come from the cluster's
/// [audit log](crate::Cluster::audit_log). The API server logs a request before it handles it, so a client that observes the
/// effect of a request also finds the request in the log.
pub fn requests_of(user: &str, log: &Path) -> Result<Vec<Audited>> {
    let text = std::fs::read_to_string(log).with_context(|| format!("could not read {}", log.display()))?;
    Ok(read(user, &text))
}

/// The number of requests of `user` that arrived after the first `offset` bytes of the log, by the text of [`Audited`], such as
/// `patch memcacheds/status`. It needs no memory for the log, which may have gigabytes.
pub fn count_after(user: &str, log: &Path, offset: u64) -> Result<BTreeMap<String, usize>> {
    let failed = || format!("could not read {}", log.display());
    let mut file = File::open(log).with_context(failed)?;
    file.seek(SeekFrom::Start(offset)).with_context(failed)?;
    count(user, BufReader::new(file)).with_context(failed)
}

fn count(user: &str, log: impl BufRead) -> std::io::Result<BTreeMap<String, usize>> {
    let mut counts = BTreeMap::new();
    for line in log.split(b'\n') {
        let line = line?;
        // The offset may be inside of a line.
        let Some(text) = std::str::from_utf8(&line).ok().filter(|text| text.contains(user)) else { continue };
        let Ok(line) = serde_json::from_str::<Line>(text) else { continue };
        if line.user.username == user && line.stage == ARRIVED {
            *counts.entry(line.told().to_string()).or_default() += 1;
        }
    }
    Ok(counts)
}

fn read(user: &str, text: &str) -> Vec<Audited> {
    // The last line may be incomplete. If it is the first line of a request, the API server has not handled that request yet.
    let lines = text.lines().filter(|line| line.contains(user)).filter_map(|line| serde_json::from_str(line).ok());
    let (mut requests, mut known) = (Vec::<Audited>::new(), HashMap::new());
    for line in lines.filter(|line: &Line| line.user.username == user) {
        // Each stage of a request has a line, and only the later stages contain the result.
        if let Some(request) = known.get(&line.audit_id).and_then(|index: &usize| requests.get_mut(*index)) {
            request.is_forbidden |= line.is_forbidden();
        } else {
            known.insert(line.audit_id.clone(), requests.len());
            requests.push(line.told());
        }
    }
    requests
}

impl fmt::Display for Audited {
    /// Such as `patch deployments`, `patch memcacheds/status` or `dry-run patch deployments`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slash = if self.subresource.is_empty() { "" } else { "/" };
        let dry_run = if self.is_dry_run { "dry-run " } else { "" };
        write!(f, "{dry_run}{} {}{slash}{}", self.verb, self.resource, self.subresource)
    }
}

/// The stage of the first line of each request.
const ARRIVED: &str = "RequestReceived";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    #[serde(default)]
    stage: String,
    #[serde(rename = "auditID")]
    audit_id: String,
    verb: String,
    #[serde(default, rename = "requestURI")]
    uri: String,
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
    namespace: String,
    name: String,
}

#[derive(Deserialize, Default)]
struct Annotations {
    #[serde(rename = "authorization.k8s.io/decision", default)]
    decision: String,
}

impl Line {
    fn is_forbidden(&self) -> bool {
        self.annotations.decision == "forbid"
    }

    fn is_dry_run(&self) -> bool {
        self.uri.contains("dryRun=All")
    }

    /// Whether this is the first line of a request that changes an object.
    fn is_write(&self) -> bool {
        let is_write = ["create", "update", "patch", "delete"].contains(&self.verb.as_str());
        is_write && self.stage == ARRIVED && !self.is_dry_run() && !self.object_ref.resource.ends_with("reviews")
    }

    fn written(self) -> Write {
        let Object { resource, namespace, name, .. } = self.object_ref;
        Write { user: self.user.username, namespace, resource, name }
    }

    fn told(self) -> Audited {
        let (is_forbidden, is_dry_run) = (self.is_forbidden(), self.is_dry_run());
        let Object { api_group, resource, subresource, .. } = self.object_ref;
        Audited { verb: self.verb, group: api_group, resource, subresource, is_forbidden, is_dry_run }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(id: u32, user: &str, verb: &str, stage: &str, decision: &str) -> String {
        let object = json!({"apiGroup": "apps", "resource": "deployments", "subresource": "status"});
        let annotations = json!({"authorization.k8s.io/decision": decision});
        let (id, user) = (id.to_string(), json!({"username": user}));
        json!({
            "auditID": id, "stage": stage, "verb": verb, "user": user, "objectRef": object, "annotations": annotations,
        })
        .to_string()
    }

    #[test]
    fn each_request_of_the_user_counts_once() {
        let lines = [
            line(1, "ours", "get", "RequestReceived", ""),
            line(2, "ours", "delete", "RequestReceived", ""),
            line(1, "ours", "get", "ResponseComplete", "allow"),
            line(3, "ours", "watch", "ResponseStarted", "allow"),
            line(3, "ours", "watch", "ResponseComplete", "allow"),
            line(4, "ours", "watch", "ResponseStarted", "allow"), // goes on
            line(2, "ours", "delete", "ResponseComplete", "forbid"),
            line(5, "not-ours", "patch", "ResponseComplete", "allow"),
            json!({"auditID": "6", "stage": "ResponseComplete", "verb": "get", "user": {"username": "ours"}})
                .to_string(),
            json!({"auditID": "7", "stage": "ResponseComplete", "verb": "patch", "requestURI": "/a?force=true&dryRun=All",
                "user": {"username": "ours"}})
            .to_string(),
            "{\"auditID\": \"ours".to_owned(),
        ];
        let told: Vec<String> =
            read("ours", &lines.join("\n")).iter().map(|it| format!("{it} {}", it.is_forbidden)).collect();
        let status = "deployments/status";
        assert_eq!(
            told,
            [
                format!("get {status} false"),
                format!("delete {status} true"),
                format!("watch {status} false"),
                format!("watch {status} false"),
                "get  false".to_owned(),
                "dry-run patch  false".to_owned(),
            ]
        );
    }

    #[test]
    fn writes_are_requests_that_change_an_object_in_the_order_of_arrival() {
        let line = |verb: &str, uri: &str, stage: &str, resource: &str| {
            let object = json!({"resource": resource, "namespace": "default", "name": format!("{verb}-{resource}")});
            let user = json!({"username": "ours"});
            json!({"auditID": "1", "stage": stage, "verb": verb, "requestURI": uri, "user": user, "objectRef": object})
                .to_string()
        };
        let lines = [
            line("patch", "/a?force=true", ARRIVED, "leases"),
            line("patch", "/a?force=true", "ResponseComplete", "leases"),
            line("get", "/a", ARRIVED, "pods"),
            line("patch", "/a?dryRun=All", ARRIVED, "pods"),
            line("create", "/a", ARRIVED, "subjectaccessreviews"),
            line("delete", "/a", ARRIVED, "pods"),
            "{\"auditID\": \"1".to_owned(),
        ];
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("audit.log");
        std::fs::write(&log, lines.join("\n")).unwrap();
        let written = |resource: &str, name: &str| {
            let [user, namespace, resource, name] = ["ours", "default", resource, name].map(str::to_owned);
            Write { user, namespace, resource, name }
        };
        assert_eq!(writes(&log).unwrap(), [written("leases", "patch-leases"), written("pods", "delete-pods")]);
    }

    /// The API server writes the last line of a request after the answer. Clients can observe the effect before that line exists.
    #[test]
    fn request_without_completion_entry_is_counted() {
        let lines = [
            line(1, "ours", "patch", "RequestReceived", ""),
            line(1, "ours", "patch", "ResponseComplete", "allow"),
            line(2, "ours", "patch", "RequestReceived", ""),
        ];
        assert_eq!(read("ours", &lines.join("\n")).len(), 2);
    }

    #[test]
    fn only_requests_that_arrived_after_the_offset_are_counted() {
        let before = [line(1, "ours", "get", ARRIVED, ""), line(2, "ours", "watch", ARRIVED, "")].join("\n") + "\n";
        let after = [
            line(2, "ours", "watch", "ResponseComplete", "allow"), // of a request from before
            line(3, "ours", "get", ARRIVED, ""),
            line(3, "ours", "get", "ResponseComplete", "allow"),
            line(4, "not-ours", "get", ARRIVED, ""),
            line(5, "ours", "get", ARRIVED, ""),
            "{\"auditID\": \"ours".to_owned(),
        ];
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("audit.log");
        std::fs::write(&log, before.clone() + &after.join("\n")).unwrap();
        let counts = |offset: usize| {
            let counts = count_after("ours", &log, u64::try_from(offset).unwrap()).unwrap();
            counts.into_iter().map(|(what, count)| format!("{count} {what}")).collect::<Vec<_>>()
        };
        assert_eq!(counts(0), ["3 get deployments/status", "1 watch deployments/status"]);
        assert_eq!(counts(before.len()), ["2 get deployments/status"]);
        assert_eq!(counts(before.len() - 5), ["2 get deployments/status"]); // the rest of a line is no request
    }
}
