//! The built-in kinds: their endpoints, empty forms and values that the server fills in.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    cause::Cause,
    defaults::{self, child, fill},
    kind::{Generation, Kind, Normalize},
    shape::Shape,
};

/// All built-in kinds of the model.
pub(crate) fn kinds() -> Vec<Kind> {
    let spec = Generation::Spec;
    let mut kinds = vec![
        Kind {
            prepare: Some(namespace),
            returns_deleted: true,
            ..subject(core("namespaces", "Namespace", defaults::namespace)).cluster_scoped()
        },
        Kind {
            prepare: Some(pod),
            returns_deleted: true,
            generation: spec,
            status_keeps: &["/spec", "/metadata/ownerReferences"],
            ..subject(core("pods", "Pod", defaults::pod))
        },
        Kind {
            prepare: Some(service),
            create_on_put: true,
            returns_deleted: true,
            ..subject(core("services", "Service", defaults::service))
        },
        core("secrets", "Secret", defaults::secret),
        core("configmaps", "ConfigMap", defaults::nothing),
        Kind { returns_deleted: true, ..core("serviceaccounts", "ServiceAccount", defaults::nothing) },
        subject(core("resourcequotas", "ResourceQuota", defaults::nothing)),
        // Without the finalizer that an admission plugin adds, and the controller that removes it from unused claims.
        subject(core("persistentvolumeclaims", "PersistentVolumeClaim", defaults::claim)),
        subject(core("nodes", "Node", defaults::with_status)).cluster_scoped(),
        Kind {
            generation: Generation::SpecAndAnnotations,
            status_keeps: &["/spec", "/metadata/labels"],
            immutable: &[("/spec/selector", "spec.selector")],
            check: negative_replicas,
            ..scaled(subject(of("apps", "v1", "deployments", "Deployment", defaults::deployment)))
        },
        Kind {
            generation: spec,
            immutable: &[("/spec/selector", "spec.selector")],
            check: negative_replicas,
            ..scaled(subject(of("apps", "v1", "replicasets", "ReplicaSet", defaults::replica_set)))
        },
        Kind {
            generation: spec,
            check: negative_replicas,
            ..scaled(subject(of("apps", "v1", "statefulsets", "StatefulSet", defaults::stateful_set)))
        },
        Kind {
            prepare: Some(daemon_set),
            generation: spec,
            immutable: &[("/spec/selector", "spec.selector")],
            ..subject(of("apps", "v1", "daemonsets", "DaemonSet", defaults::daemon_set))
        },
        Kind {
            generation: spec,
            unconditional: false,
            checks_twice: false,
            ..subject(of("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", defaults::disruption_budget))
        },
        Kind {
            generation: spec,
            orphans: true,
            prepare: Some(job),
            immutable: &[
                ("/spec/selector", "spec.selector"),
                ("/spec/template", "spec.template"),
                ("/spec/completions", "spec.completions"),
            ],
            ..subject(of("batch", "v1", "jobs", "Job", defaults::job))
        },
        Kind { generation: spec, ..subject(of("batch", "v1", "cronjobs", "CronJob", defaults::cron_job)) },
        Kind {
            unconditional: false,
            create_on_put: true,
            ..of("coordination.k8s.io", "v1", "leases", "Lease", with_spec)
        },
        Kind {
            create_on_put: true,
            check: event_series,
            immutable: &[
                ("/action", "action"),
                ("/eventTime", "eventTime"),
                ("/note", "message"),
                ("/reason", "reason"),
                ("/reason", "reason"), // the API server checks it twice
                ("/regarding", "involvedObject"),
                ("/related", "related"),
                ("/reportingController", "reportingController"),
                ("/reportingInstance", "reportingInstance"),
                ("/type", "type"),
            ],
            ..of("events.k8s.io", "v1", "events", "Event", event)
        },
        Kind {
            custom: false,
            ..Kind::custom("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition")
        }
        .cluster_scoped()
        .with_status(),
    ];
    kinds.extend(networking());
    kinds.extend(access());
    kinds
}

fn networking() -> [Kind; 2] {
    let made = |plural: &str, kind: &str, decode: fn(&mut Value)| Kind {
        generation: Generation::Spec,
        ..of("networking.k8s.io", "v1", plural, kind, decode)
    };
    [
        made("networkpolicies", "NetworkPolicy", defaults::network_policy),
        subject(made("ingresses", "Ingress", defaults::ingress)),
    ]
}

fn access() -> [Kind; 2] {
    let made = |plural: &str, kind: &str, decode: fn(&mut Value)| Kind {
        create_on_put: true,
        ..of("rbac.authorization.k8s.io", "v1", plural, kind, decode)
    };
    [
        made("roles", "Role", defaults::role),
        Kind { immutable: &[("/roleRef", "roleRef")], ..made("rolebindings", "RoleBinding", defaults::role_binding) },
    ]
}

fn core(plural: &str, kind: &str, decode: fn(&mut Value)) -> Kind {
    of("", "v1", plural, kind, decode)
}

fn of(group: &str, version: &str, plural: &str, kind: &str, decode: fn(&mut Value)) -> Kind {
    Kind {
        shape: Arc::new(Shape::builtin(kind)),
        normalize: Normalize::Builtin(decode),
        zero: zero_of(kind),
        generation: Generation::Never,
        unconditional: true,
        custom: false,
        ..Kind::custom(group, version, plural, kind)
    }
}

/// An empty object as Go prints it: structs that are not pointers always appear.
fn zero_of(kind: &str) -> fn() -> Value {
    fn template() -> Value {
        json!({"metadata": {}, "spec": {"containers": null}})
    }
    match kind {
        "Pod" => || json!({"spec": {"containers": null}, "status": {}}),
        "Deployment" => || json!({"spec": {"selector": null, "strategy": {}, "template": template()}, "status": {}}),
        "ReplicaSet" => || json!({"spec": {"selector": null, "template": template()}, "status": {"replicas": 0}}),
        "StatefulSet" => || {
            let spec = json!({"selector": null, "updateStrategy": {}, "template": template()});
            json!({"spec": spec, "status": {"replicas": 0, "availableReplicas": 0}})
        },
        "DaemonSet" => || {
            let mut set = json!({"spec": {"selector": null, "updateStrategy": {}, "template": template()}});
            defaults::daemon_counts(&mut set);
            set
        },
        "Job" => || json!({"spec": {"template": template()}, "status": {}}),
        "CronJob" => {
            || json!({"spec": {"jobTemplate": {"metadata": {}, "spec": {"template": template()}}}, "status": {}})
        }
        "Service" | "Ingress" => || json!({"spec": {}, "status": {"loadBalancer": {}}}),
        "Role" => || json!({"rules": null}),
        "RoleBinding" => || json!({"roleRef": {"apiGroup": "", "kind": "", "name": ""}}),
        "Namespace" | "Node" | "PodDisruptionBudget" | "ResourceQuota" => || json!({"spec": {}, "status": {}}),
        "PersistentVolumeClaim" => || json!({"spec": {"resources": {}}, "status": {}}),
        "Lease" => || json!({"spec": {}}),
        "NetworkPolicy" => || json!({"spec": {"podSelector": {}}}),
        "Event" => {
            || json!({"regarding": {}, "deprecatedSource": {}, "eventTime": null, "deprecatedFirstTimestamp": null, "deprecatedLastTimestamp": null})
        }
        _ => || json!({}),
    }
}

/// Adds a status endpoint, which does not change the spec.
fn subject(kind: Kind) -> Kind {
    Kind { status: true, status_keeps: &["/spec"], ..kind }
}

fn scaled(kind: Kind) -> Kind {
    kind.with_scale("/spec/replicas", "/status/replicas", None)
}

fn with_spec(object: &mut Value) {
    child(object, "spec");
}

fn event(object: &mut Value) {
    for field in ["deprecatedFirstTimestamp", "deprecatedLastTimestamp"] {
        object[field] = Value::Null;
    }
    child(object, "deprecatedSource");
    child(object, "regarding");
}

/// A changed series of an event must have both fields. An apply that gives up one of them, while another manager owns the other,
/// leaves an incomplete series.
fn event_series(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let Some(series) = new.get("series").filter(|series| series.is_object()) else { return Vec::new() };
    if old.is_some_and(|old| old.get("series") == Some(series)) {
        return Vec::new();
    }
    let mut causes = Vec::new();
    if series["count"].as_i64().unwrap_or_default() < 2 {
        causes.push(Cause::invalid("series.count", "\"\"", "should be at least 2"));
    }
    if series["lastObservedTime"].is_null() {
        causes.push(Cause::new("FieldValueRequired", "series.lastObservedTime", "Required value".to_owned()));
    }
    causes
}

fn negative_replicas(new: &Value, _: Option<&Value>) -> Vec<Cause> {
    let replicas = new["spec"]["replicas"].as_i64().filter(|replicas| *replicas < 0);
    let why = "must be greater than or equal to 0";
    replicas.map(|replicas| Cause::invalid("spec.replicas", &replicas.to_string(), why)).into_iter().collect()
}

fn namespace(object: &mut Value, old: Option<&Value>, _: u64) {
    if old.is_none() {
        object["spec"] = json!({"finalizers": ["kubernetes"]});
        object["status"] = json!({"phase": "Active"});
    }
}

fn pod(object: &mut Value, old: Option<&Value>, _: u64) {
    if old.is_none() {
        let spec = child(object, "spec");
        fill(spec, "serviceAccountName", "default");
        let account = spec["serviceAccountName"].clone();
        fill(spec, "serviceAccount", account);
        fill(spec, "priority", 0);
        fill(spec, "preemptionPolicy", "PreemptLowerPriority");
        let tolerate = |what: &str| {
            let key = format!("node.kubernetes.io/{what}");
            json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
        };
        if let Value::Array(tolerations) = child_list(spec, "tolerations") {
            tolerations.extend(["not-ready", "unreachable"].map(tolerate));
        }
        object["status"] = json!({"phase": "Pending", "qosClass": "BestEffort"});
    }
}

fn child_list<'a>(object: &'a mut Value, key: &str) -> &'a mut Value {
    fill(object, key, json!([]));
    &mut object[key]
}

/// Counts the changes of the template, in an annotation.
fn daemon_set(object: &mut Value, old: Option<&Value>, _: u64) {
    let count = |object: &Value| {
        let text = object["metadata"]["annotations"][defaults::TEMPLATE_GENERATION].as_str();
        text.and_then(|text| text.parse::<i64>().ok()).unwrap_or_default()
    };
    let generation = match old {
        Some(old) => count(old) + i64::from(old["spec"]["template"] != object["spec"]["template"]),
        None => count(object).max(1),
    };
    let annotations = child(child(object, "metadata"), "annotations");
    annotations[defaults::TEMPLATE_GENERATION] = generation.to_string().into();
}

/// Assigns a cluster IP, unless the Service has one or is of a type without one.
fn service(object: &mut Value, old: Option<&Value>, number: u64) {
    let spec = child(object, "spec");
    if spec["type"] == "ExternalName" {
        return;
    }
    for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        if let Some(before) = old.and_then(|old| old["spec"].get(field)) {
            fill(spec, field, before.clone());
        }
    }
    let address = format!("10.96.{}.{}", number / 250 % 250 + 1, number % 250 + 1);
    fill(spec, "clusterIP", address);
    let address = spec["clusterIP"].clone();
    fill(spec, "clusterIPs", json!([address]));
    fill(spec, "ipFamilies", json!(["IPv4"]));
    fill(spec, "ipFamilyPolicy", "SingleStack");
}

/// Gives a Job a selector with its uid, which distinguishes its pods.
fn job(object: &mut Value, old: Option<&Value>, _: u64) {
    if old.is_some() || object["spec"]["manualSelector"] == true {
        return;
    }
    let (uid, name) = (object["metadata"]["uid"].clone(), object["metadata"]["name"].clone());
    let were = object["metadata"]["labels"].clone();
    let spec = child(object, "spec");
    let labels = child(child(child(spec, "template"), "metadata"), "labels");
    let are_the_same = *labels == were; // Go shares one map in this case, so both stay equal
    for prefix in ["", "batch.kubernetes.io/"] {
        labels[format!("{prefix}controller-uid")] = uid.clone();
        labels[format!("{prefix}job-name")] = name.clone();
    }
    let labels = labels.clone();
    child(child(spec, "selector"), "matchLabels")["batch.kubernetes.io/controller-uid"] = uid;
    if are_the_same || were.is_null() {
        object["metadata"]["labels"] = labels;
    }
}
