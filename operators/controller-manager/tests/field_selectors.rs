//! `kubectl get --field-selector` on the kinds of all operators, on a real API server.

use cluster::{Cluster, Nodes};
use controller_manager::{OPERATORS, manifests};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, Config,
    api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const NAMESPACE: &str = "default";
const PATIENCE: Duration = Duration::from_mins(1);

/// The resource of the stored version, and the paths of its selectable fields.
fn stored(definition: &Value) -> (ApiResource, Vec<String>) {
    let spec = &definition["spec"];
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let version = spec["versions"].as_array().expect("versions").iter().find(|it| it["storage"] == true);
    let version = version.expect("a stored version");
    let (group, name) = (text(&spec["group"]), text(&version["name"]));
    let resource = ApiResource {
        api_version: format!("{group}/{name}"),
        group,
        version: name,
        kind: text(&spec["names"]["kind"]),
        plural: text(&spec["names"]["plural"]),
    };
    let fields = version["selectableFields"].as_array().into_iter().flatten();
    (resource, fields.map(|field| text(&field["jsonPath"]).trim_start_matches('.').to_owned()).collect())
}

/// The value of the field as a field selector compares it.
fn value_of(object: &DynamicObject, field: &str) -> String {
    match object.data.pointer(&format!("/{}", field.replace('.', "/"))) {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_selectable_field_selects_objects() {
    drop(rustls::crypto::ring::default_provider().install_default());
    let start = || cluster::or_skip(Cluster::fresh(Nodes::None));
    let Some(cluster) = tokio::task::spawn_blocking(start).await.expect("no panic") else { return };
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig()).expect("a kubeconfig");
    let config =
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("a configuration");
    let client = Client::try_from(config).expect("a client");
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let apply = PatchParams::apply("test").force();
    let definitions = manifests::definitions();
    for definition in &definitions {
        let name = definition["metadata"]["name"].as_str().expect("a name");
        crds.patch(name, &apply, &Patch::Apply(definition)).await.expect("the CRD is accepted");
    }
    let samples: Vec<Value> =
        OPERATORS.iter().map(|operator| serde_saphyr::from_str(operator.sample()).expect("YAML")).collect();
    for definition in &definitions {
        let (resource, fields) = stored(definition);
        let kind = &resource.kind;
        assert!(!fields.is_empty(), "{kind} has no selectable field");
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), NAMESPACE, &resource);
        let sample = samples.iter().find(|sample| sample["kind"] == **kind).expect("a sample");
        let name = sample["metadata"]["name"].as_str().expect("a name");
        let begun = Instant::now();
        while let Err(error) = api.patch(name, &apply, &Patch::Apply(sample)).await {
            assert!(begun.elapsed() < PATIENCE, "{kind}: {error}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // The status of an operator that has worked, where a field is one of the status.
        let status = json!({"status": {"phase": "Booked", "bookingId": "BK-1", "image": "memcached:1.6"}});
        drop(api.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.expect("a status"));
        let object = api.get(name).await.expect("the object");
        for field in &fields {
            let value = value_of(&object, field);
            for (selector, found) in [
                (format!("{field}={value}"), 1),
                (format!("{field}!={value}"), 0),
                (format!("{field}=another{value}"), 0),
            ] {
                let listed = api.list(&ListParams::default().fields(&selector)).await;
                assert_eq!(listed.expect("a list").items.len(), found, "{kind}: {selector}");
            }
        }
        assert!(api.list(&ListParams::default().fields("spec.nothing=1")).await.is_err(), "{kind}");
    }
    let shown = cluster
        .kubectl(["get", "ft", "--namespace", NAMESPACE, "--field-selector", "status.phase=Booked", "--no-headers"])
        .output()
        .expect("kubectl");
    assert_eq!(String::from_utf8_lossy(&shown.stdout).lines().count(), 1, "{shown:?}");
}
