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

/// The operator of [`Ledger`].
#[derive(Debug)]
pub struct Ledgers;

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
                .reconcile(reconcile),
        );
    }
}

async fn reconcile(ledger: Arc<Ledger>, ctx: Context<Ledger>) -> Result<Action, Error> {
    let name = ledger.name_any();
    // `create` leaves an existing Secret alone, so the password never changes.
    if ctx.get::<Whole<Secret>>(&name).is_none() {
        ctx.create(Whole::from(password(&name))).await?;
    }
    let claim: PersistentVolumeClaim = typed(json!({
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }))?;
    let set: StatefulSet = typed(database(&name, ledger.spec.replicas))?;
    let (_, set) = ctx.all((ctx.apply(Whole::from(claim)), ctx.apply(As::<_, Readiness>::from(set)))).await?;
    let (ready, wanted) = (set.map_or(0, |set| set.status.ready_replicas), ledger.spec.replicas);
    let says = format!("{ready} of {wanted} replicas are ready");
    let verdict = if ready >= wanted { Verdict::yes("Ready", says) } else { Verdict::no("StillStarting", says) };
    ctx.apply_status(Health::of(verdict).into()).await?;
    Ok(Action::Done)
}

fn password(name: &str) -> Secret {
    let password: String = std::iter::repeat_with(fastrand::alphanumeric).take(20).collect();
    Secret {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        data: Some([("password".to_owned(), ByteString(password.into_bytes()))].into()),
        ..Secret::default()
    }
}

fn database(name: &str, replicas: i32) -> Value {
    let password = json!({"secretKeyRef": {"name": name, "key": "password"}});
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
