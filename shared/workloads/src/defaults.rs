//! The defaults that the API server sets when an object is created, one function per kind.
//!
//! The source is the scheme defaulting of Kubernetes 1.36: `SetObjectDefaults_*` in `pkg/apis/<group>/v1` of
//! k8s.io/kubernetes. This module covers only fields that our operators can cause: no disks, no host network, no load balancers.
//! Values that the API server allocates (`clusterIP`, `ipFamilies`) are not defaults: no field manager owns them.

use serde_json::{Map, Value, json};

use crate::{image::runs_latest, quantity};

/// `apps/v1`, `SetObjectDefaults_Deployment`.
pub(crate) fn deployment(object: &mut Value) {
    let spec = child(object, "spec");
    fill(spec, "replicas", 1);
    fill(spec, "revisionHistoryLimit", 10);
    fill(spec, "progressDeadlineSeconds", 600);

    let strategy = child(spec, "strategy");
    fill(strategy, "type", "RollingUpdate");
    if strategy["type"] == "RollingUpdate" {
        let rolling = child(strategy, "rollingUpdate");
        fill(rolling, "maxUnavailable", "25%");
        fill(rolling, "maxSurge", "25%");
    }
    pod_spec(child(child(spec, "template"), "spec"));
}

/// `batch/v1`, `SetDefaults_Job`.
pub(crate) fn job(object: &mut Value) {
    let spec = child(object, "spec");
    if spec["completions"].is_null() && spec["parallelism"].is_null() {
        fill(spec, "completions", 1);
    }
    fill(spec, "parallelism", 1);
    fill(spec, "backoffLimit", 6);
    fill(spec, "completionMode", "NonIndexed");
    fill(spec, "suspend", false);
    fill(spec, "manualSelector", false);
    fill(spec, "podReplacementPolicy", "TerminatingOrFailed");
    pod_spec(child(child(spec, "template"), "spec"));
}

/// `core/v1`, `SetDefaults_Service`.
pub(crate) fn service(object: &mut Value) {
    let spec = child(object, "spec");
    fill(spec, "type", "ClusterIP");
    fill(spec, "sessionAffinity", "None");
    if spec["type"] != "ExternalName" {
        fill(spec, "internalTrafficPolicy", "Cluster");
    }
    for port in items(spec, "ports") {
        fill(port, "protocol", "TCP");
        let number = port["port"].clone();
        fill(port, "targetPort", number);
    }
}

/// `policy/v1` has no defaulting at all.
pub(crate) fn disruption_budget(_object: &mut Value) {}

/// `core/v1`, `SetDefaults_PodSpec` for a pod *template*. The API server sets more defaults in a Pod.
fn pod_spec(spec: &mut Value) {
    fill(spec, "dnsPolicy", "ClusterFirst");
    fill(spec, "restartPolicy", "Always");
    fill(spec, "schedulerName", "default-scheduler");
    fill(spec, "securityContext", json!({}));
    fill(spec, "terminationGracePeriodSeconds", 30);
    for list in ["initContainers", "containers"] {
        items(spec, list).iter_mut().for_each(container);
    }
    items(spec, "volumes").iter_mut().for_each(volume);
}

/// `SetDefaults_*VolumeSource` for volumes whose files come from objects of the cluster: every user may read the files.
fn volume(volume: &mut Value) {
    for source in ["configMap", "secret", "projected"] {
        if let Some(source) = volume.get_mut(source) {
            fill(source, "defaultMode", 0o644);
        }
    }
    let Some(projected) = volume.get_mut("projected") else { return };
    for source in items(projected, "sources") {
        if let Some(token) = source.get_mut("serviceAccountToken") {
            fill(token, "expirationSeconds", 3600);
        }
        let files = source.get_mut("downwardAPI").map_or(&mut [][..], |it| items(it, "items"));
        for file in files {
            if let Some(field) = file.get_mut("fieldRef") {
                fill(field, "apiVersion", "v1");
            }
        }
    }
}

/// `core/v1`, `SetDefaults_Container`, and the defaults of a container's ports, variables, probes and hooks.
fn container(container: &mut Value) {
    let pull_policy =
        if runs_latest(container["image"].as_str().unwrap_or_default()) { "Always" } else { "IfNotPresent" };
    fill(container, "imagePullPolicy", pull_policy);
    fill(container, "terminationMessagePath", "/dev/termination-log");
    fill(container, "terminationMessagePolicy", "File");
    resources(child(container, "resources"));
    for port in items(container, "ports") {
        fill(port, "protocol", "TCP");
    }
    for variable in items(container, "env") {
        if let Some(field) = variable.pointer_mut("/valueFrom/fieldRef") {
            fill(field, "apiVersion", "v1");
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(it) = container.get_mut(name) {
            probe(it);
        }
    }
    for hook in ["/lifecycle/postStart/httpGet", "/lifecycle/preStop/httpGet"] {
        if let Some(get) = container.pointer_mut(hook) {
            http_get(get);
        }
    }
}

/// `SetDefaults_ResourceList`, and the form in which Go prints a quantity that it has parsed (`1024Mi` becomes `1Gi`).
/// `resources: {}` itself is not a default: Go always prints that struct.
fn resources(resources: &mut Value) {
    for list in ["limits", "requests"] {
        let amounts = resources.get_mut(list).and_then(Value::as_object_mut);
        for amount in amounts.into_iter().flat_map(Map::values_mut) {
            if let Some(normal) = amount.as_str().and_then(quantity::normal) {
                *amount = normal.into();
            }
        }
    }
}

/// `SetDefaults_Probe`.
fn probe(probe: &mut Value) {
    fill(probe, "timeoutSeconds", 1);
    fill(probe, "periodSeconds", 10);
    fill(probe, "successThreshold", 1);
    fill(probe, "failureThreshold", 3);
    if let Some(get) = probe.get_mut("httpGet") {
        http_get(get);
    }
    if let Some(grpc) = probe.get_mut("grpc") {
        fill(grpc, "service", "");
    }
}

/// `SetDefaults_HTTPGetAction`.
fn http_get(get: &mut Value) {
    fill(get, "path", "/");
    fill(get, "scheme", "HTTP");
}

/// Sets `object.key`, unless it has a value.
fn fill(object: &mut Value, key: &str, default: impl Into<Value>) {
    let field = &mut object[key];
    if field.is_null() {
        *field = default.into();
    }
}

/// Returns `object.key`. If it is absent, creates it as an empty object.
fn child<'a>(object: &'a mut Value, key: &str) -> &'a mut Value {
    fill(object, key, json!({}));
    &mut object[key]
}

/// Returns the items of the list `object.key`; none if there is no such list.
fn items<'a>(object: &'a mut Value, key: &str) -> &'a mut [Value] {
    match object.get_mut(key) {
        Some(Value::Array(items)) => items,
        _ => &mut [],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaulted(set_defaults: fn(&mut Value), mut object: Value) -> Value {
        set_defaults(&mut object);
        object
    }

    #[test]
    fn bare_deployment_gets_api_server_defaults() {
        let bare = json!({"spec": {"template": {"spec": {"containers": [{"name": "app", "image": "app:1"}]}}}});
        let expected = json!({"spec": {
            "replicas": 1,
            "revisionHistoryLimit": 10,
            "progressDeadlineSeconds": 600,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
            "template": {"spec": {
                "dnsPolicy": "ClusterFirst",
                "restartPolicy": "Always",
                "schedulerName": "default-scheduler",
                "securityContext": {},
                "terminationGracePeriodSeconds": 30,
                "containers": [{
                    "name": "app",
                    "image": "app:1",
                    "imagePullPolicy": "IfNotPresent",
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                    "resources": {},
                }],
            }},
        }});
        assert_eq!(defaulted(deployment, bare), expected);
    }

    #[test]
    fn bare_job_gets_api_server_defaults() {
        let bare = json!({"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": []}}}});
        let spec = &defaulted(job, bare)["spec"];
        for (field, value) in [
            ("completions", json!(1)),
            ("parallelism", json!(1)),
            ("backoffLimit", json!(6)),
            ("completionMode", json!("NonIndexed")),
            ("suspend", json!(false)),
            ("manualSelector", json!(false)),
            ("podReplacementPolicy", json!("TerminatingOrFailed")),
        ] {
            assert_eq!(spec[field], value, "{field}");
        }
        assert_eq!(spec["template"]["spec"]["restartPolicy"], "Never");
        let counted = defaulted(job, json!({"spec": {"parallelism": 3}}));
        assert_eq!((&counted["spec"]["parallelism"], &counted["spec"]["completions"]), (&json!(3), &Value::Null));
    }

    #[test]
    fn container_parts_get_api_server_defaults() {
        let bare = json!({
            "image": "app",
            "ports": [{"containerPort": 80}],
            "env": [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, {"name": "A", "value": "b"}],
            "readinessProbe": {"httpGet": {"port": 80}, "periodSeconds": 5},
            "livenessProbe": {"grpc": {"port": 80}},
            "lifecycle": {"preStop": {"sleep": {"seconds": 5}}, "postStart": {"httpGet": {"port": 80}}},
            "resources": {"limits": {"memory": "1024Mi"}, "requests": {"cpu": "1000m"}},
        });
        let expected = json!({
            "image": "app",
            "imagePullPolicy": "Always",
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "ports": [{"containerPort": 80, "protocol": "TCP"}],
            "env": [
                {"name": "POD", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
                {"name": "A", "value": "b"},
            ],
            "readinessProbe": {
                "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
                "timeoutSeconds": 1, "periodSeconds": 5, "successThreshold": 1, "failureThreshold": 3,
            },
            "livenessProbe": {
                "grpc": {"port": 80, "service": ""},
                "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3,
            },
            "lifecycle": {
                "preStop": {"sleep": {"seconds": 5}},
                "postStart": {"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}},
            },
            "resources": {"limits": {"memory": "1Gi"}, "requests": {"cpu": "1"}},
        });
        assert_eq!(defaulted(container, bare), expected);
    }

    #[test]
    fn volumes() {
        let bare = json!({"containers": [], "volumes": [
            {"name": "a", "emptyDir": {}},
            {"name": "b", "configMap": {"name": "c"}},
            {"name": "c", "secret": {"secretName": "s", "defaultMode": 256}},
            {"name": "d", "projected": {"sources": [
                {"serviceAccountToken": {"path": "token"}},
                {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
            ]}},
        ]});
        let expected = json!([
            {"name": "a", "emptyDir": {}},
            {"name": "b", "configMap": {"name": "c", "defaultMode": 420}},
            {"name": "c", "secret": {"secretName": "s", "defaultMode": 256}},
            {"name": "d", "projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
                {"downwardAPI": {"items": [
                    {"path": "name", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}},
                ]}},
            ]}},
        ]);
        assert_eq!(defaulted(pod_spec, bare)["volumes"], expected);
    }

    #[test]
    fn bare_service_gets_api_server_defaults() {
        let bare = json!({"spec": {"clusterIP": "None", "ports": [{"port": 80}, {"port": 81, "targetPort": "web"}]}});
        let expected = json!({"spec": {
            "clusterIP": "None",
            "type": "ClusterIP",
            "sessionAffinity": "None",
            "internalTrafficPolicy": "Cluster",
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}, {"port": 81, "protocol": "TCP", "targetPort": "web"}],
        }});
        assert_eq!(defaulted(service, bare), expected);
    }

    #[test]
    fn defaults_keep_explicit_values() {
        let recreate = json!({"spec": {"replicas": 0, "strategy": {"type": "Recreate"}}});
        let object = defaulted(deployment, recreate);
        assert_eq!(
            (&object["spec"]["replicas"], &object["spec"]["strategy"]),
            (&json!(0), &json!({"type": "Recreate"}))
        );
    }
}
