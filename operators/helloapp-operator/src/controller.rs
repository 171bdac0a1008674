//! Keeps a Deployment, and a Service and a disruption budget where they are of use, per [`HelloApp`].

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use manager::{Action, Context, Error};

use crate::{
    HelloApp, desired,
    rollback::Memory,
    status::{self, Observed},
};

/// Brings the cluster one step closer to what `hello` asks for.
///
/// Deletion needs no code: the children are owned, so Kubernetes collects them.
pub(crate) async fn reconcile(hello: Arc<HelloApp>, ctx: Context<HelloApp>) -> Result<Action, Error> {
    let wanted = desired::deployment(&hello, ctx.config());
    let template = wanted.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();

    let (deployment, service, _) = ctx
        .all((
            ctx.apply(wanted),
            ctx.apply_or_delete(desired::service(&hello)),
            ctx.apply_or_delete(desired::disruption_budget(&hello)),
        ))
        .await?;
    let pods = ctx.labelled::<Pod>();
    let observed =
        Observed { template: &template, deployment: deployment.as_deref(), service: service.as_deref(), pods: &pods };
    let report = status::of(&hello, observed, ctx.now());
    ctx.apply_status(report).await?;

    let now = ctx.object();
    // What was decided about a rollback is acted on by a reconcile that reads it.
    let (before, after) = (Memory::stored(hello.status.as_ref()), Memory::stored(now.status.as_ref()));
    let decided = before.rolled_back != after.rolled_back;
    Ok(if decided { Action::After(std::time::Duration::ZERO) } else { Action::Done })
}
