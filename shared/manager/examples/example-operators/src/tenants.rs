//! A cluster-scoped kind: a Tenant is a namespace with a quota. Users add more namespaces by a label; each gets the same quota.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::{
    api::core::v1::{Namespace, ResourceQuota, ResourceQuotaSpec},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::api::resource::Quantity,
};
use kube::{CustomResource, CustomResourceExt, ResourceExt, api::ObjectMeta};
use manager::{Action, Context, Controller, Error, Health, Manager, ObjectKey, Operator, StandardStatus, Verdict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use workloads::{As, ViewOf, Whole};

/// Namespaces with a quota.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(group = "examples.example.com", version = "v1", kind = "Tenant", status = "StandardStatus")]
pub struct TenantSpec {
    /// The greatest number of pods in each namespace.
    #[schemars(range(min = 0, max = 10_000))]
    pods: i32,
}

/// The part of a namespace that the reconciler reads: the label, and nothing that changes without it.
#[derive(Debug, PartialEq, Deserialize)]
pub struct Labels {
    metadata: Metadata,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Metadata {
    #[serde(default)]
    labels: Tenancy,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
struct Tenancy {
    /// The tenant to which a user has added the namespace.
    #[serde(rename = "examples.example.com/tenant")]
    tenant: Option<String>,
}

impl ViewOf<Namespace> for Labels {}

type Labelled = As<Namespace, Labels>;

/// The operator of [`Tenant`].
#[derive(Debug)]
pub struct Tenants;

impl Operator for Tenants {
    fn name(&self) -> &'static str {
        "tenants"
    }

    fn crds(&self) -> Vec<CustomResourceDefinition> {
        vec![Tenant::crd()]
    }

    fn sample(&self) -> &'static str {
        "{apiVersion: examples.example.com/v1, kind: Tenant, metadata: {name: red}, spec: {pods: 10}}"
    }

    fn setup(&self, manager: &mut Manager) {
        manager.add(
            Controller::of::<Tenant>()
                .owns::<Whole<Namespace>>()
                .owns::<Whole<ResourceQuota>>()
                .watches::<Labelled>(|namespace| {
                    namespace.metadata.labels.tenant.iter().map(|name| ObjectKey::new("", &**name)).collect()
                })
                .reconcile(reconcile),
        );
    }
}

async fn reconcile(tenant: Arc<Tenant>, ctx: Context<Tenant>) -> Result<Action, Error> {
    let name = tenant.name_any();
    let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
    let own = ctx.apply(Whole::from(Namespace { metadata, ..Namespace::default() })).await?;
    // A refused write says nothing about the namespace: it may be there, with pods that the quota has to limit.
    let owned = ctx.owned::<Whole<Namespace>>();
    let mut namespaces: BTreeSet<_> = own.iter().chain(&owned).map(|namespace| namespace.name.clone()).collect();
    namespaces.extend(ctx.watched::<Labelled>().iter().filter(|it| it.deleting.is_none()).map(|it| it.name.clone()));
    for quota in ctx.owned::<Whole<ResourceQuota>>() {
        if !namespaces.contains(&quota.namespace) {
            ctx.delete::<Whole<ResourceQuota>>(&quota).await?;
        }
    }
    for namespace in &namespaces {
        ctx.apply(Whole::from(quota(namespace, &name, tenant.spec.pods))).await?;
    }
    let verdict = if own.is_some() {
        Verdict::yes("Ready", format!("{} namespaces with {} pods each", namespaces.len(), tenant.spec.pods))
    } else {
        Verdict::no("NoNamespace", format!("namespace {name} is not there"))
    };
    ctx.apply_status(Health::of(verdict).into()).await?;
    Ok(Action::Done)
}

/// Returns the quota in a namespace of a tenant. A child of a cluster-scoped object names its namespace.
fn quota(namespace: &str, tenant: &str, pods: i32) -> ResourceQuota {
    let hard = BTreeMap::from([("pods".to_owned(), Quantity(pods.to_string()))]);
    ResourceQuota {
        metadata: ObjectMeta {
            name: Some(tenant.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(ResourceQuotaSpec { hard: Some(hard), ..ResourceQuotaSpec::default() }),
        ..ResourceQuota::default()
    }
}
