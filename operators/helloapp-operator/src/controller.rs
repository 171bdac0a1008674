//! Reconciles a [`HelloApp`]: its Deployment and, if wanted, its Service and its disruption budget.

use std::sync::Arc;

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Pod, Service},
};
use kube::ResourceExt;
use manager::{Action, Context, Error, FieldError, Report};
use workloads::SecurityPolicy;

use crate::{
    HelloApp,
    api::v1::HelloAppStatus,
    desired,
    rollback::{self, Memory},
    status::{self, Observed},
};

/// Brings the cluster one step closer to the spec of `hello`.
///
/// Deletion needs no code: the children have an owner reference, so the garbage collector deletes them.
pub(crate) async fn reconcile(hello: Arc<HelloApp>, ctx: Context<HelloApp, SecurityPolicy>) -> Result<Action, Error> {
    let security = *ctx.config();
    let profile = security.profile(hello.spec.security_profile);
    let profile = profile.map_err(|why| FieldError { field: "spec.securityProfile".to_owned(), why })?;
    let wanted = desired::template(&hello, profile);
    let given_up = rollback::given_up(&hello, &wanted, security);
    let template = given_up.as_ref().map_or(&wanted, |it| &it.instead).clone();

    let (deployment, service, _) = ctx
        .all((
            ctx.apply(desired::deployment(&hello, template)),
            ctx.apply_or_delete(desired::service(&hello)),
            ctx.apply_or_delete(desired::disruption_budget(&hello)),
        ))
        .await?;
    let pods = ctx.labelled::<Pod>();
    let observed = Observed {
        wanted: &wanted,
        given_up: given_up.as_ref(),
        deployment: deployment.as_deref(),
        is_applied: deployment.as_deref().is_none_or(|it| ctx.is_in_sync::<Deployment>(it)),
        service: service.as_deref(),
        is_service_applied: service.as_deref().is_none_or(|it| ctx.is_in_sync::<Service>(it)),
        pods: &pods,
    };
    let report = status::of(&hello, observed, security, ctx.now());
    ctx.apply_status(report).await?;

    let now = ctx.object();
    // The status now holds a new decision about a rollback. Only the next reconcile acts on it.
    let (before, after) = (Memory::stored(hello.status.as_ref()), Memory::stored(now.status.as_ref()));
    let decided = before.rolled_back != after.rolled_back;
    Ok(if decided { Action::After(std::time::Duration::ZERO) } else { Action::Done })
}

/// Reports on a HelloApp that is paused or invalid.
pub(crate) fn observe(hello: &HelloApp, ctx: &Context<HelloApp, SecurityPolicy>) -> Report<HelloAppStatus> {
    let (mut hello, deployment) = (hello.clone(), ctx.get::<Deployment>(&hello.name_any()));
    if let Some(deployment) = &deployment {
        hello.spec.size = deployment.wanted(); // another size in the spec is not carried out
    }
    status::observe(&hello, deployment.as_deref(), &ctx.labelled::<Pod>(), *ctx.config(), ctx.now())
}
