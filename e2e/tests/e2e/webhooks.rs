//! Tests of the webhooks: the API server calls the manager's pods through their Service, with a certificate that the pods create
//! and share.

use std::time::Duration;

use k8s_openapi::api::{admissionregistration::v1::ValidatingWebhookConfiguration, core::v1::Secret};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::kit::world;

fn memcached(name: &str, spec: &Value) -> String {
    json!({
        "apiVersion": "memcached.cache.example.com/v1", "kind": "Memcached", "metadata": {"name": name}, "spec": spec,
    })
    .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_rejects_what_schema_cannot_express() {
    let Some(world) = world().await else { return };
    let refused = memcached("refused", &json!({"size": 1, "config": {"extraArgs": ["-p 1"]}}));
    let error = world.try_apply(&refused).await.expect_err("is refused").to_string();
    assert!(
        error.contains("denied the request: Memcached.memcached.cache.example.com \"refused\" is invalid"),
        "{error}"
    );
    world.try_apply(&memcached("fine", &json!({"size": 0}))).await.expect("the webhook accepts it");

    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(world.client.clone());
    let stored = configurations.get(installation::MANAGER).await.expect("is installed");
    for webhook in stored.webhooks.into_iter().flatten() {
        let trusted = webhook.client_config.ca_bundle.map(|bundle| bundle.0).unwrap_or_default();
        assert!(trusted.starts_with(b"-----BEGIN CERTIFICATE-----"), "{} has no CA bundle", webhook.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_webhook_certificate_is_renewed_and_trusted() {
    let Some(world) = world().await else { return };
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), installation::MANAGER_NAMESPACE);
    let name = format!("{}-webhook-certificate", installation::MANAGER);
    let certificate = async || secrets.get(&name).await.ok()?.data?.remove("tls.crt").map(|bytes| bytes.0);
    let before = certificate().await.expect("a certificate");
    let damage = json!({"data": {"tls.crt": ""}});
    secrets.patch(&name, &PatchParams::default(), &Patch::Merge(&damage)).await.expect("is damaged");
    // The replicas check the certificate once a minute.
    let minutes = Duration::from_mins(3);
    let new = async || certificate().await.filter(|new| new.starts_with(b"-----BEGIN") && *new != before);
    world.within(minutes, "there is another certificate", new).await;
    // From here on, the API server must not trust the old certificate of either replica.
    let refused = memcached("refused", &json!({"size": 1, "config": {"extraArgs": ["-p 1"]}}));
    for _ in 0..20 {
        let error = world.try_apply(&refused).await.expect_err("is refused").to_string();
        assert!(error.contains("is invalid"), "the refusal is not the webhook's: {error}");
    }
}
