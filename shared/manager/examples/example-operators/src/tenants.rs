//! A cluster-scoped kind: a Tenant is a namespace with a quota.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    api::core::v1::{Namespace, ResourceQuota, ResourceQuotaSpec},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::api::resource::Quantity,
};
use kube::{CustomResource, CustomResourceExt, ResourceExt, api::ObjectMeta};
use manager::{Action, Context, Controller, Error, Health, Manager, Operator, StandardStatus, Verdict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use workloads::Whole;

/// A namespace with a quota.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(group = "examples.example.com", version = "v1", kind = "Tenant", status = "StandardStatus")]
pub struct TenantSpec {
    /// The greatest number of pods.
    #[schemars(range(min = 0, max = 10_000))]
    pods: i32,
}

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
        let controller = Controller::of::<Tenant>().owns::<Whole<Namespace>>().owns::<Whole<ResourceQuota>>();
        manager.add(controller.reconcile(reconcile));
    }
}

async fn reconcile(tenant: Arc<Tenant>, ctx: Context<Tenant>) -> Result<Action, Error> {
    let name = tenant.name_any();
    let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
    let namespace = ctx.apply(Whole::from(Namespace { metadata, ..Namespace::default() })).await?;
    let verdict = if namespace.is_some() {
        let quota = ctx.apply(Whole::from(quota(&name, tenant.spec.pods))).await?;
        let used = quota.and_then(|quota| quota.status.as_ref()?.used.as_ref()?.get("pods").map(|used| used.0.clone()));
        Verdict::yes("Ready", format!("{} of {} pods are used", used.as_deref().unwrap_or("0"), tenant.spec.pods))
    } else {
        Verdict::no("NoNamespace", format!("namespace {name} is not there"))
    };
    ctx.apply_status(Health::of(verdict).into()).await?;
    Ok(Action::Done)
}

/// Returns the quota of a tenant. A child of a cluster-scoped object names its namespace.
fn quota(namespace: &str, pods: i32) -> ResourceQuota {
    let hard = BTreeMap::from([("pods".to_owned(), Quantity(pods.to_string()))]);
    ResourceQuota {
        metadata: ObjectMeta {
            name: Some("tenant".to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(ResourceQuotaSpec { hard: Some(hard), ..ResourceQuotaSpec::default() }),
        ..ResourceQuota::default()
    }
}
