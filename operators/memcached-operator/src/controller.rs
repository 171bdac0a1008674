//! Reconciles a [`Memcached`]: its Deployment and its Service and, if wanted, its disruption budget, network policy and
//! `ServiceMonitor`.

use std::sync::Arc;

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::ResourceExt;
use manager::{Action, Context, Error};

use crate::{
    api::{
        Memcached,
        convert::{INVALID_SIZE, invalid_size},
    },
    desired,
    secrets::{self, Secrets},
    status, validation,
};

/// Brings the cluster one step closer to the spec of `memcached`.
///
/// Deletion needs no code: the children have an owner reference, so the garbage collector deletes them.
pub(crate) async fn reconcile(memcached: Arc<Memcached>, ctx: Context<Memcached>) -> Result<Action, Error> {
    validation::review(None, &memcached).check()?;

    let deployment = if invalid_size(&memcached).is_some() {
        // The wanted number of pods is unknown, so nothing changes until a user sets a valid size.
        ctx.get::<Deployment>(&memcached.name_any())
    } else {
        ctx.annotate(&[(INVALID_SIZE, None)]).await?;
        let secrets = secrets::read(&memcached.spec, &ctx).await?;
        let applied = match secrets {
            Secrets::Read(hash) => Some(ctx.apply(desired::deployment(&memcached, ctx.config(), hash.as_deref()))),
            Secrets::Missing => None,
        };
        // Boxed, like the rarest child below, so that the reconcile future stays small: it would hold the write's future twice.
        let nodes = Box::pin(async {
            match applied {
                Some(applied) => applied.await,
                // A Secret is missing: running pods keep what they have, and no new ones are created.
                None => Ok(ctx.get::<Deployment>(&memcached.name_any())),
            }
        });
        let (deployment, ..) = ctx
            .all((
                nodes,
                ctx.apply(desired::service(&memcached)),
                ctx.apply_or_delete(desired::disruption_budget(&memcached)),
                ctx.apply_or_delete(desired::network_policy(&memcached)),
                Box::pin(ctx.apply_or_delete(desired::service_monitor(&memcached))),
            ))
            .await?;
        deployment
    };
    let pods = ctx.labelled::<Pod>();

    ctx.apply_status(status::of(&memcached, deployment.as_deref(), &pods, ctx.now())).await?;
    Ok(Action::Done) // watches of the children cause the next reconcile; the Context adds timers for the conditions
}
