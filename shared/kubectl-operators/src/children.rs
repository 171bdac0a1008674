//! The children of an object, and their children, as a tree.

use std::{collections::BTreeSet, fmt::Write as _};

use futures::{StreamExt, stream};
use jiff::Timestamp;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, ListParams},
    core::ObjectMeta,
};
use serde_json::Value;

use crate::{Session, kinds::Kind, text::one_line};

/// The kinds of children that are looked for: group, version, kind, plural. Kinds that the cluster does not have are left out.
const KINDS: &[(&str, &str, &str, &str)] = &[
    ("apps", "v1", "Deployment", "deployments"),
    ("apps", "v1", "ReplicaSet", "replicasets"),
    ("apps", "v1", "StatefulSet", "statefulsets"),
    ("batch", "v1", "Job", "jobs"),
    ("", "v1", "Pod", "pods"),
    ("", "v1", "Service", "services"),
    ("", "v1", "ConfigMap", "configmaps"),
    ("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
    ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    ("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies"),
    ("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers"),
    ("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors"),
];
/// Secrets are not listed: the plugin reads the metadata of those that the pods use or that an operator may have made for the
/// object, and never what they hold.
const SECRET: (&str, &str, &str, &str) = ("", "v1", "Secret", "secrets");
/// How the names of Secrets end that an operator makes for an object, after the name of the object. No pod uses the one with the
/// key of an authority.
const MADE: [&str; 3] = ["-auth", "-ca", "-tls"];
const AT_ONCE: usize = 4;
/// The longest value of a label.
const LONGEST_LABEL: usize = 63;

/// A child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Child {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) state: String,
    pub(crate) created: Option<Timestamp>,
    uid: String,
    owners: Vec<String>,
}

/// The children of an object, direct or not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Children {
    all: Vec<Child>,
    /// The kinds that the user may not list, or of Secrets, not read.
    pub(crate) forbidden: Vec<String>,
}

/// Lists what the runtime has labelled as belonging to the object, and reads the metadata of its Secrets.
pub(crate) async fn of(session: &Session, kind: &Kind, object: &DynamicObject) -> Children {
    let name = object.metadata.name.clone().unwrap_or_default();
    let selector =
        format!("app.kubernetes.io/instance={name},app.kubernetes.io/name={}", kind.resource.kind.to_lowercase());
    let parameters = ListParams::default().labels(&selector);
    let lists = stream::iter(KINDS).map(async |kind| (kind.2, api(session, object, *kind).list(&parameters).await));
    let (mut children, mut used) = (Children::default(), BTreeSet::new());
    if name.len() > LONGEST_LABEL {
        return children; // no label can name the object, so it has no children
    }
    for (kind, result) in lists.buffered(AT_ONCE).collect::<Vec<_>>().await {
        match result {
            Ok(list) => {
                children.all.extend(list.items.iter().map(|item| child(kind, &item.metadata, &item.data)));
                used.extend(list.items.iter().flat_map(|item| secrets(&item.data)));
            }
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(_) => children.forbidden.push(kind.to_owned()),
        }
    }
    let secrets = api(session, object, SECRET);
    let names: BTreeSet<String> = MADE.map(|end| format!("{name}{end}")).into_iter().chain(used.clone()).collect();
    let found = stream::iter(names).map(async |name| (secrets.get_metadata_opt(&name).await, name)).buffered(AT_ONCE);
    for (result, name) in found.collect::<Vec<_>>().await {
        match result {
            Ok(found) => children.all.extend(found.map(|it| child(SECRET.2, &it.metadata, &Value::Null))),
            // Whether there is one that no pod uses is unknown.
            Err(_) if used.contains(&name) => children.forbidden.push(SECRET.2.to_owned()),
            Err(_) => {}
        }
    }
    children.forbidden.dedup();
    children
}

/// The API for this kind in the namespace of the object.
fn api(
    session: &Session,
    object: &DynamicObject,
    (group, version, kind, plural): (&str, &str, &str, &str),
) -> Api<DynamicObject> {
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let resource = ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version,
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    };
    match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(session.client.clone(), namespace, &resource),
        None => Api::all_with(session.client.clone(), &resource),
    }
}

/// The names of the Secrets that a pod or the pods of a template mount, or get as environment variables.
fn secrets(data: &Value) -> BTreeSet<String> {
    let pod = data.pointer("/spec/template/spec").unwrap_or(&data["spec"]);
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut names = Vec::new();
    for volume in list(&pod["volumes"]) {
        names.push(volume["secret"]["secretName"].clone());
        names.extend(list(&volume["projected"]["sources"]).iter().map(|it| it["secret"]["name"].clone()));
    }
    for container in ["initContainers", "containers"].into_iter().flat_map(|field| list(&pod[field])) {
        names.extend(list(&container["env"]).iter().map(|it| it["valueFrom"]["secretKeyRef"]["name"].clone()));
        names.extend(list(&container["envFrom"]).iter().map(|it| it["secretRef"]["name"].clone()));
    }
    names.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn child(kind: &str, metadata: &ObjectMeta, data: &Value) -> Child {
    Child {
        kind: kind.to_owned(),
        name: metadata.name.clone().unwrap_or_default(),
        state: match metadata.deletion_timestamp {
            Some(_) => "being deleted".to_owned(),
            None => state(kind, data),
        },
        created: metadata.creation_timestamp.as_ref().map(|time| time.0),
        uid: metadata.uid.clone().unwrap_or_default(),
        owners: metadata.owner_references.iter().flatten().map(|owner| owner.uid.clone()).collect(),
    }
}

/// The state of a child in a few words.
fn state(kind: &str, data: &Value) -> String {
    let number = |pointer: &str| data.pointer(pointer).and_then(Value::as_i64);
    let text = |pointer: &str| data.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    match kind {
        "Deployment" | "ReplicaSet" | "StatefulSet" => {
            let (ready, wanted) = (number("/status/readyReplicas").unwrap_or(0), number("/spec/replicas").unwrap_or(1));
            format!("{ready}/{wanted} ready")
        }
        "Job" => {
            let conditions = data.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
            let mut ended = conditions.filter(|it| it["status"] == "True").filter_map(|it| it["type"].as_str());
            match ended.find(|it| ["Complete", "Failed", "Suspended"].contains(it)) {
                Some(end) => end.to_owned(),
                None => format!("{} active", number("/status/active").unwrap_or(0)),
            }
        }
        "Pod" => pod(data),
        "Service" => {
            let address = text("/spec/clusterIP");
            if address == "None" { "headless".to_owned() } else { format!("{} {address}", text("/spec/type")) }
        }
        "PersistentVolumeClaim" => text("/status/phase"),
        "PodDisruptionBudget" => {
            format!("{} disruptions allowed", number("/status/disruptionsAllowed").unwrap_or(0))
        }
        _ => String::new(),
    }
}

/// Why a container waits, or else the phase of the pod and whether it is ready.
fn pod(data: &Value) -> String {
    let list = |pointer: &str| data.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
    let containers = || list("/status/initContainerStatuses").chain(list("/status/containerStatuses"));
    // An init container that has done its work says `Completed`.
    let reason = |state: &str| {
        containers().filter_map(|it| it["state"][state]["reason"].as_str()).find(|reason| *reason != "Completed")
    };
    let phase = data.pointer("/status/phase").and_then(Value::as_str).unwrap_or("Unknown");
    let is_ready = list("/status/conditions").any(|it| it["type"] == "Ready" && it["status"] == "True");
    let mut state = match reason("waiting").or_else(|| reason("terminated")) {
        Some(reason) => reason.to_owned(),
        None if phase == "Running" && !is_ready => "Running, not ready".to_owned(),
        None => phase.to_owned(),
    };
    let restarts: i64 = containers().filter_map(|it| it["restartCount"].as_i64()).sum();
    if restarts > 0 {
        let _ = write!(state, ", {restarts} restart{}", if restarts == 1 { "" } else { "s" });
    }
    state
}

impl Children {
    #[cfg(test)]
    pub(crate) fn from_objects(objects: &[(&str, DynamicObject)]) -> Self {
        let all = objects.iter().map(|(kind, object)| child(kind, &object.metadata, &object.data)).collect();
        Self { all, forbidden: Vec::new() }
    }

    /// The children in the order of the tree, each with its depth, beginning with 1.
    pub(crate) fn in_order(&self, root: &str) -> Vec<(usize, &Child)> {
        let mut ordered = Vec::new();
        self.below(root, 1, &mut ordered);
        ordered
    }

    fn below<'a>(&'a self, owner: &str, depth: usize, ordered: &mut Vec<(usize, &'a Child)>) {
        // Owners in the cluster could form a cycle.
        let known = |child: &Child, ordered: &[(usize, &Child)]| ordered.iter().any(|(_, it)| it.uid == child.uid);
        for child in self.all.iter().filter(|child| child.owners.iter().any(|it| it == owner)) {
            if !known(child, ordered) {
                ordered.push((depth, child));
                self.below(&child.uid, depth + 1, ordered);
            }
        }
    }

    /// The tree as text, below the name of its root.
    pub(crate) fn tree(&self, root_name: &str, root_uid: &str) -> String {
        let ordered = self.in_order(root_uid);
        let label = |child: &Child| one_line(&format!("{}/{}", child.kind, child.name));
        let width = ordered.iter().map(|(depth, child)| 3 * depth + label(child).chars().count()).max().unwrap_or(0);
        let mut text = format!("{}\n", one_line(root_name));
        for (index, (depth, child)) in ordered.iter().enumerate() {
            let mut line = String::new();
            for level in 1..=*depth {
                let more = ordered[index + 1..].iter().take_while(|(later, _)| *later >= level);
                let continues = more.into_iter().any(|(later, _)| *later == level);
                line.push_str(match (level == *depth, continues) {
                    (true, true) => "├─ ",
                    (true, false) => "└─ ",
                    (false, true) => "│  ",
                    (false, false) => "   ",
                });
            }
            line.push_str(&label(child));
            let gap = width.saturating_sub(line.chars().count()) + 3;
            let _ = writeln!(text, "{}", format!("{line}{}{}", " ".repeat(gap), one_line(&child.state)).trim_end());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pod_shows_what_is_wrong_with_any_of_its_containers() {
        let done = json!({"state": {"terminated": {"reason": "Completed"}}});
        let state = |state: Value| {
            let containers = json!([{"restartCount": 0, "state": state}]);
            pod(
                &json!({"status": {"phase": "Running", "initContainerStatuses": [done], "containerStatuses": containers}}),
            )
        };
        assert_eq!(state(json!({"terminated": {"reason": "OOMKilled"}})), "OOMKilled");
        assert_eq!(state(json!({"waiting": {"reason": "CrashLoopBackOff"}})), "CrashLoopBackOff");
        assert_eq!(state(json!({"running": {}})), "Running, not ready");
    }
}
