//! Kinds without a view: a Ledger is a database, that is a `StatefulSet`, a claim for its backups and a Secret with a password.

use std::sync::Arc;

use k8s_openapi::{
    ByteString,
    api::{
        apps::v1::StatefulSet,
        core::v1::{PersistentVolumeClaim, Secret},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{CustomResource, CustomResourceExt, ResourceExt, api::ObjectMeta};
use manager::{Action, Context, Controller, Error, Health, Manager, Operator, StandardStatus, Verdict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use uuid::Uuid;
use workloads::{As, ViewOf, Whole};

/// A database with a place for backups.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(group = "examples.example.com", version = "v1", kind = "Ledger", namespaced, status = "StandardStatus")]
pub struct LedgerSpec {
    /// The number of replicas.
    #[schemars(range(min = 0, max = 9))]
    replicas: i32,
}

/// The part of a `StatefulSet` that the reconciler reads. A cluster may have thousands of them, so the cache must not keep them
/// whole.
#[derive(Debug, PartialEq, Deserialize)]
pub struct Readiness {
    #[serde(default)]
    status: Counts,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Counts {
    ready_replicas: i32,
}

impl ViewOf<StatefulSet> for Readiness {}

/// The key of the password in the Secret.
const PASSWORD: &str = "password";

/// The operator of [`Ledger`].
#[derive(Debug)]
pub struct Ledgers {
    /// Makes a password. Tests make the same one each time.
    pub password: fn() -> String,
}

impl Default for Ledgers {
    /// Takes passwords from the random numbers of the operating system.
    fn default() -> Self {
        Self { password: || Uuid::new_v4().simple().to_string() }
    }
}

impl Operator for Ledgers {
    fn name(&self) -> &'static str {
        "ledgers"
    }

    fn crds(&self) -> Vec<CustomResourceDefinition> {
        vec![Ledger::crd()]
    }

    fn sample(&self) -> &'static str {
        "{apiVersion: examples.example.com/v1, kind: Ledger, metadata: {name: books}, spec: {replicas: 0}}"
    }

    fn setup(&self, manager: &mut Manager) {
        manager.add(
            Controller::of::<Ledger>()
                .owns::<As<StatefulSet, Readiness>>()
                .owns::<Whole<PersistentVolumeClaim>>()
                .owns::<Whole<Secret>>()
                .config(self.password)
                .reconcile(reconcile),
        );
    }
}

async fn reconcile(ledger: Arc<Ledger>, ctx: Context<Ledger, fn() -> String>) -> Result<Action, Error> {
    let name = ledger.name_any();
    let existing = match ctx.get::<Whole<Secret>>(&name) {
        Some(secret) => Some(secret),
        // The cache does not hold a Secret from which another client has removed the label.
        None => ctx.get_uncached::<Whole<Secret>>(&name).await?,
    };
    // An existing password stays, also one that a user has changed.
    let known = existing.and_then(|secret| secret.data.as_ref()?.get(PASSWORD).cloned());
    let password = known.unwrap_or_else(|| ByteString(ctx.config()().into_bytes()));
    let claim: PersistentVolumeClaim = typed(json!({
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }))?;
    let set: StatefulSet = typed(database(&name, ledger.spec.replicas))?;
    let (_, _, set) = ctx
        .all((
            ctx.apply(Whole::from(secret(&name, password))),
            ctx.apply(Whole::from(claim)),
            ctx.apply(As::<_, Readiness>::from(set)),
        ))
        .await?;
    let (ready, wanted) = (set.map_or(0, |set| set.status.ready_replicas), ledger.spec.replicas);
    let says = format!("{ready} of {wanted} replicas are ready");
    let verdict = if ready >= wanted { Verdict::yes("Ready", says) } else { Verdict::no("StillStarting", says) };
    ctx.apply_status(Health::of(verdict).into()).await?;
    Ok(Action::Done)
}

fn secret(name: &str, password: ByteString) -> Secret {
    Secret {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some([(PASSWORD.to_owned(), password)].into()),
        ..Secret::default()
    }
}

fn database(name: &str, replicas: i32) -> Value {
    let password = json!({"secretKeyRef": {"name": name, "key": PASSWORD}});
    json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "serviceName": name, "selector": {"matchLabels": {"ledger": name}},
            "template": {"metadata": {"labels": {"ledger": name}}, "spec": {"containers": [{
                "name": "database", "image": "database:1", "env": [{"name": "PASSWORD", "valueFrom": password}],
            }]}},
        },
    })
}

fn typed<T: DeserializeOwned>(object: Value) -> Result<T, Error> {
    serde_json::from_value(object).map_err(|error| Error::Other(error.into()))
}
