//! Compares the permissions that the chart grants with the requests of the operators in the API server's audit log.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::Path,
};

use anyhow::Result;
use chart::rendered::Rendered;
use cluster::audit::{self, Audited};
use serde_json::Value;

/// One permission, such as `patch deployments.apps` or `update flighttickets.flights.com/finalizers`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    group: String,
    resource: String,
    verb: String,
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&audit::permission(&self.verb, &self.group, &self.resource))
    }
}

/// The permissions of a user beside the user's requests.
#[derive(Debug, Default)]
pub struct Comparison {
    /// The granted permissions, with the number of requests that used each.
    pub granted: BTreeMap<Permission, usize>,
    /// The permissions that refused requests lacked.
    pub refused: BTreeSet<Permission>,
    /// The permissions of requests that succeeded although no rule of the chart allows them. Another binding must allow them.
    pub outside: BTreeSet<Permission>,
}

/// Compares the rules that a render binds to the service account with the account's requests in the log. Ignores what every
/// authenticated user may do (discovery).
pub fn compare(rendered: &Rendered, account: &str, log: &Path) -> Result<Comparison> {
    let user = format!("system:serviceaccount:{}:{account}", chart::NAMESPACE);
    Ok(compare_requests(granted(rendered, account), &audit::requests_of(&user, log)?))
}

fn compare_requests(granted: BTreeSet<Permission>, requests: &[Audited]) -> Comparison {
    let mut comparison = Comparison { granted: granted.into_iter().map(|it| (it, 0)).collect(), ..Default::default() };
    for request in requests.iter().filter(|request| !request.resource.is_empty()) {
        let permission = permission(request);
        if request.is_forbidden {
            // A starting API server refuses permitted requests for a moment.
            if !comparison.granted.contains_key(&permission) {
                comparison.refused.insert(permission);
            }
        } else if let Some(count) = comparison.granted.get_mut(&permission) {
            *count += 1;
        } else {
            comparison.outside.insert(permission);
        }
    }
    comparison
}

/// All permissions of the roles that the render binds to the account.
fn granted(rendered: &Rendered, account: &str) -> BTreeSet<Permission> {
    let bindings = rendered.of("ClusterRoleBinding").chain(rendered.of("RoleBinding"));
    let ours = bindings.filter(|binding| each(&binding["subjects"]).any(|subject| subject["name"] == account));
    let roles = ours.filter_map(|binding| {
        let role = &binding["roleRef"];
        rendered.object(role["kind"].as_str()?, role["name"].as_str()?)
    });
    roles.flat_map(|role| each(&role["rules"])).flat_map(of_rule).collect()
}

fn of_rule(rule: &Value) -> Vec<Permission> {
    let texts = |key: &str| each(&rule[key]).filter_map(Value::as_str).map(ToOwned::to_owned).collect::<Vec<_>>();
    let mut permissions = Vec::new();
    for group in texts("apiGroups") {
        for resource in texts("resources") {
            for verb in texts("verbs") {
                permissions.push(Permission { group: group.clone(), resource: resource.clone(), verb });
            }
        }
    }
    permissions
}

fn each(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

const PAST_THE_CACHE: &str = "for a read where the cache is not sufficient, such as after a conflict";

/// The permissions that not every run of the suite uses, and the reason why they are granted. Each has its exact name, so that a
/// superfluous one of the same verb is found. A `*` matches any text.
const RARELY_USED: &[(&str, &str)] = &[
    (
        "* servicemonitors.monitoring.coreos.com",
        "the suite's cluster has no Prometheus operator, which defines the kind",
    ),
    (
        "delete deployments.apps",
        "clusters that restrict owner references, such as OpenShift, require it of a client that adopts a child",
    ),
    ("get deployments.apps", PAST_THE_CACHE),
    ("get jobs.batch", PAST_THE_CACHE),
    ("get networkpolicies.networking.k8s.io", PAST_THE_CACHE),
    ("get poddisruptionbudgets.policy", PAST_THE_CACHE),
    ("get services", PAST_THE_CACHE),
    ("patch events.events.k8s.io", "an event that repeats within six minutes becomes a series"),
    ("patch jobs.batch", "granted for every kind of children; a run is created once, and never changed"),
    ("update */finalizers", "clusters that restrict blockOwnerDeletion, such as OpenShift, require it"),
];

impl Permission {
    /// Whether it reads an object of a kind whose status the same user may write: of a kind that an operator defines.
    fn reads_own_kind(&self, granted: &BTreeMap<Self, usize>) -> bool {
        let status = format!("{}/status", self.resource);
        self.verb == "get" && granted.keys().any(|it| it.group == self.group && it.resource == status)
    }
}

/// The reason why the permission, which is one of those granted, is granted although no request of this run used it.
fn reason(permission: &Permission, granted: &BTreeMap<Permission, usize>) -> Option<&'static str> {
    if permission.reads_own_kind(granted) {
        return Some(PAST_THE_CACHE);
    }
    let text = permission.to_string();
    let matches = |pattern: &str| match pattern.split_once('*') {
        Some((start, end)) => text.starts_with(start) && text.ends_with(end),
        None => text == pattern,
    };
    RARELY_USED.iter().find(|(pattern, _)| matches(pattern)).map(|(_, reason)| *reason)
}

impl Comparison {
    /// The deviations, one sentence each; empty if permissions and requests agree.
    pub fn findings(&self) -> Vec<String> {
        let has_no_reason = |permission| reason(permission, &self.granted).is_none();
        let unused = self.granted.iter().filter(|(permission, count)| **count == 0 && has_no_reason(permission));
        let mut findings: Vec<String> =
            unused.map(|(permission, _)| format!("{permission} is granted, but no request used it")).collect();
        findings
            .extend(self.refused.iter().map(|it| format!("the API server refused {it}: this permission is missing")));
        findings.extend(self.outside.iter().map(|it| format!("a request used {it}, which the chart does not grant")));
        findings
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (permission, count) in &self.granted {
            let reason = reason(permission, &self.granted).filter(|_| *count == 0).unwrap_or_default();
            writeln!(f, "{count:>6}  {:<60} {reason}", permission.to_string())?;
        }
        Ok(())
    }
}

fn permission(request: &Audited) -> Permission {
    let Audited { verb, group, resource, subresource, .. } = request;
    let slash = if subresource.is_empty() { "" } else { "/" };
    Permission { group: group.clone(), resource: format!("{resource}{slash}{subresource}"), verb: verb.clone() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(verb: &str, resource: &str, is_forbidden: bool) -> Audited {
        let [verb, group, resource, subresource] = [verb, "apps", resource, "status"].map(ToOwned::to_owned);
        Audited { verb, group, resource, subresource, is_forbidden, is_dry_run: false }
    }

    fn role() -> Rendered {
        let role = |kind: &str, name: &str, verbs: &[&str]| {
            let rule = json!({"apiGroups": ["apps"], "resources": ["deployments/status"], "verbs": verbs});
            json!({"kind": kind, "metadata": {"name": name}, "rules": [rule]})
        };
        let binding = |name: &str, account: &str| {
            let role = json!({"kind": "ClusterRole", "name": name});
            json!({"kind": "ClusterRoleBinding", "roleRef": role, "subjects": [{"name": account}]})
        };
        let objects = vec![
            role("ClusterRole", "ours", &["get", "watch", "delete"]),
            binding("ours", "manager"),
            role("ClusterRole", "theirs", &["patch"]),
            binding("theirs", "another-user"),
        ];
        Rendered { text: String::new(), objects }
    }

    fn names<'a>(permissions: impl IntoIterator<Item = &'a Permission>) -> Vec<String> {
        permissions.into_iter().map(ToString::to_string).collect()
    }

    #[test]
    fn permissions_are_compared_with_audited_requests() {
        let requests = [
            request("get", "deployments", false),
            request("get", "deployments", false),
            request("watch", "deployments", false),
            request("patch", "deployments", false),
            request("list", "deployments", true),
            request("delete", "deployments", true),
            request("get", "", false), // discovery
        ];
        let found = compare_requests(granted(&role(), "manager"), &requests);
        let used: Vec<_> = found.granted.iter().map(|(it, count)| format!("{it}: {count}")).collect();
        let of = |verb: &str| format!("{verb} deployments.apps/status");
        assert_eq!(used, [of("delete") + ": 0", of("get") + ": 2", of("watch") + ": 1"]);
        assert_eq!(names(&found.refused), [of("list")]);
        assert_eq!(names(&found.outside), [of("patch")]);
        let findings = found.findings();
        assert_eq!(findings.len(), 3, "get is used, watch is used: {findings:?}");
        assert!(findings[0].starts_with(&format!("{} is granted", of("delete"))), "{findings:?}");
    }

    #[test]
    fn unused_read_is_found_unless_its_kind_is_listed_or_the_status_of_its_kind_is_written() {
        let granted = |verb: &str, group: &str, resource: &str| {
            let [verb, group, resource] = [verb, group, resource].map(ToOwned::to_owned);
            Permission { group, resource, verb }
        };
        let permissions = [
            granted("get", "apps", "deployments"),
            granted("get", "other", "deployments"),
            granted("get", "", "secrets"),
            granted("get", "of.ours", "things"),
            granted("patch", "of.ours", "things/status"),
        ];
        let findings = compare_requests(permissions.into(), &[]).findings();
        let unused = ["get secrets", "patch things.of.ours/status", "get deployments.other"];
        assert_eq!(findings, unused.map(|it| format!("{it} is granted, but no request used it")));
    }
}
