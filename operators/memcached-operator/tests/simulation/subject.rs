//! What random worlds must know about `Memcached`: its specs, and how to judge its final state. The judge follows the
//! specification and uses none of the operator's code.

pub(crate) mod history;
mod metrics;
mod placement;
pub(crate) mod secured;

use std::time::Duration;

use fastrand::Rng;
use jiff::Timestamp;
use manager::Operator;
use memcached_operator::MemcachedOperator;
use model_apiserver::Model;
use serde_json::{Map, Value, json};
use simulation::{
    Subject,
    oracle::{Wanted, all_done, beside, contains, counts_agree, labels, owner, say, selector, tells_of_stall},
};

/// The operator, as its specification describes it.
pub(crate) struct Memcached;

const PORT: i64 = 11_211;
/// A Secret with users and their passwords.
pub(crate) const SECRET: &str = "users";

impl Subject for Memcached {
    fn operator(&self) -> &'static dyn Operator {
        &MemcachedOperator
    }

    fn kind(&self) -> (&'static str, &'static str) {
        ("memcached.cache.example.com/v1", "Memcached")
    }

    fn resource(&self) -> &'static str {
        "memcacheds.memcached.cache.example.com"
    }

    fn children(&self) -> &'static [&'static str] {
        &["deployments.apps", "services", "poddisruptionbudgets.policy", "networkpolicies.networking.k8s.io"]
    }

    /// Passwords that the operator generates.
    fn makes(&self) -> &'static [&'static str] {
        &["secrets"]
    }

    fn spec(&self, _: &str, rng: &mut Rng) -> Value {
        let mut spec = Map::new();
        let mut sometimes = |spec: &mut Map<String, Value>, field: &str, value: &dyn Fn(&mut Rng) -> Value| {
            if rng.u8(..3) == 0 {
                let value = value(rng);
                spec.insert(field.to_owned(), value);
            }
        };
        sometimes(&mut spec, "size", &|rng| json!(rng.u8(..5)));
        sometimes(&mut spec, "size", &|rng| json!(rng.u8(..5)));
        sometimes(&mut spec, "image", &|rng| json!(format!("example.com/memcached:1.{}", rng.u8(..3))));
        sometimes(&mut spec, "port", &|rng| json!(11_211 + i64::from(rng.u8(..3))));
        sometimes(&mut spec, "config", &|rng| {
            let mut config = json!({"memoryMB": 64 << rng.u8(..3)});
            if rng.bool() {
                config["evictions"] = json!(rng.bool());
            }
            if rng.bool() {
                config["maxConnections"] = json!(512 << rng.u8(..3));
            }
            config
        });
        sometimes(
            &mut spec,
            "podDisruptionBudget",
            &|rng| json!({"mode": one_of(rng, &["Auto", "Always", "Never"]), "maxUnavailable": rng.u8(1..3)}),
        );
        sometimes(
            &mut spec,
            "service",
            &|rng| json!({"type": one_of(rng, &["Headless", "ClusterIP"]), "annotations": {"zone": rng.u8(..2).to_string()}}),
        );
        sometimes(&mut spec, "rollout", &|rng| json!({"minReadySeconds": rng.u8(..40)}));
        sometimes(&mut spec, "podLabels", &|rng| json!({"team": format!("team-{}", rng.u8(..2))}));
        sometimes(&mut spec, "podAnnotations", &|rng| json!({"note": rng.u8(..2).to_string()}));
        sometimes(&mut spec, "networkPolicy", &|rng| json!({"enabled": rng.bool()}));
        sometimes(&mut spec, "auth", &|rng| {
            if rng.bool() { json!({"secretName": SECRET}) } else { json!({"generate": true}) }
        });
        sometimes(&mut spec, "terminationGracePeriodSeconds", &|rng| json!(rng.u8(6..90)));
        spec.into()
    }

    fn further_fields(&self, rng: &mut Rng) -> Map<String, Value> {
        let mut fields = metrics::draw(rng);
        fields.insert("tls".to_owned(), secured::draw_tls(rng));
        fields.extend(placement::draw(rng));
        fields
    }

    fn further_input(&self, rng: &mut Rng) -> Option<Value> {
        if rng.bool() { self.input(rng) } else { Some(secured::draw_certificates(rng)) }
    }

    fn input(&self, rng: &mut Rng) -> Option<Value> {
        let users = one_of(rng, &["YTph", "YTpi", "YTpj"]); // a:a, a:b, a:c
        let data = json!({"password-file": users});
        Some(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "data": data}))
    }

    fn damage(&self, resource: &str, rng: &mut Rng) -> Option<Value> {
        Some(match resource {
            "deployments.apps" => match rng.u8(..4) {
                0 => json!({"spec": {"template": {"spec": {"automountServiceAccountToken": null}}}}),
                1 => json!({"spec": {"template": {"spec": {"enableServiceLinks": null}}}}),
                _ => json!({"spec": {"replicas": rng.u8(..9)}}),
            },
            "services" => json!({"spec": {"selector": {"app.kubernetes.io/instance": "other"}}}),
            "poddisruptionbudgets.policy" => json!({"spec": {"maxUnavailable": rng.u8(3..9)}}),
            _ => json!({"spec": {"podSelector": {"matchLabels": {"app.kubernetes.io/instance": "other"}}}}),
        })
    }

    fn judge(&self, object: &Value, cluster: &Model) -> Result<(), String> {
        let follows_secret = judge_children(object, cluster)? == Children::FollowSecret;
        if follows_secret { history::follows_secrets(object, cluster) } else { Ok(()) }
    }

    /// As [`judge`](Subject::judge), but the pods may still have the hash of an earlier Secret: the operator reads Secrets once a
    /// minute.
    fn judge_claim(&self, object: &Value, cluster: &Model) -> Result<(), String> {
        judge_children(object, cluster).map(drop)
    }

    /// Section 2.4 of the specification, item 10.
    fn judge_stall(&self, object: &Value, stalled_for: Duration, now: Timestamp) -> Result<(), String> {
        tells_of_stall(&object["status"], stalled_for, now)
    }
}

/// What the children of an object have been found to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Children {
    /// They are as wanted, and the pods have files of the Secrets that the spec names.
    FollowSecret,
    /// They are as wanted, and no Secret of users matters.
    AsWanted,
    /// They are not as wanted, and the status says why.
    Excused,
}

fn judge_children(object: &Value, cluster: &Model) -> Result<Children, String> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let (spec, status) = (&object["spec"], &object["status"]);
    let find = |resource: &str| beside(object, cluster, resource, name);

    let size = spec["size"].as_i64().unwrap_or(1);
    let budget = &spec["podDisruptionBudget"];
    let wants_budget = match budget["mode"].as_str().unwrap_or("Auto") {
        "Auto" => size >= 2,
        mode => mode == "Always",
    };
    let wants_policy = spec["networkPolicy"]["enabled"] == true;
    let wanted = Wanted {
        name,
        adopts: true,
        app: "memcached",
        children: &[
            ("deployments.apps", true),
            ("services", true),
            ("poddisruptionbudgets.policy", wants_budget),
            ("networkpolicies.networking.k8s.io", wants_policy),
        ],
        // A Service cannot change from headless to an address of its own, or back.
        fits: |object, child| {
            child["kind"] != "Service" || is_headless(object) == (child["spec"]["clusterIP"] == "None")
        },
    };
    let mounted = secured::mounted(name, spec);
    if !secured::are_complete(object, &mounted, cluster) {
        // Its children may exist from before a Secret or its key went missing, or not exist yet.
        let says = |reason| say(status, &[("Ready", ("False", reason)), ("Degraded", ("True", reason))]);
        says("SecretNotFound").or_else(|why| says("ResourceConflict").map_err(|_| why))?;
        return Ok(Children::Excused);
    }
    if !wanted.are_there(object, cluster)? {
        return Ok(Children::Excused);
    }
    let deployment = find("deployments.apps").unwrap_or_default();
    contains(&deployment, &wanted_deployment(object), "Deployment")?;
    if spec["auth"]["generate"] == true {
        let secret = beside(object, cluster, "secrets", &format!("{name}-auth")).unwrap_or_default();
        let wanted = json!({"metadata": {"labels": labels("memcached", name), "ownerReferences": [owner(object)]}});
        contains(&secret, &wanted, "Secret")?;
        for key in ["username", "password", "password-file"] {
            if secret["data"][key].as_str().is_none_or(str::is_empty) {
                return Err(format!("the generated Secret has no {key}"));
            }
        }
    }
    let service = find("services").unwrap_or_default();
    contains(&service, &wanted_service(object), "Service")?;
    if is_headless(object) != (service["spec"]["clusterIP"] == "None") {
        return Err(format!("headless: {}, and the address is {}", is_headless(object), service["spec"]["clusterIP"]));
    }
    if wants_budget {
        let live = find("poddisruptionbudgets.policy").unwrap_or_default();
        let unavailable = if budget["maxUnavailable"].is_null() { &json!(1) } else { &budget["maxUnavailable"] };
        let wanted = json!({"spec": {
            "maxUnavailable": unavailable, "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": selector("memcached", name)},
        }});
        contains(&live, &wanted, "PodDisruptionBudget")?;
    }
    if wants_policy {
        contains(
            &find("networkpolicies.networking.k8s.io").unwrap_or_default(),
            &wanted_policy(object),
            "NetworkPolicy",
        )?;
    }
    history::has_no_more(&deployment, &service, spec, cluster)?;
    judge_status(object, status, &deployment, cluster)?;
    let names_secret = mounted.iter().any(|it| it.is_named);
    Ok(if names_secret { Children::FollowSecret } else { Children::AsWanted })
}

fn is_headless(object: &Value) -> bool {
    object["spec"]["service"]["type"].as_str().unwrap_or("Headless") == "Headless"
}

fn one_of(rng: &mut Rng, values: &[&'static str]) -> &'static str {
    values[rng.usize(..values.len())]
}

/// Section 2.3 of the specification, and section 1.7b for labels and annotations of users.
pub(crate) fn wanted_deployment(object: &Value) -> Value {
    let (name, spec) = (object["metadata"]["name"].as_str().unwrap_or_default(), &object["spec"]);
    let number = |value: &Value, default: i64| value.as_i64().unwrap_or(default);
    let config = &spec["config"];
    let (memory, connections) = (number(&config["memoryMB"], 64), number(&config["maxConnections"], 1_024));
    let port = number(&spec["port"], PORT);
    let mut args: Vec<String> = [
        ("-m", memory.to_string()),
        ("-c", connections.to_string()),
        ("-t", number(&config["threads"], 4).to_string()),
        ("-I", format!("{}k", number(&config["maxItemSizeKiB"], 1_024))),
        ("-p", port.to_string()),
    ]
    .into_iter()
    .flat_map(|(flag, value)| [flag.to_owned(), value])
    .collect();
    if config["evictions"] == false {
        args.push("-M".to_owned());
    }
    if !spec["auth"].is_null() {
        args.extend(["-Y", "/etc/memcached/passwords/password-file"].map(str::to_owned));
    }
    args.extend(secured::tls_flags(spec));
    let need = format!("{}Mi", memory + 32 + (memory + 9) / 10 + (connections + 255) / 256);
    let mut pod_labels = labels("memcached", name);
    pod_labels["app.kubernetes.io/component"] = json!("cache");
    merge(&mut pod_labels, &spec["podLabels"]);
    let mut template = json!({
        "metadata": {"labels": pod_labels},
        "spec": {
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "terminationGracePeriodSeconds": number(&spec["terminationGracePeriodSeconds"], 30),
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "memcached",
                "image": spec["image"].as_str().unwrap_or("docker.io/library/memcached:1.6"),
                "args": args,
                "ports": [{"name": "memcached", "containerPort": port, "protocol": "TCP"}],
                "lifecycle": {"preStop": {"sleep": {"seconds": 5}}},
                "resources": {"requests": {"cpu": "50m", "memory": need}, "limits": {"memory": need}},
                "securityContext": {
                    "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": true,
                    "runAsUser": 11_211, "readOnlyRootFilesystem": true,
                },
            }],
        },
    });
    placement::place(&mut template["spec"], name, spec);
    secured::mount(&mut template["spec"], &secured::mounted(name, spec));
    if let Some(containers) = template["spec"]["containers"].as_array_mut() {
        containers.extend(metrics::exporter(spec));
    }
    if !spec["podAnnotations"].is_null() {
        template["metadata"]["annotations"] = spec["podAnnotations"].clone();
    }
    json!({
        "metadata": {"labels": labels("memcached", name), "ownerReferences": [owner(object)]},
        "spec": {
            "replicas": number(&spec["size"], 1),
            "revisionHistoryLimit": 10,
            "progressDeadlineSeconds": 600,
            "minReadySeconds": number(&spec["rollout"]["minReadySeconds"], 10),
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "selector": {"matchLabels": selector("memcached", name)},
            "template": template,
        },
    })
}

pub(crate) fn wanted_service(object: &Value) -> Value {
    let (name, spec) = (object["metadata"]["name"].as_str().unwrap_or_default(), &object["spec"]);
    let port = spec["port"].as_i64().unwrap_or(PORT);
    let mut service = json!({
        "metadata": {"labels": labels("memcached", name), "ownerReferences": [owner(object)]},
        "spec": {
            "selector": selector("memcached", name),
            "ports": [{"name": "memcached", "port": port, "targetPort": "memcached", "protocol": "TCP"}],
        },
    });
    let exporters = metrics::port(spec)
        .map(|port| json!({"name": "metrics", "port": port, "targetPort": "metrics", "protocol": "TCP"}));
    if let Some(ports) = service["spec"]["ports"].as_array_mut() {
        ports.extend(exporters);
    }
    if !spec["service"]["annotations"].is_null() {
        service["metadata"]["annotations"] = spec["service"]["annotations"].clone();
    }
    service
}

/// Section 2.1 of the specification, `networkPolicy`.
pub(crate) fn wanted_policy(object: &Value) -> Value {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    json!({
        "metadata": {"labels": labels("memcached", name), "ownerReferences": [owner(object)]},
        "spec": {
            "podSelector": {"matchLabels": selector("memcached", name)},
            "policyTypes": ["Ingress"],
            "ingress": metrics::ingress(&object["spec"]),
        },
    })
}

/// Section 2.2 of the specification, for a world at rest.
fn judge_status(object: &Value, status: &Value, deployment: &Value, cluster: &Model) -> Result<(), String> {
    let (name, spec) = (&object["metadata"]["name"], &object["spec"]);
    let (size, port) = (spec["size"].as_i64().unwrap_or(1), spec["port"].as_i64().unwrap_or(PORT));
    let mut pods = cluster.objects("pods");
    pods.retain(|pod| {
        pod["metadata"]["labels"]["app.kubernetes.io/instance"] == *name
            && pod["metadata"]["namespace"] == object["metadata"]["namespace"]
            && pod["metadata"]["deletionTimestamp"].is_null()
    });
    let mut nodes: Vec<&str> = pods.iter().filter_map(|pod| pod["metadata"]["name"].as_str()).collect();
    nodes.sort_unstable();
    let mut endpoints: Vec<String> = pods
        .iter()
        .filter(|pod| pod["status"]["conditions"][0]["status"] == "True")
        .map(|pod| format!("{}:{port}", pod["status"]["podIP"].as_str().unwrap_or_default()))
        .collect();
    endpoints.sort_unstable();
    let image = spec["image"].as_str().unwrap_or("docker.io/library/memcached:1.6");
    let wanted = json!({
        "nodes": nodes, "image": image,
        "labelSelector": format!("app.kubernetes.io/instance={},app.kubernetes.io/name=memcached", name.as_str().unwrap_or_default()),
    });
    contains(status, &wanted, "status")?;
    let said: Vec<&str> = status["endpoints"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if said != endpoints {
        return Err(format!("endpoints are {said:?}, not {endpoints:?}"));
    }
    counts_agree(status, deployment, &["replicas", "readyReplicas", "updatedReplicas"])?;
    let (ready, available) =
        if size == 0 { ("ScaledToZero", "ScaledToZero") } else { ("Ready", "MinimumNodesAvailable") };
    all_done(status, ready, available)
}

fn merge(into: &mut Value, more: &Value) {
    for (key, value) in more.as_object().into_iter().flatten() {
        if into.get(key).is_none() {
            into[key] = value.clone();
        }
    }
}
