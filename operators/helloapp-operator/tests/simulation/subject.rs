//! What random worlds must know about `HelloApp`: its specs, and how to judge its final state. The judge follows the specification
//! and uses none of the operator's code.

mod references;

use std::{sync::Arc, time::Duration};

use fastrand::Rng;
use helloapp_operator::HelloAppOperator;
use jiff::Timestamp;
use manager::Operator;
use model_apiserver::{Change, Model};
use serde_json::{Map, Value, json};
use simulation::{
    Subject, condition,
    oracle::{Wanted, all_done, beside, contains, counts_agree, labels, owner, say, selector, tells_of_stall},
};

/// The operator, as its specification describes it.
pub(crate) struct HelloApp;

impl Subject for HelloApp {
    fn operator(&self) -> &'static dyn Operator {
        &HelloAppOperator
    }

    fn kind(&self) -> (&'static str, &'static str) {
        ("apps.anupam.com/v1", "HelloApp")
    }

    fn resource(&self) -> &'static str {
        "helloapps.apps.anupam.com"
    }

    fn children(&self) -> &'static [&'static str] {
        &["deployments.apps", "services", "poddisruptionbudgets.policy"]
    }

    fn spec(&self, _: &str, rng: &mut Rng) -> Value {
        let mut spec = Map::new();
        spec.insert("image".to_owned(), json!(format!("example.com/app:{}", rng.u8(..3))));
        let mut sometimes = |field: &str, value: &dyn Fn(&mut Rng) -> Value| {
            if rng.u8(..3) == 0 {
                let value = value(rng);
                spec.insert(field.to_owned(), value);
            }
        };
        sometimes("size", &|rng| json!(rng.u8(..5)));
        sometimes("port", &|rng| json!(8_080 + i64::from(rng.u8(..3))));
        sometimes("command", &|rng| json!(["serve", format!("--level={}", rng.u8(..2))]));
        sometimes("env", &|rng| {
            let variable = |name: &str, rng: &mut Rng| json!({"name": name, "value": rng.u8(..3).to_string()});
            let all = ["A", "B", "C"].map(|name| variable(name, rng));
            json!(&all[rng.usize(..3)..])
        });
        sometimes("resources", &|rng| json!({"limits": {"memory": format!("{}Mi", 64 << rng.u8(..3))}}));
        sometimes("securityProfile", &|rng| json!(one_of(rng, &["Restricted", "RootAllowed", "Baseline"])));
        sometimes("rollout", &|rng| json!({"minReadySeconds": rng.u8(..40)}));
        sometimes("podDisruptionBudget", &|rng| json!({"mode": one_of(rng, &["Auto", "Always", "Never"])}));
        sometimes("podLabels", &|rng| json!({"team": format!("team-{}", rng.u8(..2))}));
        sometimes("affinity", &|_| {
            json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}},
            ]}})
        });
        sometimes(
            "topologySpreadConstraints",
            &|rng| json!([{"maxSkew": rng.u8(1..3), "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]),
        );
        let has_port = spec.contains_key("port");
        match rng.u8(..8) {
            0 | 1 if has_port => spec.insert("probe".to_owned(), json!({"disabled": true})),
            3 | 4 if has_port => spec.insert("probe".to_owned(), json!({"path": "/healthy"})),
            2 if has_port => spec.insert("startupProbe".to_owned(), json!({"failureThreshold": rng.u8(1..9)})),
            _ => None,
        };
        if has_port && rng.u8(..3) == 0 {
            let service = json!({"enabled": rng.bool(), "port": 80 + i64::from(rng.u8(..2))});
            spec.insert("service".to_owned(), service);
        }
        if rng.u8(..4) == 0 {
            spec.insert("rollback".to_owned(), json!("OnStall"));
        }
        if rng.u8(..4) == 0 {
            let rollout = spec.entry("rollout").or_insert_with(|| json!({}));
            rollout["progressDeadlineSeconds"] = json!(60 + i64::from(rng.u8(..)));
        }
        spec.into()
    }

    fn further_fields(&self, rng: &mut Rng) -> Map<String, Value> {
        let mut fields = references::draw(rng);
        let values = [
            ("args", json!([one_of(rng, &["--verbose", "--quiet"])])),
            ("nodeSelector", json!({"disk": one_of(rng, &["fast", "slow"])})),
            ("runAsUser", json!(1_000 + i64::from(rng.u8(..2)))),
        ];
        for (field, value) in values {
            fields.insert(field.to_owned(), if rng.u8(..4) == 0 { value } else { Value::Null });
        }
        fields
    }

    /// The operator reads none of these objects. Their changes must not disturb it.
    fn further_input(&self, rng: &mut Rng) -> Option<Value> {
        Some(references::draw_object(rng))
    }

    fn damage(&self, resource: &str, rng: &mut Rng) -> Option<Value> {
        Some(match resource {
            "deployments.apps" => match rng.u8(..4) {
                0 => json!({"spec": {"template": {"spec": {"automountServiceAccountToken": null}}}}),
                1 => json!({"spec": {"template": {"spec": {"enableServiceLinks": null}}}}),
                _ => json!({"spec": {"replicas": rng.u8(..9)}}),
            },
            "services" => json!({"spec": {"selector": {"app.kubernetes.io/instance": "other"}}}),
            _ => json!({"spec": {"selector": {"matchLabels": {"app.kubernetes.io/instance": "other"}}}}),
        })
    }

    fn judge(&self, object: &Value, cluster: &Model) -> Result<(), String> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let spec = &object["spec"];
        let find = |resource: &str| beside(object, cluster, resource, name).unwrap_or_default();
        let size = spec["size"].as_i64().unwrap_or(1);
        let wanted = Wanted {
            name,
            adopts: true,
            app: "helloapp",
            children: &[
                ("deployments.apps", true),
                ("services", wants_service(spec)),
                ("poddisruptionbudgets.policy", wants_budget(spec, size)),
            ],
            fits: |_, _| true,
        };
        if !wanted.are_there(object, cluster)? {
            return Ok(());
        }
        let deployment = find("deployments.apps");
        let is_rolled_back = condition(&object["status"], "Degraded")["reason"] == "RolledBack";
        if !is_rolled_back {
            contains(&deployment, &wanted_deployment(object), "Deployment")?;
            has_no_more(&deployment, spec)?;
        }
        if wants_service(spec) {
            let service = find("services");
            let port = spec["service"]["port"].as_i64().unwrap_or(80);
            let wanted = json!({
                "metadata": {"labels": labels("helloapp", name), "ownerReferences": [owner(object)]},
                "spec": {
                    "selector": selector("helloapp", name),
                    "ports": [{"port": port, "targetPort": "http", "protocol": "TCP"}],
                },
            });
            contains(&service, &wanted, "Service")?;
        }
        if wants_budget(spec, size) {
            let wanted = json!({"spec": {"selector": {"matchLabels": selector("helloapp", name)}}});
            contains(&find("poddisruptionbudgets.policy"), &wanted, "PodDisruptionBudget")?;
        }
        let is_complete = condition(&deployment["status"], "Progressing")["reason"] == "NewReplicaSetAvailable";
        let rollout = &object["status"]["rollout"];
        if is_complete && !rollout.is_null() {
            return Err(format!("the rollout is complete, and status.rollout is {rollout}"));
        }
        if is_rolled_back {
            judge_rollback(object, cluster)?;
            judge_rolled_back(object, &deployment)
        } else {
            judge_status(object, &deployment)
        }
    }

    /// Section 3.8 of the specification, item 11.
    fn judge_stall(&self, object: &Value, stalled_for: Duration, now: Timestamp) -> Result<(), String> {
        tells_of_stall(&object["status"], stalled_for, now)
    }
}

/// Checks that a release was given up only after its Deployment had reported that it stalled. Otherwise the operator may give up
/// only releases whose `ReplicaSet` the Deployment names and whose pods crash, and in these worlds no Deployment names one.
fn judge_rollback(object: &Value, cluster: &Model) -> Result<(), String> {
    let metadata = &object["metadata"];
    let [namespace, name] = ["namespace", "name"].map(|it| metadata[it].as_str().unwrap_or_default());
    let key = format!("{namespace}/{name}");
    let mut changes = cluster.changes_after(0);
    changes.retain(|it| *it.key == *key);
    let is_decision = |it: &&Change| {
        let is_update = it.before.is_some() && *it.resource == *HelloApp.resource();
        is_update && !is_given_up(it.before.as_ref()) && is_given_up(it.after.as_ref())
    };
    // A restore clears the history, and may bring the decision back.
    let Some(decision) = changes.iter().rfind(is_decision) else { return Ok(()) };
    // The history may begin with a Deployment that had stalled before a restore.
    let is_cause = |it: &Change| {
        let is_earlier = it.version < decision.version;
        *it.resource == *"deployments.apps"
            && (has_stalled(it.before.as_ref()) || is_earlier && has_stalled(it.after.as_ref()))
    };
    if changes.iter().any(is_cause) {
        return Ok(());
    }
    Err("it is rolled back, and its Deployment has not reported a stall before".to_owned())
}

fn is_given_up(hello: Option<&Arc<Value>>) -> bool {
    hello.is_some_and(|it| !it["status"]["rolledBack"].is_null())
}

fn has_stalled(deployment: Option<&Arc<Value>>) -> bool {
    deployment.is_some_and(|it| condition(&it["status"], "Progressing")["reason"] == "ProgressDeadlineExceeded")
}

/// Section 3.4 of the specification, item 6: the spec stays, and the Deployment has the last template that was fully available.
fn judge_rolled_back(object: &Value, deployment: &Value) -> Result<(), String> {
    let status = &object["status"];
    if object["spec"]["rollback"] != "OnStall" {
        return Err("it is rolled back, which its spec does not want".to_owned());
    }
    let template = status["lastAvailableTemplate"].as_str().unwrap_or_default();
    let mut wanted = wanted_deployment(object);
    wanted["spec"]["template"] =
        serde_json::from_str(template).map_err(|error| format!("lastAvailableTemplate is {template}: {error}"))?;
    contains(deployment, &wanted, "Deployment")?;
    let rolled_back = |is| (is, "RolledBack");
    let expected =
        [("Ready", rolled_back("False")), ("Degraded", rolled_back("True")), ("Stalled", rolled_back("True"))];
    say(status, &expected)
}

fn one_of(rng: &mut Rng, values: &[&'static str]) -> &'static str {
    values[rng.usize(..values.len())]
}

/// True with a port, unless the Service is disabled.
fn wants_service(spec: &Value) -> bool {
    spec["service"]["enabled"].as_bool().unwrap_or(!spec["port"].is_null()) && !spec["port"].is_null()
}

fn wants_budget(spec: &Value, size: i64) -> bool {
    match spec["podDisruptionBudget"]["mode"].as_str().unwrap_or("Auto") {
        "Auto" => size >= 2,
        mode => mode == "Always",
    }
}

/// Section 3.3 of the specification, and section 1.8 for the security profile.
pub(crate) fn wanted_deployment(object: &Value) -> Value {
    let (name, spec) = (object["metadata"]["name"].as_str().unwrap_or_default(), &object["spec"]);
    let mut pod = json!({"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}});
    let mut container = json!({
        "name": "app", "image": spec["image"], "securityContext": {"allowPrivilegeEscalation": false},
    });
    let profile = spec["securityProfile"].as_str().unwrap_or("Restricted");
    if profile != "Baseline" {
        pod["automountServiceAccountToken"] = json!(false);
        pod["enableServiceLinks"] = json!(false);
        container["securityContext"]["capabilities"] = json!({"drop": ["ALL"]});
    }
    if profile == "Restricted" {
        pod["securityContext"]["runAsNonRoot"] = json!(true);
        container["securityContext"]["runAsNonRoot"] = json!(true);
    }
    for field in ["command", "args", "env"] {
        if !spec[field].is_null() {
            container[field] = spec[field].clone();
        }
    }
    container["resources"] = match &spec["resources"] {
        Value::Null => json!({"requests": {"cpu": "50m", "memory": "64Mi"}}),
        given => given.clone(),
    };
    if let Some(port) = spec["port"].as_i64() {
        container["ports"] = json!([{"name": "http", "containerPort": port, "protocol": "TCP"}]);
        if spec["probe"]["disabled"] != true {
            container["readinessProbe"] =
                probe(spec, json!({"periodSeconds": 5, "timeoutSeconds": 2, "failureThreshold": 3}));
            container["livenessProbe"] =
                probe(spec, json!({"initialDelaySeconds": 15, "periodSeconds": 10, "failureThreshold": 6}));
        }
    }
    if !spec["startupProbe"].is_null() {
        let failure_threshold = &spec["startupProbe"]["failureThreshold"];
        container["startupProbe"] =
            probe(spec, json!({"periodSeconds": 10, "timeoutSeconds": 2, "failureThreshold": failure_threshold}));
    }
    if !spec["runAsUser"].is_null() {
        container["securityContext"]["runAsUser"] = spec["runAsUser"].clone();
    }
    // Those who apply a spec without the only label may leave an empty selector.
    if !spec["nodeSelector"]["disk"].is_null() {
        pod["nodeSelector"] = spec["nodeSelector"].clone();
    }
    for field in ["affinity", "topologySpreadConstraints"] {
        if !spec[field].is_null() {
            pod[field] = spec[field].clone();
        }
    }
    pod["containers"] = json!([container]);
    references::refer(&mut pod, spec);
    let rollout = &spec["rollout"];
    let deadline = rollout["progressDeadlineSeconds"].as_i64().unwrap_or(600);
    // Without a probe, nothing but time tells whether a pod serves.
    let has_probe = !spec["port"].is_null() && spec["probe"]["disabled"] != true;
    let unproven = if spec["rollback"] == "OnStall" { 30_i64 } else { 10 };
    let least = if has_probe { 0 } else { unproven.min(deadline - 1) };
    let mut pod_labels = labels("helloapp", name);
    for (key, value) in spec["podLabels"].as_object().into_iter().flatten() {
        pod_labels[key] = value.clone();
    }
    json!({
        "metadata": {"labels": labels("helloapp", name), "ownerReferences": [owner(object)]},
        "spec": {
            "replicas": spec["size"].as_i64().unwrap_or(1),
            "progressDeadlineSeconds": deadline,
            "minReadySeconds": rollout["minReadySeconds"].as_i64().unwrap_or(0).max(least),
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            "selector": {"matchLabels": selector("helloapp", name)},
            "template": {"metadata": {"labels": pod_labels}, "spec": pod},
        },
    })
}

/// A probe with these limits, over HTTP if the spec has a path.
fn probe(spec: &Value, mut limits: Value) -> Value {
    match &spec["probe"]["path"] {
        Value::Null => limits["tcpSocket"] = json!({"port": "http"}),
        path => limits["httpGet"] = json!({"path": path, "port": "http"}),
    }
    limits
}

/// Checks that the Deployment has no field that only an earlier spec had.
fn has_no_more(deployment: &Value, spec: &Value) -> Result<(), String> {
    let pod = &deployment["spec"]["template"];
    let container = &pod["spec"]["containers"][0];
    let has_probes = !spec["port"].is_null() && spec["probe"]["disabled"] != true;
    for (what, live, is_wanted) in [
        ("ports", &container["ports"], !spec["port"].is_null()),
        ("command", &container["command"], !spec["command"].is_null()),
        ("args", &container["args"], !spec["args"].is_null()),
        ("runAsUser", &container["securityContext"]["runAsUser"], !spec["runAsUser"].is_null()),
        ("nodeSelector", &pod["spec"]["nodeSelector"], !spec["nodeSelector"]["disk"].is_null()),
        ("env", &container["env"], !spec["env"].is_null()),
        ("envFrom", &container["envFrom"], references::has_list(spec, "envFrom")),
        ("volumeMounts", &container["volumeMounts"], references::has_list(spec, "volumeMounts")),
        ("volumes", &pod["spec"]["volumes"], references::has_list(spec, "volumes")),
        ("limits", &container["resources"]["limits"], !spec["resources"].is_null()),
        ("readinessProbe", &container["readinessProbe"], has_probes),
        ("livenessProbe", &container["livenessProbe"], has_probes),
        ("httpGet", &container["readinessProbe"]["httpGet"], has_probes && !spec["probe"]["path"].is_null()),
        ("tcpSocket", &container["readinessProbe"]["tcpSocket"], has_probes && spec["probe"]["path"].is_null()),
        ("startupProbe", &container["startupProbe"], !spec["startupProbe"].is_null()),
        ("affinity", &pod["spec"]["affinity"], !spec["affinity"].is_null()),
        (
            "topologySpreadConstraints",
            &pod["spec"]["topologySpreadConstraints"],
            !spec["topologySpreadConstraints"].is_null(),
        ),
        ("a label", &pod["metadata"]["labels"]["team"], !spec["podLabels"].is_null()),
    ] {
        let is_there = !live.is_null() && *live != json!([]);
        if is_there && !is_wanted {
            return Err(format!("{what} is left over: {live}"));
        }
    }
    Ok(())
}

/// Section 3.2 of the specification, for a world at rest.
fn judge_status(object: &Value, deployment: &Value) -> Result<(), String> {
    let (name, spec, status) =
        (object["metadata"]["name"].as_str().unwrap_or_default(), &object["spec"], &object["status"]);
    let wanted = json!({
        "image": spec["image"],
        "labelSelector": format!("app.kubernetes.io/instance={name},app.kubernetes.io/name=helloapp"),
        "url": if wants_service(spec) {
            json!(format!("http://{name}.{}.svc:{}", object["metadata"]["namespace"].as_str().unwrap_or_default(), spec["service"]["port"].as_i64().unwrap_or(80)))
        } else {
            Value::Null
        },
    });
    contains(status, &wanted, "status")?;
    counts_agree(status, deployment, &["replicas", "readyReplicas", "availableReplicas", "updatedReplicas"])?;
    let (ready, available) = match spec["size"].as_i64() {
        Some(0) => ("ScaledToZero", "ScaledToZero"),
        _ => ("Ready", "MinimumReplicasAvailable"),
    };
    all_done(status, ready, available)
}
