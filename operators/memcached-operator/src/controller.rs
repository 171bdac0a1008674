//! Keeps a Deployment and a Service, and a disruption budget and a network policy where they are wanted, per [`Memcached`].

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

/// Brings the cluster one step closer to what `memcached` asks for.
///
/// Deletion needs no code: the children are owned, so Kubernetes collects them.
pub(crate) async fn reconcile(memcached: Arc<Memcached>, ctx: Context<Memcached>) -> Result<Action, Error> {
    validation::review(None, &memcached).check()?;

    let deployment = if invalid_size(&memcached).is_some() {
        // How many nodes are wanted is not known: everything stays as it is until somebody says.
        ctx.get::<Deployment>(&memcached.name_any())
    } else {
        ctx.annotate(&[(INVALID_SIZE, None)]).await?;
        let secrets = secrets::read(&memcached.spec, &ctx).await?;
        let applied = match secrets {
            Secrets::Read(hash) => Some(ctx.apply(desired::deployment(&memcached, ctx.config(), hash.as_deref()))),
            Secrets::Missing => None,
        };
        // Boxed, as the rarest child is too: it would hold the future of the write twice.
        let nodes = Box::pin(async {
            match applied {
                Some(applied) => applied.await,
                // Nodes that run go on with what they have.
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
    Ok(Action::Done) // changes to what we own bring us back; the Context adds the timers that conditions need
}
