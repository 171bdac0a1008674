//! Reconciles a [`Memcached`]: its Deployment and its Service and, if wanted, its disruption budget, network policy and
//! `ServiceMonitor`.

use std::sync::Arc;

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::ResourceExt;
use manager::{Action, Context, Error, Problem, Report};
use workloads::{DeploymentView, Live};

use crate::{
    Config,
    api::{
        Memcached,
        convert::{INVALID_SIZE, invalid_size},
        v1::MemcachedStatus,
    },
    desired,
    secrets::{self, Secrets},
    status, validation,
};

// ANCHOR: reconcile
/// Makes the children match the spec of `memcached`, and writes the status.
///
/// Deletion needs no code: the children have an owner reference, so the garbage collector deletes them.
pub(crate) async fn reconcile(memcached: Arc<Memcached>, ctx: Context<Memcached, Config>) -> Result<Action, Error> {
    validation::review(None, &memcached).check()?;
    let (deployment, problems) = match invalid_size(&memcached) {
        None => apply_children(&memcached, &ctx).await?,
        // The wanted number of pods is unknown, so nothing changes until a user sets a valid size.
        Some(_) => (ctx.get::<Deployment>(&memcached.name_any()), Vec::new()),
    };
    let pods = ctx.labelled::<Pod>();
    let mut report = status::of(&memcached, deployment.as_deref(), &pods, ctx.now());
    report.health.problems.extend(problems);
    ctx.apply_status(report).await?;
    Ok(Action::Done) // watches of the children cause the next reconcile; the Context adds the timers that conditions need
}
// ANCHOR_END: reconcile

/// Reports on a Memcached that is paused or invalid.
pub(crate) fn observe(memcached: &Memcached, ctx: &Context<Memcached, Config>) -> Report<MemcachedStatus> {
    let (mut memcached, deployment) = (memcached.clone(), ctx.get::<Deployment>(&memcached.name_any()));
    if let Some(deployment) = &deployment {
        memcached.spec.size = deployment.wanted(); // another size in the spec is not carried out
    }
    status::of(&memcached, deployment.as_deref(), &ctx.labelled::<Pod>(), ctx.now())
}

/// Writes all children. Returns the Deployment as it is now, and the problems with Secrets that the operator makes.
async fn apply_children(
    memcached: &Memcached,
    ctx: &Context<Memcached, Config>,
) -> Result<(Option<Arc<Live<DeploymentView>>>, Vec<Problem>), Error> {
    ctx.annotate(&[(INVALID_SIZE, None)]).await?; // the size is valid, so a note about an earlier one is outdated
    let (secrets, problems) = secrets::read(memcached, ctx).await?;
    let deployment = match secrets {
        Secrets::Read(hash) => Some(desired::deployment(memcached, ctx.config(), hash.as_deref())),
        Secrets::Missing => None, // running pods keep what they have, and no new ones are created
    };
    let (deployment, ..) = ctx
        .all((
            ctx.apply_or_keep(&memcached.name_any(), deployment),
            ctx.apply(desired::service(memcached)),
            ctx.apply_or_delete(desired::disruption_budget(memcached)),
            ctx.apply_or_delete(desired::network_policy(memcached)),
            ctx.apply_or_delete(desired::service_monitor(memcached)),
        ))
        .await?;
    Ok((deployment, problems))
}
