//! Secrets: the operator waits for them, follows their changes, and keeps their values out of events and status.

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Secret, Service},
};
use serde_json::json;

use crate::kit::{condition, deployment, memcached, reconcile_again, until_condition, world};

const HASH: &str = "memcached.cache.example.com/secret-hash";

fn hash(deployment: &Deployment) -> Option<String> {
    let template = &deployment.spec.as_ref()?.template;
    template.metadata.as_ref()?.annotations.as_ref()?.get(HASH).cloned()
}

#[tokio::test(flavor = "multi_thread")]
async fn t16_deployment_waits_for_secret_and_rolls_out_changes() {
    let Some(world) = world().await else { return };
    let spec = json!({"size": 1, "tls": {"secretName": "certificates"}, "service": {"type": "Headless"}});
    world.apply(&memcached("secured", &spec)).await;
    let told = until_condition(&world, "secured", "Degraded", "True", "SecretNotFound").await;
    let message = |it: &memcached_operator::Memcached| condition(it, "Degraded").map(|it| it.message.clone());
    assert_eq!(message(&told).as_deref(), Some("Secret \"certificates\" not found"));
    let note = world.until_event("secured", "Warning", "SecretNotFound").await;
    assert_eq!(note, "Secret \"certificates\" not found");
    assert!(world.get::<Deployment>("secured").await.is_none());
    world.until("the children that need no Secret exist", async || world.get::<Service>("secured").await).await;

    let half = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "certificates"}, "stringData": {"tls.crt": "hunter2"},
    });
    world.create::<Secret>(half).await;
    reconcile_again(&world, "secured").await;
    let told = until_condition(&world, "secured", "Degraded", "True", "SecretNotFound").await;
    assert_eq!(message(&told).as_deref(), Some("Secret \"certificates\" has no key \"tls.key\""));
    assert!(world.get::<Deployment>("secured").await.is_none());

    world.patch::<Secret>("certificates", json!({"stringData": {"tls.key": "hunter2"}})).await;
    reconcile_again(&world, "secured").await;
    let first = deployment(&world, "secured", 1).await;
    let first_hash = hash(&first).expect("a hash");
    let pod = first.spec.clone().and_then(|it| it.template.spec).expect("a pod");
    assert!(pod.containers[0].args.iter().flatten().any(|arg| arg == "-Z"), "{pod:?}");

    // Another key of the Secret, which the object does not name, has no effect.
    world.patch::<Secret>("certificates", json!({"stringData": {"other": "value"}})).await;
    reconcile_again(&world, "secured").await;
    let same = world.get::<Deployment>("secured").await.expect("a Deployment");
    assert_eq!((same.metadata.generation, hash(&same)), (first.metadata.generation, Some(first_hash.clone())));

    world.patch::<Secret>("certificates", json!({"stringData": {"tls.key": "hunter3"}})).await;
    for _ in 0..2 {
        reconcile_again(&world, "secured").await;
    }
    let second = world.get::<Deployment>("secured").await.expect("a Deployment");
    assert_ne!(hash(&second), Some(first_hash));
    assert_eq!(second.metadata.generation, first.metadata.generation.map(|it| it + 1), "one change");

    // Running pods keep running when the Secret is gone.
    world.delete::<Secret>("certificates").await;
    reconcile_again(&world, "secured").await;
    until_condition(&world, "secured", "Degraded", "True", "SecretNotFound").await;
    let left = world.get::<Deployment>("secured").await.expect("a Deployment");
    assert_eq!((left.metadata.generation, hash(&left)), (second.metadata.generation, hash(&second)));

    let events = format!("{:?}", world.events("secured").await);
    let object = serde_json::to_string(&world.get::<memcached_operator::Memcached>("secured").await).expect("JSON");
    assert!(!events.contains("hunter") && !object.contains("hunter"), "{events}\n{object}");
}

#[tokio::test(flavor = "multi_thread")]
async fn generated_secrets_are_accepted_kept_and_collected() {
    let Some(world) = world().await else { return };
    let spec = json!({"size": 1, "tls": {"generate": true}, "auth": {"generate": true}});
    world.apply(&memcached("secured", &spec)).await;
    let first = deployment(&world, "secured", 1).await;
    let secret = async |name: &str| world.get::<Secret>(name).await.expect("a Secret");
    assert_eq!(secret("secured-tls").await.type_.as_deref(), Some("kubernetes.io/tls"));
    assert_eq!(secret("secured-ca").await.type_.as_deref(), Some("Opaque"));
    let made = secret("secured-auth").await;
    assert_eq!(made.type_.as_deref(), Some("kubernetes.io/basic-auth"));
    assert_eq!(made.metadata.owner_references.map(|it| it[0].name.clone()).as_deref(), Some("secured"));

    // A user chooses another password: memcached gets it in its own form.
    world.patch::<Secret>("secured-auth", json!({"stringData": {"password": "hunter2"}})).await;
    for _ in 0..2 {
        reconcile_again(&world, "secured").await;
    }
    let file = secret("secured-auth").await.data.and_then(|mut it| it.remove("password-file")).expect("a file");
    assert_eq!(file.0, b"memcached:hunter2\n");
    let second = world.get::<Deployment>("secured").await.expect("a Deployment");
    assert_ne!(hash(&second), hash(&first));
    assert_eq!(second.metadata.generation, first.metadata.generation.map(|it| it + 1), "one change");

    let requests = world.requests();
    assert_eq!((requests.count("list secrets"), requests.count("watch secrets")), (0, 0));
    assert_eq!(requests.forbidden(), [""; 0]);
    let invalid = memcached("refused", &json!({"tls": {"generate": true, "secretName": "a"}}));
    let refused = world.try_apply(&invalid).await.expect_err("two sources of one certificate").to_string();
    assert!(refused.contains("secretName and generate exclude each other"), "{refused}");
}
