use k8s_openapi::api::core::v1::PodSpec;
use serde_json::{Value, json};
use workloads::{Proof, SecurityPolicy, SecurityProfile};

use super::*;
use crate::samples;

fn pod_of(spec: &Value) -> PodSpec {
    template(&samples::with_spec(spec), SecurityProfile::default()).spec.expect("a pod")
}

/// The profile of the object, under an operator that permits all.
fn profile(hello: &HelloApp) -> SecurityProfile {
    SecurityPolicy::default().profile(hello.spec.security_profile).expect("a permitted profile")
}

fn children(hello: &HelloApp) -> Value {
    json!({
        "deployment": deployment(hello, template(hello, profile(hello))),
        "service": service(hello),
        "disruptionBudget": disruption_budget(hello),
    })
}

#[test]
fn the_children_of_the_samples() {
    insta::assert_yaml_snapshot!("the_children_of_the_first_sample", children(&samples::seed()));
    insta::assert_yaml_snapshot!("the_children_of_the_web_sample", children(&samples::web()));
}

/// Snapshots of what each field changes, compared with an object that has only an image.
#[test]
fn t13_changes_of_each_field() {
    let env = [
        json!({"name": "A", "value": "b"}),
        json!({"name": "C", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "d"}}}),
    ];
    let specs = [
        json!({"size": 0}),
        json!({"size": 3}),
        json!({"port": 8080}),
        json!({"port": 8080, "probe": {"path": "/ok"}}),
        json!({"port": 8080, "probe": {"disabled": true}, "service": {"port": 81, "annotations": {"a": "b"}}}),
        json!({"port": 8080, "service": {"enabled": false}}),
        json!({"port": 8080, "probe": {"path": "/ok"}, "startupProbe": {"failureThreshold": 60}}),
        json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]}),
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "disk", "operator": "Exists", "values": []}], "matchFields": []},
        ]}}}}),
        json!({"command": ["/run"], "args": ["a", "b"]}),
        json!({"env": env, "envFrom": [{"secretRef": {"name": "s"}}]}),
        json!({"resources": {"requests": {"cpu": 1}, "limits": {"memory": "1024Mi"}}}),
        json!({"imagePullPolicy": "Always", "imagePullSecrets": [{"name": "s"}], "serviceAccountName": "robot"}),
        json!({"nodeSelector": {"a": "b"}, "tolerations": [{"key": "a", "operator": "Exists", "value": ""}]}),
        json!({"securityProfile": "RootAllowed"}),
        json!({"securityProfile": "Baseline", "runAsUser": 0}),
        json!({"rollout": {"maxSurge": 1, "maxUnavailable": 0, "minReadySeconds": 45, "progressDeadlineSeconds": 60}}),
        json!({"podLabels": {"a": "b"}, "podAnnotations": {"c": "d"}, "podDisruptionBudget": {"mode": "Always"}}),
        json!({"volumes": [{"name": "v", "emptyDir": {}}], "volumeMounts": [{"name": "v", "mountPath": "/v", "readOnly": false}]}),
    ];
    let plain = json!({"image": "app:1"});
    let bare = children(&samples::with_spec(&plain));
    let changed = specs.map(|fields| {
        let mut spec = plain.clone();
        spec.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
        let hello = samples::with_spec(&spec);
        assert_eq!(children(&hello).to_string(), children(&hello).to_string(), "built twice");
        json!({"given": fields, "changes": difference(&bare, &children(&hello))})
    });
    insta::assert_yaml_snapshot!(changed);
}

/// Returns the fields of `new` that differ from `old`; `null` for fields that only `old` has.
fn difference(old: &Value, new: &Value) -> Value {
    let (Value::Object(old), Value::Object(fields)) = (old, new) else {
        return match (old.as_array().map(Vec::as_slice), new.as_array().map(Vec::as_slice)) {
            (Some([old]), Some([new])) => json!([difference(old, new)]),
            _ => new.clone(),
        };
    };
    let gone = old.keys().filter(|name| !fields.contains_key(*name)).map(|name| (name.clone(), Value::Null));
    let changed = fields.iter().filter(|(name, value)| old.get(*name) != Some(value));
    let changed = changed.map(|(name, value)| match old.get(name) {
        Some(before) => (name.clone(), difference(before, value)),
        None => (name.clone(), value.clone()),
    });
    gone.chain(changed).collect()
}

#[test]
fn pod_template_ignores_fields_outside_the_pod() {
    let template = |spec: &Value| template(&samples::with_spec(spec), SecurityProfile::default());
    let bare = template(&json!({"image": "app:1"}));
    for spec in [
        json!({"image": "app:1", "size": 0}),
        json!({"image": "app:1", "rollout": {"maxSurge": 0, "maxUnavailable": 1}}),
        json!({"image": "app:1", "podDisruptionBudget": {"mode": "Always"}}),
        json!({"image": "app:1", "rollback": "OnStall"}),
    ] {
        assert_eq!(template(&spec), bare, "{spec}");
    }
    let with_port = template(&json!({"image": "app:1", "port": 80}));
    assert_eq!(template(&json!({"image": "app:1", "port": 80, "service": {"port": 81}})), with_port);
}

#[test]
fn profile_decides_whether_the_image_may_run_as_root() {
    let non_root = |profile| {
        let pod = template(&samples::with_spec(&json!({"image": "a"})), profile).spec.expect("a pod");
        pod.security_context.and_then(|it| it.run_as_non_root)
    };
    assert_eq!(non_root(SecurityProfile::RootAllowed), None);
    assert_eq!(non_root(SecurityProfile::Restricted), Some(true));
}

#[test]
fn token_is_mounted_only_with_a_named_account() {
    let token = |spec: &Value| pod_of(spec).automount_service_account_token;
    assert_eq!(token(&json!({"image": "a"})), Some(false));
    assert_eq!(token(&json!({"image": "a", "serviceAccountName": "robot"})), None);
}

#[test]
fn release_without_a_probe_proves_itself_for_a_while() {
    let min_ready = |more: &Value| {
        let mut spec = json!({"image": "a"});
        spec.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let hello = samples::with_spec(&spec);
        let seconds = deployment(&hello, template(&hello, profile(&hello))).spec.and_then(|it| it.min_ready_seconds);
        if let Proof::Seconds(counted) = proof(&hello) {
            assert_eq!(counted, seconds.unwrap_or(0), "the status and the Deployment count the same time");
        }
        seconds
    };
    assert_eq!(min_ready(&json!({})), Some(10));
    assert_eq!(min_ready(&json!({"rollback": "OnStall"})), Some(30));
    assert_eq!(min_ready(&json!({"port": 80, "probe": {"disabled": true}})), Some(10));
    assert_eq!(min_ready(&json!({"rollout": {"minReadySeconds": 40}})), Some(40));
    assert_eq!(min_ready(&json!({"rollout": {"progressDeadlineSeconds": 10}})), Some(9), "the deadline is later");
    assert_eq!(min_ready(&json!({"rollback": "OnStall", "rollout": {"progressDeadlineSeconds": 20}})), Some(19));
    assert_eq!(min_ready(&json!({"port": 80})), None, "the probe proves that it serves");
    assert_eq!(min_ready(&json!({"port": 80, "rollout": {"minReadySeconds": 5}})), Some(5));
    let older = json!({"rollout": {"progressDeadlineSeconds": i32::MIN}});
    assert_eq!(min_ready(&older), None, "a spec that an older schema let through does not end the operator");
}

/// Otherwise the reason of a crash is only in the log.
#[test]
fn failed_program_leaves_the_end_of_its_log() {
    let pod = template(&samples::with_spec(&json!({"image": "a"})), SecurityProfile::Restricted).spec.expect("a pod");
    assert_eq!(pod.containers[0].termination_message_policy.as_deref(), Some("FallbackToLogsOnError"));
    // A template that an earlier release stored can still be restored.
    let mut earlier = pod;
    earlier.containers[0].termination_message_policy = None;
    assert!(is_possible(&earlier, SecurityProfile::Restricted));
}

#[test]
fn only_pods_that_a_spec_can_describe_are_possible() {
    use SecurityProfile::{Baseline, Restricted, RootAllowed};
    let pod = |hello: &HelloApp, profile| template(hello, profile).spec.expect("a pod");
    let plain = json!({"image": "a"});
    let account = json!({
        "image": "a", "serviceAccountName": "robot", "runAsUser": 7, "port": 80, "startupProbe": {}, "affinity": {},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
    });
    let everything = serde_json::to_value(samples::web().spec).expect("JSON");
    for spec in [&plain, &account, &everything] {
        let hello = samples::with_spec(spec);
        for profile in [Restricted, RootAllowed, Baseline] {
            let possible = [Restricted, RootAllowed, Baseline].map(|other| is_possible(&pod(&hello, profile), other));
            assert_eq!(possible, [Restricted, RootAllowed, Baseline].map(|other| other == profile), "{spec} {profile}");
        }
    }
    for (path, value) in [
        ("/hostNetwork", json!(true)),
        ("/hostPID", json!(true)),
        ("/initContainers", json!([{"name": "a", "image": "b"}])),
        ("/containers/0/securityContext/privileged", json!(true)),
        ("/containers/0/securityContext/capabilities", json!({"drop": ["ALL"], "add": ["SYS_ADMIN"]})),
        ("/containers/0/lifecycle", json!({"postStart": {"exec": {"command": ["a"]}}})),
        ("/containers/0/ports", json!([{"containerPort": 80, "hostPort": 80}])),
        ("/containers/0/ports", json!([{"containerPort": 80, "hostIP": "127.0.0.1"}])),
        ("/volumes", json!([{"name": "a", "hostPath": {"path": "/"}}])),
        ("/securityContext/seccompProfile", json!({"type": "Unconfined"})),
        ("/automountServiceAccountToken", json!(true)),
    ] {
        let mut forged = serde_json::to_value(pod(&samples::with_spec(&plain), Restricted)).expect("JSON");
        let (parent, field) = path.rsplit_once('/').expect("a path");
        forged.pointer_mut(parent).expect("a parent")[field] = value;
        let forged: PodSpec = serde_json::from_value(forged).expect("a pod");
        assert!([Restricted, RootAllowed, Baseline].iter().all(|it| !is_possible(&forged, *it)), "{path}");
    }
}

#[test]
fn deployment_has_no_empty_fields() {
    fn empty(path: &str, value: &Value) -> Option<String> {
        let inner = |(name, value): (String, &Value)| empty(&format!("{path}/{name}"), value);
        match value {
            Value::Array(items) if !items.is_empty() => {
                items.iter().enumerate().map(|(index, it)| (index.to_string(), it)).find_map(inner)
            }
            Value::Object(fields) if !fields.is_empty() => {
                fields.iter().map(|(name, it)| (name.clone(), it)).find_map(inner)
            }
            Value::Bool(_) | Value::Number(_) => None,
            Value::Object(_) if path.ends_with("/emptyDir") => None,
            Value::String(text) if !text.is_empty() => None,
            _ => Some(path.to_owned()),
        }
    }
    for spec in [json!({"image": "a"}), serde_json::to_value(samples::web().spec).expect("JSON")] {
        let hello = samples::with_spec(&spec);
        let sent = serde_json::to_value(deployment(&hello, template(&hello, profile(&hello)))).expect("JSON");
        assert_eq!(empty("", &sent), None);
    }
}
