//! Defaults and normal forms of built-in kinds. Pure.
//!
//! The source is Kubernetes 1.36, `SetDefaults_*` and `Prepare*` in k8s.io/kubernetes.

use serde_json::{Map, Value, json};

use crate::{
    quantity,
    shape::{Class, Shape},
};

/// Removes the values that Go's `omitempty` does not print: nulls, empty lists and empty maps (but not empty structs).
pub(crate) fn tidy(value: &mut Value, shape: &Shape) {
    match value {
        Value::Object(map) => {
            for (name, value) in map.iter_mut() {
                tidy(value, shape.field(name).0);
            }
            map.retain(|name, value| match value {
                Value::Null => false,
                Value::Array(items) => !items.is_empty(),
                Value::Object(map) => {
                    let is_map = matches!(shape.field(name).0, Shape::Map(_))
                        || (*shape == Shape::Free && name == "matchLabels");
                    !map.is_empty() || !is_map
                }
                _ => true,
            });
        }
        Value::Array(items) => {
            let element = match shape.class(&Value::Array(Vec::new())) {
                Class::List => shape.element(),
                _ => shape,
            };
            for item in items {
                tidy(item, element);
            }
        }
        _ => {}
    }
}

/// Does the same for the metadata of a custom resource. Its other fields stay as the client sent them.
pub(crate) fn tidy_metadata(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata") {
        tidy(metadata, &Shape::metadata());
    }
}

pub(crate) fn nothing(_: &mut Value) {}

pub(crate) fn with_status(object: &mut Value) {
    child(object, "status");
}

pub(crate) fn namespace(object: &mut Value) {
    let name = object["metadata"]["name"].clone();
    if name.is_string() {
        child(child(object, "metadata"), "labels")["kubernetes.io/metadata.name"] = name;
    }
    child(object, "spec");
    child(object, "status");
}

pub(crate) fn claim(object: &mut Value) {
    fill(child(object, "spec"), "volumeMode", "Filesystem");
    fill(child(object, "status"), "phase", "Pending");
}

pub(crate) fn secret(object: &mut Value) {
    fill(object, "type", "Opaque");
    let Some(texts) = object.as_object_mut().and_then(|object| object.remove("stringData")) else { return };
    for (name, text) in texts.as_object().into_iter().flatten() {
        let encoded = base64(text.as_str().unwrap_or_default().as_bytes());
        child(object, "data")[name] = encoded.into();
    }
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let at = |index: usize| u32::from(chunk.get(index).copied().unwrap_or_default());
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for place in 0..4 {
            let letter = ALPHABET[(bits >> (18 - 6 * place) & 63) as usize];
            out.push(if place <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    out
}

/// Removes numbers that Go does not print when they are zero.
fn omit_zero(object: &mut Value, fields: &[&str]) {
    if let Some(object) = object.as_object_mut() {
        object.retain(|name, value| *value != 0 || !fields.contains(&name.as_str()));
    }
}

const COUNTS: [&str; 7] = [
    "observedGeneration",
    "updatedReplicas",
    "readyReplicas",
    "availableReplicas",
    "unavailableReplicas",
    "fullyLabeledReplicas",
    "currentReplicas",
];

/// `apps/v1`, `SetObjectDefaults_Deployment`.
pub(crate) fn deployment(object: &mut Value) {
    with_status(object);
    omit_zero(&mut object["status"], &COUNTS);
    omit_zero(&mut object["status"], &["replicas"]);
    for condition in items(&mut object["status"], "conditions") {
        if let Some(condition) = condition.as_object_mut() {
            condition.retain(|name, value| value != "" || !["message", "reason"].contains(&name.as_str()));
            for time in ["lastUpdateTime", "lastTransitionTime"] {
                condition.entry(time).or_insert(Value::Null); // Go prints an unset time
            }
        }
    }
    let spec = child(object, "spec");
    omit_zero(spec, &["minReadySeconds"]);
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
    template(spec);
}

pub(crate) fn replica_set(object: &mut Value) {
    fill(child(object, "status"), "replicas", 0);
    omit_zero(&mut object["status"], &COUNTS);
    let spec = child(object, "spec");
    fill(spec, "replicas", 1);
    template(spec);
}

pub(crate) fn stateful_set(object: &mut Value) {
    let status = child(object, "status");
    fill(status, "replicas", 0);
    omit_zero(status, &COUNTS);
    fill(status, "availableReplicas", 0);
    let spec = child(object, "spec");
    fill(spec, "replicas", 1);
    fill(spec, "revisionHistoryLimit", 10);
    fill(spec, "podManagementPolicy", "OrderedReady");
    let strategy = child(spec, "updateStrategy");
    fill(strategy, "type", "RollingUpdate");
    if strategy["type"] == "RollingUpdate" {
        fill(child(strategy, "rollingUpdate"), "partition", 0);
    }
    let retention = child(spec, "persistentVolumeClaimRetentionPolicy");
    fill(retention, "whenDeleted", "Retain");
    fill(retention, "whenScaled", "Retain");
    for volume in items(spec, "volumeClaimTemplates") {
        fill(volume, "apiVersion", "v1");
        fill(volume, "kind", "PersistentVolumeClaim");
        claim(volume);
    }
    template(spec);
}

/// The annotation of a `DaemonSet` that was once a field. It appears when the object is decoded, so the client that creates the
/// object owns it.
pub(crate) const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

pub(crate) fn daemon_set(object: &mut Value) {
    fill(child(child(object, "metadata"), "annotations"), TEMPLATE_GENERATION, "0");
    daemon_counts(object);
    omit_zero(&mut object["status"], &["updatedNumberScheduled", "numberAvailable", "numberUnavailable"]);
    omit_zero(&mut object["status"], &COUNTS);
    let spec = child(object, "spec");
    omit_zero(spec, &["minReadySeconds"]);
    fill(spec, "revisionHistoryLimit", 10);
    let strategy = child(spec, "updateStrategy");
    fill(strategy, "type", "RollingUpdate");
    if strategy["type"] == "RollingUpdate" {
        let rolling = child(strategy, "rollingUpdate");
        fill(rolling, "maxUnavailable", 1);
        fill(rolling, "maxSurge", 0);
    }
    template(spec);
}

/// The counts in the status of a `DaemonSet`, which Go prints even if they are zero.
pub(crate) fn daemon_counts(object: &mut Value) {
    let status = child(object, "status");
    for count in ["currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"] {
        fill(status, count, 0);
    }
}

pub(crate) fn ingress(object: &mut Value) {
    child(object, "spec");
    child(child(object, "status"), "loadBalancer");
}

pub(crate) fn role(object: &mut Value) {
    if let Some(object) = object.as_object_mut() {
        object.entry("rules").or_insert(Value::Null); // Go prints a list that is not there
    }
}

/// `rbac/v1`, `SetDefaults_RoleBinding` and `SetDefaults_Subject`.
pub(crate) fn role_binding(object: &mut Value) {
    const GROUP: &str = "rbac.authorization.k8s.io";
    fill(child(object, "roleRef"), "apiGroup", GROUP);
    for subject in items(object, "subjects") {
        if subject["kind"] == "User" || subject["kind"] == "Group" {
            fill(subject, "apiGroup", GROUP);
        }
    }
}

pub(crate) fn service(object: &mut Value) {
    child(child(object, "status"), "loadBalancer");
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

pub(crate) fn disruption_budget(object: &mut Value) {
    let status = child(object, "status");
    for count in ["currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"] {
        fill(status, count, 0);
    }
    child(object, "spec");
}

pub(crate) fn network_policy(object: &mut Value) {
    let spec = child(object, "spec");
    child(spec, "podSelector");
    let mut types = vec!["Ingress"];
    if spec.get("egress").is_some() {
        types.push("Egress");
    }
    fill(spec, "policyTypes", json!(types));
    for direction in ["ingress", "egress"] {
        for rule in items(spec, direction) {
            for port in items(rule, "ports").iter_mut() {
                fill(port, "protocol", "TCP");
            }
        }
    }
}

pub(crate) fn job(object: &mut Value) {
    with_status(object);
    omit_zero(&mut object["status"], &["active", "succeeded", "failed"]);
    job_spec(child(object, "spec"));
    let labels =
        object.pointer("/spec/template/metadata/labels").cloned().filter(|_| object["metadata"]["labels"].is_null());
    if let Some(labels) = labels {
        child(object, "metadata")["labels"] = labels;
    }
}

fn job_spec(spec: &mut Value) {
    if spec.get("completions").is_none() && spec.get("parallelism").is_none() {
        fill(spec, "completions", 1);
    }
    fill(spec, "parallelism", 1);
    let indexed = spec.get("backoffLimitPerIndex").is_some();
    fill(spec, "backoffLimit", if indexed { i32::MAX } else { 6 });
    fill(spec, "completionMode", "NonIndexed");
    fill(spec, "suspend", false);
    fill(spec, "manualSelector", false);
    let replacement = if spec.get("podFailurePolicy").is_some() { "Failed" } else { "TerminatingOrFailed" };
    fill(spec, "podReplacementPolicy", replacement);
    template(spec);
}

pub(crate) fn cron_job(object: &mut Value) {
    with_status(object);
    let spec = child(object, "spec");
    fill(spec, "concurrencyPolicy", "Allow");
    fill(spec, "suspend", false);
    fill(spec, "successfulJobsHistoryLimit", 3);
    fill(spec, "failedJobsHistoryLimit", 1);
    let template_ = child(spec, "jobTemplate");
    child(template_, "metadata");
    let job = child(template_, "spec");
    template(job);
}

pub(crate) fn pod(object: &mut Value) {
    with_status(object);
    let spec = child(object, "spec");
    fill(spec, "enableServiceLinks", true);
    pod_spec(spec);
}

fn template(spec: &mut Value) {
    let template = child(spec, "template");
    child(template, "metadata");
    pod_spec(child(template, "spec"));
}

fn pod_spec(spec: &mut Value) {
    fill(spec, "dnsPolicy", "ClusterFirst");
    fill(spec, "restartPolicy", "Always");
    fill(spec, "schedulerName", "default-scheduler");
    fill(spec, "securityContext", json!({}));
    fill(spec, "terminationGracePeriodSeconds", 30);
    if let Some(name) = spec.get("serviceAccountName").cloned() {
        fill(spec, "serviceAccount", name); // the server keeps the old field name equal
    }
    for list in ["initContainers", "containers"] {
        items(spec, list).iter_mut().for_each(container);
    }
    for volume in items(spec, "volumes") {
        for (source, mode) in [("secret", "defaultMode"), ("configMap", "defaultMode"), ("projected", "defaultMode")] {
            if let Some(source) = volume.get_mut(source) {
                fill(source, mode, 420);
            }
        }
    }
}

fn container(container: &mut Value) {
    let pull = if runs_latest(container["image"].as_str().unwrap_or_default()) { "Always" } else { "IfNotPresent" };
    fill(container, "imagePullPolicy", pull);
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

fn resources(resources: &mut Value) {
    for list in ["limits", "requests"] {
        let amounts = resources.get_mut(list).and_then(Value::as_object_mut);
        for amount in amounts.into_iter().flat_map(Map::values_mut) {
            if let Some(normal) = amount.as_str().and_then(quantity::canonical) {
                *amount = normal.into();
            }
        }
    }
}

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

fn http_get(get: &mut Value) {
    fill(get, "path", "/");
    fill(get, "scheme", "HTTP");
}

/// Whether the image has the tag `latest`. Without tag and digest, `latest` is implied.
fn runs_latest(image: &str) -> bool {
    let (name, digest) = image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
    match name.rsplit('/').next().unwrap_or(name).split_once(':') {
        Some((_, tag)) => tag == "latest",
        None => digest.is_none(),
    }
}

/// Sets `object.key`, unless it has a value.
pub(crate) fn fill(object: &mut Value, key: &str, default: impl Into<Value>) {
    if object.is_object() && object[key].is_null() {
        object[key] = default.into();
    }
}

/// Returns `object.key`, and creates it as an empty object if it is missing.
pub(crate) fn child<'a>(object: &'a mut Value, key: &str) -> &'a mut Value {
    if !object.is_object() {
        *object = json!({});
    }
    fill(object, key, json!({}));
    &mut object[key]
}

fn items<'a>(object: &'a mut Value, key: &str) -> &'a mut [Value] {
    match object.get_mut(key) {
        Some(Value::Array(items)) => items,
        _ => &mut [],
    }
}
