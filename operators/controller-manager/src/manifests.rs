//! The plain objects that run the operators in a cluster: what the demo and the end-to-end tests apply.
//!
//! Pure; everything that could drift from the code (definitions, permissions) is derived from it.

use manager::{
    Operator, leader_election_permissions, normalize, permissions, printed, webhook_configurations, webhook_permissions,
};
use serde_json::{Value, json};

use crate::OPERATORS;

const NAME: &str = "controller-manager";

/// The lease that the replicas compete for: the default of `--leader-election-id`.
const LEASE: &str = "controller-manager.operators";

/// The Service of the webhooks, and the roles that serving them needs.
const WEBHOOKS: &str = "webhooks";
/// The default of `--webhook-cert-secret`.
const WEBHOOK_SECRET: &str = "webhook-server-cert";

/// Where and as what the operators run.
#[derive(Debug, Clone)]
pub struct Deployed<'a> {
    /// The namespace of the manager itself.
    pub namespace: &'a str,
    /// The image of the manager, with its tag.
    pub image: &'a str,
    /// More flags for `run`.
    pub flags: &'a [&'a str],
}

/// The custom resource definitions of all operators.
pub fn definitions() -> Vec<Value> {
    let crds = OPERATORS.iter().flat_map(|operator| operator.crds());
    crds.map(|crd| printed(&normalize(&crd))).collect()
}

/// Everything that has to be applied, in this order.
pub fn manifests(deployed: &Deployed<'_>) -> Vec<Value> {
    let mut objects = definitions();
    objects.extend([namespace(deployed), service_account(deployed), role(), binding(deployed)]);
    objects.extend([election_role(deployed), election_binding(deployed)]);
    objects.extend(webhooks(deployed));
    objects.push(deployment(deployed));
    objects
}

/// Everything that lets the API server call the webhooks, and lets us tell it whom to trust.
fn webhooks(deployed: &Deployed<'_>) -> Vec<Value> {
    let Some(allowed) = webhook_permissions(OPERATORS, NAME, WEBHOOK_SECRET) else { return Vec::new() };
    let group = "rbac.authorization.k8s.io";
    let subjects = json!([{"kind": "ServiceAccount", "name": NAME, "namespace": deployed.namespace}]);
    let cluster = json!({"name": WEBHOOKS, "labels": labels()});
    let namespaced = json!({"name": WEBHOOKS, "namespace": deployed.namespace, "labels": labels()});
    let mut objects = vec![
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": cluster, "rules": allowed.cluster,
        }),
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": cluster,
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": WEBHOOKS}, "subjects": subjects,
        }),
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": namespaced, "rules": allowed.namespaced,
        }),
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": namespaced,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": WEBHOOKS}, "subjects": subjects,
        }),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": namespaced,
            "spec": {"selector": labels(), "ports": [{"port": 443, "targetPort": "webhooks"}]},
        }),
    ];
    objects.extend(webhook_configurations(OPERATORS, NAME, deployed.namespace, WEBHOOKS));
    objects
}

fn namespace(deployed: &Deployed<'_>) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": deployed.namespace, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    })
}

fn service_account(deployed: &Deployed<'_>) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": NAME, "namespace": deployed.namespace, "labels": labels()},
    })
}

fn role() -> Value {
    let operators: Vec<&dyn Operator> = OPERATORS.to_vec();
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": NAME, "labels": labels()}, "rules": permissions(&operators),
    })
}

fn binding(deployed: &Deployed<'_>) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": NAME, "labels": labels()},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": deployed.namespace}],
    })
}

fn election_role(deployed: &Deployed<'_>) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": "leader-election", "namespace": deployed.namespace, "labels": labels()},
        "rules": leader_election_permissions(LEASE),
    })
}

fn election_binding(deployed: &Deployed<'_>) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "leader-election", "namespace": deployed.namespace, "labels": labels()},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "leader-election"},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": deployed.namespace}],
    })
}

fn deployment(deployed: &Deployed<'_>) -> Value {
    let flags: Vec<&str> =
        ["run", "--leader-elect", "--webhook-service", WEBHOOKS].iter().chain(deployed.flags).copied().collect();
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": NAME, "namespace": deployed.namespace, "labels": labels()},
        "spec": {
            "replicas": 2, // one works, one stands by
            "selector": {"matchLabels": labels()},
            "template": {
                "metadata": {"labels": labels()},
                "spec": {
                    "serviceAccountName": NAME,
                    "terminationGracePeriodSeconds": 40, // the manager's own limit is 30 s
                    "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
                    "containers": [{
                        "name": "manager",
                        "image": deployed.image,
                        "args": flags,
                        "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                        "ports": [{"name": "probes", "containerPort": 8081}, {"name": "webhooks", "containerPort": 9443}],
                        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "probes"}, "periodSeconds": 20},
                        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "probes"}, "periodSeconds": 2},
                        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}},
                        "securityContext": {
                            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
                        },
                    }],
                },
            },
        },
    })
}

fn labels() -> Value {
    json!({"app.kubernetes.io/name": "operators", "app.kubernetes.io/component": NAME})
}
