//! What the operators have written, by the API server's audit log.

use serde_json::Value;

use crate::kit::World;

/// A write request that has reached the API server.
#[derive(Debug)]
pub(crate) struct Write {
    /// The `ServiceAccount` of the client, `NAMESPACE:NAME`.
    pub(crate) account: String,
    /// The object's namespace; empty for cluster-scoped objects.
    pub(crate) namespace: String,
    pub(crate) resource: String,
    /// May be empty when the object is created.
    pub(crate) name: String,
}

/// All writes of service accounts, in the order of their arrival. The log never rotates.
pub(crate) fn writes(world: &World) -> Vec<Write> {
    let log = std::fs::read_to_string(world.cluster.audit_log()).unwrap();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()); // the last may be incomplete
    lines.filter_map(|line| write_of(&line)).collect()
}

/// Each request has one line of the stage `RequestReceived`. A dry run changes nothing, and a review only asks a question.
fn write_of(line: &Value) -> Option<Write> {
    let account = line["user"]["username"].as_str()?.strip_prefix("system:serviceaccount:")?;
    let object = &line["objectRef"];
    let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
    let is_write = ["create", "update", "patch", "delete"].contains(&line["verb"].as_str()?);
    let is_dry_run = line["requestURI"].as_str()?.contains("dryRun=All");
    let is_counted =
        is_write && !is_dry_run && line["stage"] == "RequestReceived" && !text("resource").ends_with("reviews");
    is_counted.then(|| Write {
        account: account.to_owned(),
        namespace: text("namespace"),
        resource: text("resource"),
        name: text("name"),
    })
}
