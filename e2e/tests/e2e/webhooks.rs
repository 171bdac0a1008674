//! The API server calls the manager's pods through their Service, with a certificate that they made and share.

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use serde_json::{Value, json};

use crate::kit::world;

fn memcached(name: &str, spec: &Value) -> String {
    json!({
        "apiVersion": "memcached.cache.example.com/v1", "kind": "Memcached", "metadata": {"name": name}, "spec": spec,
    })
    .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_schema_cannot_say_is_refused_by_the_pods() {
    let Some(world) = world().await else { return };
    let refused = memcached("refused", &json!({"size": 1, "config": {"extraArgs": ["-p 1"]}}));
    let error = world.try_apply(&refused).await.expect_err("is refused").to_string();
    assert!(
        error.contains("denied the request: Memcached.memcached.cache.example.com \"refused\" is invalid"),
        "{error}"
    );
    world.try_apply(&memcached("fine", &json!({"size": 0}))).await.expect("is let pass");

    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(world.client.clone());
    let stored = configurations.get("controller-manager").await.expect("is installed");
    for webhook in stored.webhooks.into_iter().flatten() {
        let trusted = webhook.client_config.ca_bundle.map(|bundle| bundle.0).unwrap_or_default();
        assert!(trusted.starts_with(b"-----BEGIN CERTIFICATE-----"), "{} trusts nobody", webhook.name);
    }
}
