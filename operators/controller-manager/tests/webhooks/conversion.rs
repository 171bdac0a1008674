//! Two versions of one kind: a client can read in one version what another client has written in the other.

use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::Service},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::world::{NAMESPACE, World, cache_of, message, refused, until};

const INVALID: &str = "memcached.cache.example.com/invalid-size";

impl World {
    /// Reads `spec.size` in this version.
    async fn size(&self, version: &str, name: &str) -> Value {
        self.caches_of(version).get(name).await.unwrap().data["spec"]["size"].clone()
    }

    async fn degraded(&self, name: &str) -> Option<String> {
        let conditions = self.caches().get(name).await.unwrap().data["status"]["conditions"].clone();
        let found = conditions.as_array()?.iter().find(|it| it["type"] == "Degraded" && it["status"] == "True")?;
        found["reason"].as_str().map(str::to_owned)
    }

    /// Returns the replicas that the Deployment of that name wants.
    async fn wanted(&self, name: &str) -> Option<i32> {
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), NAMESPACE);
        deployments.get_opt(name).await.unwrap()?.spec?.replicas
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t11_invalid_stored_size_is_readable_and_keeps_replicas() {
    let Some(world) = World::new().await else { return };
    let crds: Api<CustomResourceDefinition> = Api::all(world.client.clone());
    let name = "memcacheds.memcached.cache.example.com";
    let good = crds.get(name).await.unwrap();
    // An earlier release may have stored the object like this: with a text, under a schema that does not check it.
    let open = |version: &str, storage: bool| {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        json!({
            "name": version, "served": true, "storage": storage, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": schema},
        })
    };
    let versions = Patch::Merge(json!({"spec": {"versions": [open("v1", false), open("v1alpha1", true)]}}));
    crds.patch(name, &PatchParams::default(), &versions).await.unwrap();
    let v1alpha1 = world.caches_of("v1alpha1");
    let old = cache_of("v1alpha1", "old", &json!({"size": "three"}));
    until("the text is stored", async || v1alpha1.create(&PostParams::default(), &old).await.is_ok()).await;
    let selector = json!({"app.kubernetes.io/name": "memcached", "app.kubernetes.io/instance": "old"});
    let mut labels = selector.clone();
    labels["app.kubernetes.io/managed-by"] = json!("memcached-operator");
    let owner = json!({
        "apiVersion": "memcached.cache.example.com/v1", "kind": "Memcached", "name": "old", "controller": true,
        "uid": v1alpha1.get("old").await.unwrap().metadata.uid,
    });
    let deployment: Deployment = serde_json::from_value(json!({
        "metadata": {"name": "old", "labels": labels, "ownerReferences": [owner]},
        "spec": {
            "replicas": 4, "selector": {"matchLabels": selector},
            "template": {
                "metadata": {"labels": selector}, "spec": {"containers": [{"name": "memcached", "image": "memcached"}]},
            },
        },
    }))
    .unwrap();
    let deployments: Api<Deployment> = Api::namespaced(world.client.clone(), NAMESPACE);
    deployments.create(&PostParams::default(), &deployment).await.unwrap();

    let versions = Patch::Merge(json!({"spec": {"versions": good.spec.versions}}));
    crds.patch(name, &PatchParams::default(), &versions).await.unwrap();
    let _manager = world.by_url(&[]).await;
    until("the operator reports it", async || world.degraded("old").await.as_deref() == Some("InvalidSize")).await;
    for (version, size) in [("v1", json!(1)), ("v1alpha1", json!("three"))] {
        until("the version is served", async || world.caches_of(version).list(&ListParams::default()).await.is_ok())
            .await;
        assert_eq!(world.size(version, "old").await, size);
    }
    let noted = world.caches().get("old").await.unwrap().metadata.annotations.unwrap_or_default();
    assert_eq!(noted.get(INVALID).map(String::as_str), Some("\"three\""));
    let services: Api<Service> = Api::namespaced(world.client.clone(), NAMESPACE);
    assert!(services.get_opt("old").await.unwrap().is_none(), "the operator does not create the missing Service");
    assert_eq!(world.wanted("old").await, Some(4));

    let two = Patch::Merge(json!({"spec": {"size": 2}}));
    world.caches().patch("old", &PatchParams::default(), &two).await.unwrap();
    until("two replicas", async || world.wanted("old").await == Some(2)).await;
    assert_eq!(world.size("v1alpha1", "old").await, "2");
    until("the annotation is gone", async || {
        let annotations = world.caches().get("old").await.unwrap().metadata.annotations;
        !annotations.unwrap_or_default().contains_key(INVALID)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t12_both_versions_are_served_while_the_webhook_runs() {
    let Some(world) = World::new().await else { return };
    let v1alpha1 = world.caches_of("v1alpha1");
    let is_served = async || v1alpha1.list(&ListParams::default()).await.is_ok();
    assert!(!is_served().await, "no conversion webhook exists yet");
    let mut manager = world.by_url(&[]).await;
    until("v1alpha1 is served", is_served).await;

    let create = async |version: &str, name: &str, spec: Value| {
        world.caches_of(version).create(&PostParams::default(), &cache_of(version, name, &spec)).await
    };
    create("v1alpha1", "a", json!({"size": "3"})).await.unwrap();
    assert_eq!((world.size("v1", "a").await, world.size("v1alpha1", "a").await), (json!(3), json!("3")));
    create("v1", "b", json!({"size": 5})).await.unwrap();
    assert_eq!((world.size("v1", "b").await, world.size("v1alpha1", "b").await), (json!(5), json!("5")));
    assert_eq!(world.caches().get("a").await.unwrap().metadata.annotations, None);
    let seven = Patch::Merge(json!({"spec": {"size": "7"}}));
    v1alpha1.patch("b", &PatchParams::default(), &seven).await.unwrap();
    assert_eq!(world.size("v1", "b").await, 7);
    create("v1alpha1", "c", json!({})).await.unwrap();
    assert_eq!((world.size("v1", "c").await, world.size("v1alpha1", "c").await), (json!(1), json!("1")));

    for (version, given) in [
        ("v1alpha1", json!(3)),
        ("v1", json!("3")),
        ("v1alpha1", json!("65")),
        ("v1alpha1", json!("-1")),
        ("v1alpha1", json!("3 ")),
    ] {
        let error = create(version, "d", json!({"size": given})).await.expect_err("is refused");
        assert!(message(&error).contains("spec.size"), "{version} {given}: {error}");
    }
    // The rules of v1 apply to objects of both versions.
    let error = create("v1alpha1", "d", refused()).await.expect_err("is refused");
    assert!(message(&error).contains("spec.config.extraArgs[0]: \"-p\""), "{error}");

    let kubectl = world
        .cluster
        .kubectl(["get", "--namespace", NAMESPACE, "memcacheds.v1alpha1.memcached.cache.example.com", "a"])
        .output()
        .unwrap();
    let (shown, said) = (String::from_utf8_lossy(&kubectl.stdout), String::from_utf8_lossy(&kubectl.stderr));
    assert!(said.contains("Warning: memcached.cache.example.com/v1alpha1 Memcached is deprecated; use v1"), "{said}");
    let row: Vec<&str> = shown.lines().nth(1).unwrap_or_default().split_whitespace().collect();
    assert_eq!(row.get(..2), Some(&["a", "3"][..]), "{shown}");

    // The operator creates the same children, whichever version the client has written.
    until("three replicas", async || world.wanted("a").await == Some(3)).await;

    let metrics = manager.metrics().await;
    let conversions = |from: &str, to: &str, result: &str| {
        let labels = format!("{{from=\"{from}\",kind=\"Memcached\",result=\"{result}\",to=\"{to}\"}} ");
        let mut lines = metrics.lines().filter_map(|line| line.strip_prefix("operator_webhook_conversions_total"));
        let count = lines.find_map(|line| line.strip_prefix(labels.as_str())).expect("a series");
        count.parse::<u64>().unwrap()
    };
    for (from, to) in [("v1alpha1", "v1"), ("v1", "v1alpha1")] {
        assert!(conversions(from, to, "success") >= 3, "each object was converted both ways: {metrics}");
        assert_eq!(conversions(from, to, "error"), 0, "{metrics}");
    }

    let pid = rustix::process::Pid::from_child(&manager.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(manager.child.wait().unwrap().success());
    until("v1alpha1 is no longer served", async || !is_served().await).await;
    assert_eq!(world.size("v1", "b").await, 7);
}
