//! The judge has to find each mistake that it is for. Worlds of a correct operator make none of them.

use model_apiserver::Model;
use serde_json::{Value, json};
use simulation::Subject;

use crate::subject::{
    Memcached, SECRET, history::HASH, secured::CERTIFICATES, wanted_deployment, wanted_policy, wanted_service,
};

/// A Memcached without pods, at rest.
fn object(spec: &Value) -> Value {
    let condition =
        |type_: &str, status: &str, reason: &str| json!({"type": type_, "status": status, "reason": reason});
    json!({
        "apiVersion": "memcached.cache.example.com/v1", "kind": "Memcached",
        "metadata": {"name": "a", "namespace": "shop", "uid": "uid of the Memcached"},
        "spec": spec,
        "status": {
            "nodes": [], "endpoints": [], "image": "docker.io/library/memcached:1.6",
            "labelSelector": "app.kubernetes.io/instance=a,app.kubernetes.io/name=memcached",
            "conditions": [
                condition("Ready", "True", "ScaledToZero"),
                condition("Available", "True", "ScaledToZero"),
                condition("Progressing", "False", "Stable"),
                condition("Degraded", "False", "AsExpected"),
            ],
        },
    })
}

/// Stores a child, with the entry of the operator in `managedFields` or without.
fn put(model: &Model, api_version: &str, kind: &str, has_entry: bool, mut child: Value) {
    child["apiVersion"] = api_version.into();
    child["kind"] = kind.into();
    let metadata = &mut child["metadata"];
    metadata["namespace"] = "shop".into();
    metadata["uid"] = format!("uid of the {kind}").into();
    if metadata["name"].is_null() {
        metadata["name"] = "a".into();
    }
    if has_entry {
        metadata["managedFields"] = json!([{"manager": "memcached-controller", "operation": "Apply"}]);
    }
    model.put(child);
}

/// Sets the field at this path, whose steps have dots between them.
fn set(child: &mut Value, path: &str, value: &Value) {
    let place = path.split('.').fold(child, |at, step| match step.parse::<usize>() {
        Ok(index) => &mut at[index],
        Err(_) => &mut at[step],
    });
    *place = value.clone();
}

/// The Service, with the address of one that is headless.
fn headless(object: &Value) -> Value {
    let mut service = wanted_service(object);
    service["spec"]["clusterIP"] = "None".into();
    service
}

/// Judges an object whose children are as wanted, but for this field of this kind.
fn judged(spec: &Value, has_entry: bool, (kind, path, value): (&str, &str, &Value)) -> Result<(), String> {
    let (model, object) = (Model::new(), object(spec));
    let mut children =
        vec![("apps/v1", "Deployment", wanted_deployment(&object)), ("v1", "Service", headless(&object))];
    if spec["networkPolicy"]["enabled"] == true {
        children.push(("networking.k8s.io/v1", "NetworkPolicy", wanted_policy(&object)));
    }
    for (api_version, of, mut child) in children {
        if of == kind {
            set(&mut child, path, value);
        }
        put(&model, api_version, of, has_entry, child);
    }
    Memcached.judge(&object, &model)
}

const NOTHING: (&str, &str, &Value) = ("", "", &Value::Null);

#[test]
fn network_policy_that_admits_others_or_selects_other_pods_is_found() {
    let spec = json!({"size": 0, "networkPolicy": {"enabled": true}});
    assert_eq!(judged(&spec, true, NOTHING), Ok(()));
    for (path, value) in [
        ("spec.podSelector", json!({})),
        ("spec.policyTypes", json!(["Ingress", "Egress"])),
        ("spec.ingress", json!([{}])),
        ("spec.ingress.0.from", json!([])),
        ("spec.ingress.0.from.0", json!({"namespaceSelector": {}})),
        ("spec.ingress.0.ports", Value::Null),
        ("spec.ingress.0.ports.0.port", json!("metrics")),
        ("spec.ingress.0.ports.0.protocol", json!("UDP")),
        ("metadata.labels", json!({})),
        ("metadata.ownerReferences.0.blockOwnerDeletion", json!(false)),
    ] {
        let found = judged(&spec, true, ("NetworkPolicy", path, &value)).expect_err(path);
        assert!(found.starts_with("NetworkPolicy."), "{path}: {found}");
    }
    let none = json!([]);
    assert!(judged(&spec, true, ("NetworkPolicy", "metadata.ownerReferences", &none)).is_err(), "it was not adopted");
}

#[test]
fn what_only_an_earlier_spec_had_is_found() {
    let spec = json!({"size": 0});
    assert_eq!(judged(&spec, true, NOTHING), Ok(()));
    for (path, value) in [
        ("spec.template.spec.volumes", json!([{"name": "passwords"}])),
        ("spec.template.spec.containers.0.volumeMounts", json!([{"name": "passwords"}])),
        ("spec.template.metadata.labels.team", json!("team-1")),
    ] {
        for has_entry in [true, false] {
            assert!(judged(&spec, has_entry, ("Deployment", path, &value)).is_err(), "{path}");
        }
    }
    for (kind, path, value) in [
        ("Deployment", "spec.template.metadata.annotations", json!({"note": "1"})),
        ("Deployment", "spec.template.metadata.annotations", json!({HASH: "1"})),
        ("Service", "metadata.annotations", json!({"zone": "1"})),
    ] {
        assert!(judged(&spec, true, (kind, path, &value)).is_err(), "{value}");
        assert_eq!(judged(&spec, false, (kind, path, &value)), Ok(()), "another client may have set it: {value}");
    }
}

/// A write of the Secret with this content, or of the Deployment with this hash.
#[derive(Debug, Clone, Copy)]
enum Write {
    Content(&'static str),
    Hash(&'static str),
    Restore,
}

use Write::{Content, Hash, Restore};

/// Judges an object that names a Secret, after these writes.
fn followed(writes: &[Write]) -> (Result<(), String>, Result<(), String>) {
    let (model, object) = (Model::new(), object(&json!({"size": 0, "auth": {"secretName": SECRET}})));
    put(&model, "v1", "Service", true, headless(&object));
    for write in writes {
        match *write {
            Content(content) => {
                let secret = json!({"metadata": {"name": SECRET}, "data": {"password-file": content}});
                put(&model, "v1", "Secret", false, secret);
            }
            Hash(hash) => {
                let mut deployment = wanted_deployment(&object);
                deployment["spec"]["template"]["metadata"]["annotations"] = json!({HASH: hash});
                put(&model, "apps/v1", "Deployment", true, deployment);
            }
            Restore => model.restore(&model.snapshot()),
        }
    }
    (Memcached.judge(&object, &model), Memcached.judge_claim(&object, &model))
}

#[test]
fn hash_of_an_earlier_secret_is_found_at_the_end_of_a_world() {
    let first = [Content("a"), Hash("1")];
    let is_right = |more: &[Write]| {
        let (at_the_end, claimed) = followed(&[&first[..], more].concat());
        assert_eq!(claimed, Ok(()), "{more:?}: the operator may not have read it yet");
        at_the_end.is_ok()
    };
    assert!(is_right(&[]) && is_right(&[Content("a")]));
    assert!(!is_right(&[Content("b")]) && is_right(&[Content("b"), Hash("2")]));
    assert!(!is_right(&[Content("b"), Hash("2"), Content("c"), Hash("2")]));
    assert!(is_right(&[Content("b"), Content("a")]), "the operator has seen only the first and the last one");
    assert!(is_right(&[Restore, Content("b")]), "the pods may have had the hash of b");
}

#[test]
fn pods_without_a_hash_of_their_secret_are_found() {
    let (model, object) = (Model::new(), object(&json!({"size": 0, "auth": {"secretName": SECRET}})));
    put(&model, "v1", "Service", true, headless(&object));
    put(&model, "v1", "Secret", false, json!({"metadata": {"name": SECRET}, "data": {"password-file": "a"}}));
    put(&model, "apps/v1", "Deployment", true, wanted_deployment(&object));
    assert_eq!(Memcached.judge(&object, &model), Err("the pods have no hash of their Secrets".to_owned()));
}

/// Judges a Memcached with TLS. Its pods got their hash when the Secret had the first of these authorities, and now it has the last
/// one. The status says that the Secret is complete, or that it is not.
fn with_authorities(client_auth: &str, authorities: &[&str], says_complete: bool) -> Result<(), String> {
    let tls = json!({"secretName": CERTIFICATES, "clientAuth": client_auth});
    let (model, mut object) = (Model::new(), object(&json!({"size": 0, "tls": tls})));
    let certificates = |authority: &str| {
        let mut data = json!({"tls.crt": "YQ==", "tls.key": "aw=="});
        if !authority.is_empty() {
            data["ca.crt"] = authority.into();
        }
        put(&model, "v1", "Secret", false, json!({"metadata": {"name": CERTIFICATES}, "data": data}));
    };
    certificates(authorities[0]);
    put(&model, "v1", "Service", true, headless(&object));
    let mut deployment = wanted_deployment(&object);
    deployment["spec"]["template"]["metadata"]["annotations"] = json!({HASH: "1"});
    put(&model, "apps/v1", "Deployment", true, deployment);
    authorities[1..].iter().copied().for_each(certificates);
    if !says_complete {
        object["status"]["conditions"] = json!([
            {"type": "Ready", "status": "False", "reason": "SecretNotFound"},
            {"type": "Degraded", "status": "True", "reason": "SecretNotFound"},
        ]);
    }
    Memcached.judge(&object, &model)
}

#[test]
fn secret_without_a_key_that_the_spec_needs_is_found() {
    for (client_auth, authority, is_complete) in
        [("None", "", true), ("None", "Yw==", true), ("Request", "", false), ("Require", "Yw==", true)]
    {
        for says_complete in [true, false] {
            let judged = with_authorities(client_auth, &[authority], says_complete);
            assert_eq!(judged.is_ok(), is_complete == says_complete, "{client_auth} {authority:?}: {judged:?}");
        }
    }
}

#[test]
fn another_authority_is_another_hash_only_if_the_pods_have_its_file() {
    assert!(with_authorities("Require", &["Yw==", "ZA=="], true).is_err());
    assert!(with_authorities("Require", &["Yw==", "ZA==", "Yw=="], true).is_ok());
    assert!(with_authorities("None", &["Yw==", "ZA=="], true).is_ok());
}

#[test]
fn flags_of_tls_follow_those_of_passwords() {
    let tls = json!({"secretName": CERTIFICATES, "clientAuth": "Request"});
    let deployment = wanted_deployment(&object(&json!({"tls": tls, "auth": {"generate": true}})));
    let pod = &deployment["spec"]["template"]["spec"];
    let flags = pod["containers"][0]["args"].as_array().map(|args| args[10..].to_vec());
    let options = "ssl_chain_cert=/etc/memcached/tls/tls.crt,ssl_key=/etc/memcached/tls/tls.key,\
                   ssl_ca_cert=/etc/memcached/tls/ca.crt,ssl_verify_mode=1";
    assert_eq!(json!(flags), json!(["-Y", "/etc/memcached/passwords/password-file", "-Z", "-o", options]));
    assert_eq!([&pod["volumes"][0]["name"], &pod["volumes"][1]["name"]], ["tls", "passwords"]);
}

#[test]
fn exporter_that_is_wrong_or_left_over_is_found() {
    let spec = json!({"size": 0, "metrics": {"enabled": true}, "networkPolicy": {"enabled": true}});
    assert_eq!(judged(&spec, true, NOTHING), Ok(()));
    for (kind, path, value) in [
        ("Deployment", "spec.template.spec.containers.1.image", json!("example.com/other")),
        ("Deployment", "spec.template.spec.containers.1.args", json!(["--memcached.address=127.0.0.1:1"])),
        ("Deployment", "spec.template.spec.containers.1.ports.0.containerPort", json!(9151)),
        ("Deployment", "spec.template.spec.containers.1.volumeMounts", json!([{"name": "tls"}])),
        ("Service", "spec.ports.1.port", json!(9151)),
        ("NetworkPolicy", "spec.ingress.0.ports.1.port", json!("memcached")),
    ] {
        assert!(judged(&spec, true, (kind, path, &value)).is_err(), "{path}");
    }
    let without = json!({"size": 0, "metrics": {"enabled": false}});
    let containers = wanted_deployment(&object(&spec))["spec"]["template"]["spec"]["containers"].clone();
    let ports = wanted_service(&object(&spec))["spec"]["ports"].clone();
    for (kind, path, value) in
        [("Deployment", "spec.template.spec.containers", containers), ("Service", "spec.ports", ports)]
    {
        assert!(judged(&without, true, (kind, path, &value)).is_err(), "{path}");
    }
}

#[test]
fn peers_of_exporters_reach_nothing_else() {
    let (shop, prometheus) = (json!([{"podSelector": {"matchLabels": {"app": "shop"}}}]), json!([{"podSelector": {}}]));
    let ingress = |metrics: &Value| {
        let policy = json!({"enabled": true, "from": shop});
        wanted_policy(&object(&json!({"networkPolicy": policy, "metrics": metrics})))["spec"]["ingress"].clone()
    };
    let port = |name: &str| json!({"port": name, "protocol": "TCP"});
    let both = json!([{"from": shop, "ports": [port("memcached"), port("metrics")]}]);
    assert_eq!(ingress(&json!({"enabled": true})), both);
    assert_eq!(ingress(&json!({"from": prometheus})), json!([{"from": shop, "ports": [port("memcached")]}]));
    let apart = json!([{"from": shop, "ports": [port("memcached")]}, {"from": prometheus, "ports": [port("metrics")]}]);
    assert_eq!(ingress(&json!({"enabled": true, "from": prometheus})), apart);
}

#[test]
fn pods_on_other_nodes_than_the_spec_wants_are_found() {
    let specs = [
        json!({"size": 0}),
        json!({"size": 0, "antiAffinity": "Hard"}),
        json!({"size": 0, "antiAffinity": "None"}),
        json!({"size": 0, "nodeSelector": {"disk": "fast"}}),
        json!({"size": 0, "nodeSelector": {"disk": "slow"}}),
    ];
    for wanted in &specs {
        for live in &specs {
            let pod = wanted_deployment(&object(live))["spec"]["template"]["spec"].take();
            let judged = judged(wanted, true, ("Deployment", "spec.template.spec", &pod));
            assert_eq!(judged.is_ok(), wanted == live, "{wanted} and {live}: {judged:?}");
        }
    }
}
