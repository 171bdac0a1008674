//! Builds the webhook configurations for the API server, from the same declarations as the server.

use k8s_openapi::{
    ByteString,
    api::admissionregistration::v1::{
        MatchCondition, MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ServiceReference,
        ValidatingWebhook, ValidatingWebhookConfiguration, WebhookClientConfig,
    },
};
use kube::api::ObjectMeta;
use serde_json::Value;

use super::{Webhook, Work};

/// How the API server reaches the webhooks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// Through a Service, in a cluster.
    Service {
        /// The namespace of the Service.
        namespace: String,
        /// The name of the Service.
        name: String,
    },
    /// By URL, such as `https://127.0.0.1:9443`, when the process runs outside of the cluster.
    Url(String),
}

/// Seconds that the API server waits for an answer.
const TIMEOUT: i32 = 5;

impl Endpoint {
    pub(super) fn client_config(&self, path: &str, bundle: Option<&str>) -> WebhookClientConfig {
        let ca_bundle = bundle.map(|bundle| ByteString(bundle.as_bytes().to_vec()));
        match self {
            Self::Service { namespace, name } => WebhookClientConfig {
                service: Some(ServiceReference {
                    namespace: namespace.clone(),
                    name: name.clone(),
                    path: Some(path.to_owned()),
                    port: Some(443),
                }),
                ca_bundle,
                ..WebhookClientConfig::default()
            },
            Self::Url(base) => WebhookClientConfig {
                url: Some(format!("{}{path}", base.trim_end_matches('/'))),
                ca_bundle,
                ..WebhookClientConfig::default()
            },
        }
    }
}

impl Endpoint {
    /// The Service, as `namespace/name`, that the API server calls by this config if it is not ours.
    pub(super) fn other_service(&self, config: &WebhookClientConfig) -> Option<String> {
        let service = config.service.as_ref()?;
        self.other(&service.namespace, &service.name)
    }

    /// The Service with this name, as `namespace/name`, if it is not ours.
    pub(super) fn other(&self, of_namespace: &str, of_name: &str) -> Option<String> {
        let Self::Service { namespace, name } = self else { return None };
        (namespace != of_namespace || name != of_name).then(|| format!("{of_namespace}/{of_name}"))
    }
}

/// The configuration of all validating webhooks among `webhooks`; `None` when there are none.
pub(crate) fn validating(
    name: &str,
    webhooks: &[Webhook],
    endpoint: &Endpoint,
    bundle: Option<&str>,
) -> Option<ValidatingWebhookConfiguration> {
    let entries: Vec<ValidatingWebhook> = webhooks
        .iter()
        .filter_map(|webhook| {
            let only_warns = match webhook.work {
                Work::Validate(_, only_warns) => only_warns,
                Work::Review(_) => false,
                Work::Default(_) | Work::Convert(..) => return None,
            };
            Some(ValidatingWebhook {
                name: webhook.name(),
                client_config: endpoint.client_config(&webhook.path(), bundle),
                rules: Some(vec![rule(webhook)]),
                admission_review_versions: vec!["v1".to_owned()],
                failure_policy: Some(if only_warns { "Ignore" } else { "Fail" }.to_owned()),
                match_conditions: conditions(webhook),
                match_policy: Some("Equivalent".to_owned()),
                side_effects: "None".to_owned(),
                timeout_seconds: Some(TIMEOUT),
                ..ValidatingWebhook::default()
            })
        })
        .collect();
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    (!entries.is_empty()).then_some(ValidatingWebhookConfiguration { metadata, webhooks: Some(entries) })
}

/// The configuration of all defaulting webhooks among `webhooks`; `None` when there are none.
pub(crate) fn mutating(
    name: &str,
    webhooks: &[Webhook],
    endpoint: &Endpoint,
    bundle: Option<&str>,
) -> Option<MutatingWebhookConfiguration> {
    let entries: Vec<MutatingWebhook> = webhooks
        .iter()
        .filter(|webhook| matches!(webhook.work, Work::Default(_)))
        .map(|webhook| MutatingWebhook {
            name: webhook.name(),
            client_config: endpoint.client_config(&webhook.path(), bundle),
            rules: Some(vec![rule(webhook)]),
            admission_review_versions: vec!["v1".to_owned()],
            failure_policy: Some("Fail".to_owned()),
            match_conditions: conditions(webhook),
            match_policy: Some("Equivalent".to_owned()),
            side_effects: "None".to_owned(),
            timeout_seconds: Some(TIMEOUT),
            ..MutatingWebhook::default()
        })
        .collect();
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    (!entries.is_empty()).then_some(MutatingWebhookConfiguration { metadata, webhooks: Some(entries) })
}

/// The configurations of all webhooks, as JSON, without a `caBundle`.
pub fn configurations(name: &str, webhooks: &[Webhook], endpoint: &Endpoint) -> Vec<Value> {
    let validating = validating(name, webhooks, endpoint, None).and_then(|it| serde_json::to_value(it).ok());
    let mutating = mutating(name, webhooks, endpoint, None).and_then(|it| serde_json::to_value(it).ok());
    validating.into_iter().chain(mutating).collect()
}

/// The resource names of the configurations that these webhooks need.
pub fn resources(webhooks: &[Webhook]) -> Vec<&'static str> {
    let has = |matches: fn(&Work) -> bool| webhooks.iter().any(|webhook| matches(&webhook.work));
    let mut resources = Vec::new();
    if has(|work| matches!(work, Work::Validate(..) | Work::Review(_))) {
        resources.push("validatingwebhookconfigurations");
    }
    if has(|work| matches!(work, Work::Default(_))) {
        resources.push("mutatingwebhookconfigurations");
    }
    resources
}

fn rule(webhook: &Webhook) -> RuleWithOperations {
    let one = |text: &str| Some(vec![text.to_owned()]);
    RuleWithOperations {
        api_groups: one(&webhook.target.group),
        api_versions: one(&webhook.target.version),
        resources: one(&webhook.target.plural),
        operations: Some(webhook.target.operations.iter().map(|operation| operation.name().to_owned()).collect()),
        scope: Some(if webhook.target.is_namespaced { "Namespaced" } else { "Cluster" }.to_owned()),
    }
}

fn conditions(webhook: &Webhook) -> Option<Vec<MatchCondition>> {
    let conditions: Vec<MatchCondition> = webhook.target.conditions.iter().cloned().map(condition).collect();
    (!conditions.is_empty()).then_some(conditions)
}

fn condition((name, expression): (String, String)) -> MatchCondition {
    MatchCondition { name, expression }
}
