//! A cluster-scoped kind: a Tenant is a namespace with a quota and an account that may look at its pods. Users add more namespaces
//! by a label; each gets the same.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::{
    api::{
        core::v1::{Namespace, Pod, ResourceQuota, ResourceQuotaSpec, ServiceAccount},
        rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::api::resource::Quantity,
};
use kube::{CustomResource, CustomResourceExt, ResourceExt, api::ObjectMeta};
use manager::{
    Action, Context, Controller, Error, Health, Manager, ObjectKey, Operator, Permission, StandardStatus, Verdict,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use workloads::{As, Child, ViewOf, Whole};

/// Namespaces with a quota and an account.
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

/// What the account of a tenant may do with pods.
const ALLOWED: &[&str] = &["get", "list", "watch"];

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
                .owns::<Whole<ServiceAccount>>()
                .owns::<Whole<Role>>()
                .owns::<Whole<RoleBinding>>()
                // The API server refuses a Role that allows more than its author may do.
                .permits(Permission::on::<Pod>(ALLOWED))
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
    // Also if the write was refused: the namespace may be there, with pods that the quota has to limit.
    let mut namespaces: BTreeSet<_> = own.iter().map(|namespace| namespace.name.clone()).collect();
    namespaces.extend(ctx.watched::<Labelled>().iter().filter(|it| it.deleting.is_none()).map(|it| it.name.clone()));
    leave::<Whole<ResourceQuota>>(&ctx, &namespaces).await?;
    leave::<Whole<ServiceAccount>>(&ctx, &namespaces).await?;
    leave::<Whole<Role>>(&ctx, &namespaces).await?;
    for namespace in &namespaces {
        furnish(&ctx, namespace, &name, tenant.spec.pods).await?;
    }
    // The API server refuses a binding to a role that is not there, and a role of another owner could allow anything.
    let mut bound: BTreeSet<_> = ctx.owned::<Whole<Role>>().iter().map(|role| role.namespace.clone()).collect();
    bound.retain(|namespace| namespaces.contains(namespace));
    leave::<Whole<RoleBinding>>(&ctx, &bound).await?;
    for namespace in &bound {
        ctx.apply(Whole::from(binding(namespace, &name))).await?;
    }
    let verdict = match &own {
        Some(own) if ctx.is_in_sync::<Whole<Namespace>>(own) => {
            Verdict::yes("Ready", format!("{} namespaces with {} pods each", namespaces.len(), tenant.spec.pods))
        }
        Some(_) => Verdict::no("NamespaceOutdated", format!("namespace {name} is not up to date")),
        None => Verdict::no("NoNamespace", format!("namespace {name} is not there")),
    };
    ctx.apply_status(Health::of(verdict).into()).await?;
    Ok(Action::Done)
}

/// Deletes the children of a kind that are in none of these namespaces.
async fn leave<C: Child>(ctx: &Context<Tenant>, namespaces: &BTreeSet<Arc<str>>) -> Result<(), Error> {
    for child in ctx.owned::<C>() {
        if !namespaces.contains(&child.namespace) {
            ctx.delete::<C>(&child).await?;
        }
    }
    Ok(())
}

/// Writes the children in one namespace, but for the binding.
async fn furnish(ctx: &Context<Tenant>, namespace: &str, tenant: &str, pods: i32) -> Result<(), Error> {
    let metadata = within(namespace, tenant);
    let account = ServiceAccount { metadata: metadata.clone(), ..ServiceAccount::default() };
    ctx.all((
        ctx.apply(Whole::from(quota(metadata.clone(), pods))),
        ctx.apply(Whole::from(account)),
        ctx.apply(Whole::from(role(metadata))),
    ))
    .await?;
    Ok(())
}

/// A child of a cluster-scoped object names its namespace.
fn within(namespace: &str, tenant: &str) -> ObjectMeta {
    ObjectMeta { name: Some(tenant.to_owned()), namespace: Some(namespace.to_owned()), ..ObjectMeta::default() }
}

fn quota(metadata: ObjectMeta, pods: i32) -> ResourceQuota {
    let hard = BTreeMap::from([("pods".to_owned(), Quantity(pods.to_string()))]);
    let spec = ResourceQuotaSpec { hard: Some(hard), ..ResourceQuotaSpec::default() };
    ResourceQuota { metadata, spec: Some(spec), ..ResourceQuota::default() }
}

fn role(metadata: ObjectMeta) -> Role {
    let pods = PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec!["pods".to_owned()]),
        verbs: ALLOWED.iter().map(|verb| (*verb).to_owned()).collect(),
        ..PolicyRule::default()
    };
    Role { metadata, rules: Some(vec![pods]) }
}

fn binding(namespace: &str, tenant: &str) -> RoleBinding {
    let account = Subject {
        kind: "ServiceAccount".to_owned(),
        name: tenant.to_owned(),
        namespace: Some(namespace.to_owned()),
        ..Subject::default()
    };
    let role_ref = RoleRef {
        api_group: Some("rbac.authorization.k8s.io".to_owned()),
        kind: "Role".to_owned(),
        name: tenant.to_owned(),
    };
    RoleBinding { metadata: within(namespace, tenant), role_ref, subjects: Some(vec![account]) }
}
