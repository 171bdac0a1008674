//! Writes the `caBundle` that the API server trusts, in the webhook configurations and in CRDs with conversion.
//!
//! In a cluster the chart owns the configurations. We only write `caBundle`, by server-side apply, so that neither undoes the
//! other's work, and then give up its ownership. Otherwise an upgrade of the chart that removes an entry by server-side apply
//! would leave our `caBundle` in it, which is invalid without the rest, and the upgrade would fail. With `--webhook-client-url`
//! there is no chart: we write the configurations as a whole, and remove them at the end.
//!
//! A CRD exists once in a cluster, and so does its conversion. If several releases of the chart run, it names the Service of one of
//! them, and only that release writes the `caBundle`. The others leave it alone and report which release converts.

use api_errors::Class;
use certificates::{Distribution, Error, TrustState, ask};
use k8s_openapi::{
    ByteString,
    api::admissionregistration::v1::{
        MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceConversion, CustomResourceDefinition},
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams},
    core::ClusterResourceScope,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    CONVERT, Webhook,
    configuration::{Endpoint, mutating, validating},
};

/// The field manager of all server-side applies in this module.
const MANAGER: &str = "webhook-certificates";

/// The objects from which the API server reads the `caBundle`.
pub(super) struct Trust {
    pub(super) client: Client,
    pub(super) endpoint: Endpoint,
    /// The name of both webhook configurations.
    pub(super) configuration: String,
    pub(super) webhooks: Vec<Webhook>,
    /// CRDs as they were before we wrote our URL into them.
    pub(super) before: Vec<OriginalCrd>,
}

/// The part of a CRD that this module reads. Its schemas are far larger, so nothing decodes them.
#[derive(Debug, Clone, Resource, Deserialize)]
#[resource(inherit = CustomResourceDefinition)]
struct Definition {
    metadata: ObjectMeta,
    spec: DefinitionSpec,
}

#[derive(Debug, Clone, Deserialize)]
struct DefinitionSpec {
    conversion: Option<CustomResourceConversion>,
    versions: Vec<DefinitionVersion>,
}

#[derive(Debug, Clone, Deserialize)]
struct DefinitionVersion {
    served: bool,
}

/// A CRD's conversion and served versions, to be restored at the end.
pub(super) struct OriginalCrd {
    name: String,
    conversion: Option<CustomResourceConversion>,
    served: Vec<bool>,
}

/// A webhook configuration of either kind, with the names and client configs of its entries.
trait Configuration:
    Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone + std::fmt::Debug + Serialize + DeserializeOwned
{
    fn entries(&self) -> Vec<(&str, &WebhookClientConfig)>;
}

impl Configuration for ValidatingWebhookConfiguration {
    fn entries(&self) -> Vec<(&str, &WebhookClientConfig)> {
        self.webhooks.iter().flatten().map(|webhook| (webhook.name.as_str(), &webhook.client_config)).collect()
    }
}

impl Configuration for MutatingWebhookConfiguration {
    fn entries(&self) -> Vec<(&str, &WebhookClientConfig)> {
        self.webhooks.iter().flatten().map(|webhook| (webhook.name.as_str(), &webhook.client_config)).collect()
    }
}

impl Distribution for Trust {
    /// Makes sure that the API server trusts `bundle` for all our webhooks.
    async fn establish(&mut self, bundle: &str) -> Result<TrustState, Error> {
        let mut all = TrustState { settled: true, ..TrustState::default() };
        let wanted = validating(&self.configuration, &self.webhooks, &self.endpoint, Some(bundle));
        let state = self.update(wanted, bundle).await?;
        add(&mut all, state);
        let wanted = mutating(&self.configuration, &self.webhooks, &self.endpoint, Some(bundle));
        let state = self.update(wanted, bundle).await?;
        add(&mut all, state);
        for definition in self.webhooks.iter().filter_map(Webhook::definition).collect::<Vec<_>>() {
            let state = self.update_definition(&definition, bundle).await?;
            add(&mut all, state);
        }
        Ok(all)
    }
}

impl Trust {
    /// Removes what was written for a URL, as far as it still exists, and returns what could not be removed. Does nothing in a
    /// cluster.
    pub(super) async fn restore(&mut self) -> Vec<Error> {
        if !matches!(self.endpoint, Endpoint::Url(_)) {
            return Vec::new();
        }
        let (name, parameters) = (self.configuration.clone(), DeleteParams::default());
        let what = "cannot remove the webhook configurations";
        let gone = |error: &Error| error.class() == Class::NotFound;
        let validating = Api::<ValidatingWebhookConfiguration>::all(self.client.clone());
        let mutating = Api::<MutatingWebhookConfiguration>::all(self.client.clone());
        let results = [
            ask(what, validating.delete(&name, &parameters)).await.map(drop),
            ask(what, mutating.delete(&name, &parameters)).await.map(drop),
        ];
        let definitions = Api::<Definition>::all(self.client.clone());
        let mut failures: Vec<Error> =
            results.into_iter().filter_map(Result::err).filter(|error| !gone(error)).collect();
        for before in std::mem::take(&mut self.before) {
            let restored = served(before.served.iter().copied(), &before.conversion);
            let (patch, parameters) = (Patch::<()>::Json(restored), PatchParams::default());
            let patched = definitions.patch(&before.name, &parameters, &patch);
            failures.extend(ask("cannot restore the conversion", patched).await.err().filter(|error| !gone(error)));
        }
        failures
    }

    async fn update<C: Configuration>(&self, wanted: Option<C>, bundle: &str) -> Result<TrustState, Error> {
        let Some(wanted) = wanted else { return Ok(TrustState { settled: true, ..TrustState::default() }) };
        let api = Api::<C>::all(self.client.clone());
        let (name, kind) = (&self.configuration, C::kind(&()));
        let what = format!("cannot read {kind} {name}");
        let stored = ask(&what, api.get_opt(name)).await?;
        let patch = match (&self.endpoint, &stored) {
            (Endpoint::Service { .. }, None) => {
                let remark = format!("{kind} {name} is not installed: the API server calls no webhook");
                return Ok(TrustState { settled: true, bundle: None, remark: Some(remark) });
            }
            // Do not create missing entries: the operator is off, or the chart is older.
            (Endpoint::Service { .. }, Some(stored)) => {
                let ours: Vec<&str> = wanted.entries().into_iter().map(|(name, _)| name).collect();
                let entries: Vec<Value> = stored
                    .entries()
                    .into_iter()
                    .filter(|(name, config)| ours.contains(name) && self.endpoint.other_service(config).is_none())
                    .map(|(name, _)| json!({"name": name, "clientConfig": {"caBundle": encoded(bundle)}}))
                    .collect();
                json!({
                    "apiVersion": C::api_version(&()), "kind": kind, "metadata": {"name": name}, "webhooks": entries,
                })
            }
            (Endpoint::Url(_), _) => serde_json::to_value(&wanted).unwrap_or_default(),
        };
        if let Some(stored) = &stored
            && wanted.entries().iter().all(|entry| is_in_place(entry, &stored.entries(), &self.endpoint))
        {
            self.release_ownership(&api, stored).await?;
            let entries = stored.entries();
            let other = entries.iter().find_map(|(_, config)| self.endpoint.other_service(config));
            let remark = other.map(|other| {
                format!(
                    "{kind} {name} calls the Service {other} of another release; give this release names of its own"
                )
            });
            return Ok(TrustState { settled: true, bundle: trusted(stored), remark });
        }
        let parameters = PatchParams::apply(MANAGER).force();
        let what = format!("cannot write {kind} {name}");
        let written = ask(&what, api.patch(name, &parameters, &Patch::Apply(&patch))).await?;
        self.release_ownership(&api, &written).await?;
        Ok(TrustState { settled: false, bundle: trusted(&written), remark: None })
    }

    /// Removes our entry from the object's `managedFields`, without changing the object.
    async fn release_ownership<K>(&self, api: &Api<K>, stored: &K) -> Result<(), Error>
    where
        K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
    {
        let entries = stored.meta().managed_fields.as_deref().unwrap_or_default();
        let ours = entries.iter().position(|entry| entry.manager.as_deref() == Some(MANAGER));
        let (Endpoint::Service { .. }, Some(at)) = (&self.endpoint, ours) else { return Ok(()) };
        let name = stored.meta().name.as_deref().unwrap_or_default();
        // A write in between may move the entries. Then the API server refuses the patch, and another replica or the next round
        // tries again.
        let removal = json!([
            {"op": "test", "path": "/metadata/resourceVersion", "value": stored.meta().resource_version},
            {"op": "remove", "path": format!("/metadata/managedFields/{at}")},
        ]);
        let patch = Patch::<()>::Json(serde_json::from_value(removal).unwrap_or_default());
        let what = format!("cannot give up our fields of {} {name}", K::kind(&()));
        match ask(&what, api.patch(name, &PatchParams::default(), &patch)).await {
            Err(error) if !matches!(error.class(), Class::Conflict | Class::Rejected) => Err(error),
            _ => Ok(()),
        }
    }

    async fn update_definition(&mut self, name: &str, bundle: &str) -> Result<TrustState, Error> {
        let api = Api::<Definition>::all(self.client.clone());
        let stored = ask(&format!("cannot read CustomResourceDefinition {name}"), api.get_opt(name)).await?;
        let Some(stored) = stored else {
            return Ok(TrustState { settled: true, bundle: None, remark: Some(format!("crd {name} not installed")) });
        };
        let conversion = stored.spec.conversion.clone();
        let config = conversion.as_ref().filter(|it| it.strategy == "Webhook").and_then(|it| it.webhook.as_ref());
        let config = config.and_then(|webhook| webhook.client_config.as_ref());
        let service = config.and_then(|config| config.service.as_ref());
        if let Some(other) = service.and_then(|service| self.endpoint.other(&service.namespace, &service.name)) {
            let remark = format!(
                "CustomResourceDefinition {name} is converted by the Service {other} of another release, which has to run as \
                 long as the definition names it"
            );
            return Ok(TrustState { settled: true, bundle: None, remark: Some(remark) });
        }
        let trusts = config.and_then(|config| config.ca_bundle.as_ref()).is_some_and(|it| it.0 == bundle.as_bytes());
        let what = format!("cannot write the conversion of CustomResourceDefinition {name}");
        match &self.endpoint {
            Endpoint::Service { .. } if config.is_none() || trusts => {
                self.release_ownership(&api, &stored).await?;
                let bundle = config.is_some().then(|| bundle.to_owned());
                Ok(TrustState { settled: true, bundle, remark: None })
            }
            Endpoint::Service { .. } => {
                let patch = json!({
                    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                    "metadata": {"name": name},
                    "spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": encoded(bundle)}}}},
                });
                let parameters = PatchParams::apply(MANAGER).force();
                let written = ask(&what, api.patch(name, &parameters, &Patch::Apply(&patch))).await?;
                self.release_ownership(&api, &written).await?;
                Ok(TrustState { settled: false, bundle: Some(bundle.to_owned()), remark: None })
            }
            Endpoint::Url(_) => {
                let client = self.endpoint.client_config(CONVERT, Some(bundle));
                let same_url = config.is_some_and(|config| config.url == client.url);
                let is_served = stored.spec.versions.iter().all(|version| version.served);
                if trusts && same_url && is_served {
                    return Ok(TrustState { settled: true, bundle: Some(bundle.to_owned()), remark: None });
                }
                if !self.before.iter().any(|before| before.name == name) {
                    let served = stored.spec.versions.iter().map(|version| version.served).collect();
                    // A conversion with our URL was left by an earlier process; do not restore it.
                    let conversion = conversion.filter(|_| !same_url);
                    self.before.push(OriginalCrd { name: name.to_owned(), conversion, served });
                }
                let wanted = json!({
                    "strategy": "Webhook",
                    "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]},
                });
                let patch = served(stored.spec.versions.iter().map(|_| true), &wanted);
                ask(&what, api.patch(name, &PatchParams::default(), &Patch::<()>::Json(patch))).await?;
                Ok(TrustState { settled: false, bundle: Some(bundle.to_owned()), remark: None })
            }
        }
    }
}

fn add(all: &mut TrustState, other: TrustState) {
    all.settled &= other.settled;
    all.bundle = all.bundle.take().or(other.bundle);
    all.remark = all.remark.take().or(other.remark);
}

/// Whether an entry needs no write. In a cluster only the bundle matters; with a URL the whole entry does.
fn is_in_place(
    wanted: &(&str, &WebhookClientConfig),
    stored: &[(&str, &WebhookClientConfig)],
    endpoint: &Endpoint,
) -> bool {
    match (stored.iter().find(|(name, _)| *name == wanted.0), endpoint) {
        (Some((_, stored)), Endpoint::Service { .. }) => {
            stored.ca_bundle == wanted.1.ca_bundle || endpoint.other_service(stored).is_some()
        }
        (Some((_, stored)), Endpoint::Url(_)) => *stored == wanted.1,
        (None, Endpoint::Service { .. }) => true,
        (None, Endpoint::Url(_)) => false,
    }
}

fn trusted<C: Configuration>(stored: &C) -> Option<String> {
    let entries = stored.entries();
    let bundle = entries.iter().find_map(|(_, config)| config.ca_bundle.as_ref())?;
    String::from_utf8(bundle.0.clone()).ok()
}

fn encoded(bundle: &str) -> Value {
    json!(ByteString(bundle.as_bytes().to_vec()))
}

/// A JSON patch that sets a CRD's conversion, and `served` of each version.
fn served(versions: impl Iterator<Item = bool>, conversion: &impl Serialize) -> json_patch::Patch {
    let mut operations = vec![json!({"op": "add", "path": "/spec/conversion", "value": conversion})];
    operations.extend(versions.enumerate().map(
        |(index, served)| json!({"op": "add", "path": format!("/spec/versions/{index}/served"), "value": served}),
    ));
    serde_json::from_value(Value::Array(operations)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
