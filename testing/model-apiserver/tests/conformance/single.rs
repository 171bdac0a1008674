//! The CRD of widgets, and single requests that random sequences do not send.

use serde_json::{Value, json};

use crate::step::{APPLY, MERGE, Step};

/// The CRD of widgets: it has defaults, and every kind of list and map.
pub(crate) fn definition(group: &str) -> Value {
    let text = json!({"type": "string"});
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "default": {}, "properties": {
            "size": {"type": "integer", "default": 1},
            "mode": {"type": "string", "enum": ["Fast", "Slow"], "default": "Slow"},
            "sidecars": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "port"],
                "items": {"type": "object", "required": ["name"], "properties": {
                    "name": text, "image": text, "port": {"type": "integer", "default": 80},
                }}},
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": text},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": text},
            "words": {"type": "array", "items": text},
            "table": {"type": "object", "additionalProperties": text},
            "inner": {"type": "object", "properties": {"flag": {"type": "boolean"}, "level": {"type": "integer", "default": 3}}},
        }},
        "status": {"type": "object", "properties": {
            "phase": text, "replicas": {"type": "integer"},
            "conditions": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
                "items": {"type": "object", "required": ["type"], "properties": {
                    "type": text, "status": text, "reason": text, "message": text, "lastTransitionTime": text,
                }}},
        }},
    }});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("widgets.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.replicas"}},
            }],
        },
    })
}

/// The requests that random sequences do not send.
pub(crate) fn questions(namespace: &str, group: &str) -> Vec<Step> {
    let core = format!("/api/v1/namespaces/{namespace}");
    let widgets = format!("/apis/{group}/v1/namespaces/{namespace}/widgets");
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let maps = format!("{core}/configmaps");
    let events = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
    let sets = format!("/apis/apps/v1/namespaces/{namespace}/daemonsets");
    let ingresses = format!("/apis/networking.k8s.io/v1/namespaces/{namespace}/ingresses");
    let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}");
    let widget =
        json!({"apiVersion": format!("{group}/v1"), "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 2}});
    let labelled = |labels: Value| json!({"apiVersion": format!("{group}/v1"), "kind": "Widget", "metadata": {"name": "l", "labels": labels}});
    let unlabelled = json!({"apiVersion": format!("{group}/v1"), "kind": "Widget", "metadata": {"name": "l"}});
    let apply = || Step::new("PATCH", &format!("{widgets}/l")).content(APPLY);
    let change_nothing =
        || Step::new("PATCH", &format!("{widgets}/l")).body(json!({"spec": {"size": 1}})).content(MERGE);
    let who = "fieldManager=one&force=true";
    vec![
        Step::new("GET", "/api/v1/namespaces/default/gadgets"),
        Step::new("GET", "/apis/unknown.example.com/v1/gadgets"),
        Step::new("GET", &format!("/apis/{group}/v1/gadgets")),
        Step::new("GET", &format!("/apis/{group}/v2/widgets")),
        Step::new("GET", &format!("{maps}/none")),
        Step::new("GET", &format!("{maps}/none/status")),
        Step::new("POST", &maps).body(map("Bad_Name")),
        Step::new("POST", &maps).body(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}})),
        Step::new("POST", &maps).body(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "gen-"}})),
        Step::new("POST", &maps).body(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "other"}})),
        Step::new("POST", &maps).body(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "resourceVersion": "7"}})),
        Step::new("POST", "/api/v1/namespaces/missing/configmaps").body(map("x")),
        Step::new("POST", &maps).body(map("x")).query("fieldManager=f"),
        Step::new("PUT", &format!("{maps}/x")).body(map("y")),
        Step::new("PUT", &format!("{maps}/y")).body(map("y")),
        Step::new("PATCH", &format!("{maps}/x")).body(map("x")).content(APPLY),
        Step::new("PATCH", &format!("{maps}/x")).body(json!({})).content(MERGE).query("force=true"),
        Step::new("PATCH", &format!("{maps}/x")).body(json!({"data": {"a": "b"}})).content("application/strategic-merge-patch+json"),
        Step::new("GET", &maps).query("resourceVersion=999999999999"),
        Step::new("GET", &maps).query("fieldSelector=data.x%3D1"),
        Step::new("POST", &widgets).body(widget.clone()),
        Step::new("PATCH", &format!("{widgets}/w")).body(json!({"spec": {}})).content("application/strategic-merge-patch+json"),
        Step::new("GET", &format!("{widgets}/w/scale")),
        Step::new("PATCH", &format!("{widgets}/w/scale")).body(json!({"spec": {"replicas": 5}})).content(MERGE),
        Step::new("PUT", &format!("{widgets}/w")).body(widget),
        Step::new("PATCH", &format!("{widgets}/none/status")).body(json!({"status": {}})).content(MERGE),
        Step::new("POST", &format!("{core}/secrets")).body(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "secret"}, "data": {"b": "eA=="}})),
        Step::new("POST", &format!("{core}/serviceaccounts")).body(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "sa"}})),
        Step::new("POST", &events).body(json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e", "namespace": namespace},
            "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Normal", "reason": "Created", "action": "Reconcile", "note": "n",
            "regarding": {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "namespace": namespace, "uid": "u"},
            "reportingController": "c", "reportingInstance": "i",
        })),
        Step::new("PATCH", &format!("{events}/e")).body(json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:01:00.000000Z"}})).content(MERGE),
        Step::new("PATCH", &format!("{events}/e")).body(json!({"series": {"count": 1}})).content(MERGE),
        Step::new("PATCH", &format!("{events}/e")).body(json!({"series": {"lastObservedTime": null}})).content(MERGE),
        Step::new("PATCH", &format!("{events}/e")).body(json!({"series": {"count": null, "lastObservedTime": null}})).content(MERGE),
        Step::new("PATCH", &format!("{events}/e")).body(json!({"reason": "Other", "series": {"count": 1}})).content(MERGE),
        Step::new("POST", &format!("{core}/pods")).body(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {"automountServiceAccountToken": false, "containers": [{"name": "c", "image": "app:1"}]}})),
        Step::new("PATCH", &format!("{core}/pods/p/status")).body(json!({"status": {"phase": "Running"}})).content(MERGE),
        Step::new("DELETE", &format!("{core}/pods/p")),
        Step::new("POST", &format!("/apis/batch/v1/namespaces/{namespace}/jobs")).body(json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
            "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "app:1"}]}}}})),
        Step::new("POST", &sets).query("fieldManager=f").body(json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"}, "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "app:1"}]}}}})),
        Step::new("PATCH", &format!("{sets}/d")).body(json!({"spec": {"minReadySeconds": 5}})).content(MERGE),
        Step::new("PATCH", &format!("{sets}/d")).body(json!({"spec": {"template": {"metadata": {"labels": {"c": "d"}}}}})).content(MERGE),
        Step::new("PATCH", &format!("{sets}/d/status")).body(json!({"status": {"numberReady": 1}})).content(MERGE),
        Step::new("POST", &format!("/apis/apps/v1/namespaces/{namespace}/statefulsets")).query("fieldManager=f").body(json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "t"}, "spec": {
                "serviceName": "t", "selector": {"matchLabels": {"a": "b"}},
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "app:1"}]}},
                "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {
                    "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]}})),
        Step::new("POST", &ingresses).body(json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "i"}, "spec": {
            "rules": [{"host": "a.example.com", "http": {"paths": [{
                "path": "/", "pathType": "Prefix", "backend": {"service": {"name": "s", "port": {"name": "http"}}}}]}}]}})),
        Step::new("PATCH", &format!("{ingresses}/i")).body(json!({"spec": {"ingressClassName": "c"}})).content(MERGE),
        Step::new("POST", &format!("{rbac}/roles")).body(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]})),
        Step::new("POST", &format!("{rbac}/rolebindings")).body(json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "r"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
            "subjects": [{"kind": "ServiceAccount", "name": "sa", "namespace": namespace}]})),
        Step::new("PATCH", &format!("{rbac}/rolebindings/r")).body(json!({"subjects": [{"kind": "User", "name": "ann"}]})).content(MERGE),
        Step::new("DELETE", &format!("{core}/serviceaccounts/sa")),
        Step::new("DELETE", &format!("{maps}/none")),
        Step::new("DELETE", &format!("{widgets}/w")),
        // An apply that removes the last label stores an empty map. Reads do not show it, and the next write removes it.
        Step::new("POST", &widgets).body(labelled(json!({"tier": "a"}))).query("fieldManager=two"),
        apply().body(labelled(json!({"tier": "b"}))).query(who),
        apply().body(unlabelled.clone()).query(format!("{who}&dryRun=All")),
        apply().body(unlabelled.clone()).query(who),
        Step::new("GET", &format!("{widgets}/l")),
        change_nothing(),
        change_nothing(),
        apply().body(unlabelled).query(who),
        Step::new("GET", "/api/v1/namespaces/missing"),
    ]
}
