//! Reconciles a [`Foo`]: keeps one Deployment for it.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use manager::{Action, Context, Error, EventType, Report};

use crate::{Foo, api::FooStatus, desired, status};

/// Brings the cluster one step closer to the spec of `object`. The configuration is the image of the pods.
pub(crate) async fn reconcile(object: Arc<Foo>, ctx: Context<Foo, String>) -> Result<Action, Error> {
    if object.spec.deployment_name.is_empty() {
        let (field, why) = ("spec.deploymentName".to_owned(), "deployment name must be specified".to_owned());
        return Err(Error::Invalid { field, why });
    }
    let deployment = ctx.apply(desired::deployment(&object, ctx.config())).await?;
    ctx.apply_status(status::of(&object, deployment.as_deref())).await?;
    // A Deployment whose write is refused, or has to wait, stays as it is.
    let is_synced = deployment.as_deref().is_some_and(|it| ctx.is_in_sync::<Deployment>(it));
    if is_synced && status::changed(object.status.as_ref(), ctx.object().status.as_ref()) {
        ctx.event(EventType::Normal, "Synced", "Foo synced successfully");
    }
    Ok(Action::Done)
}

/// Reports on a Foo that is paused or invalid.
pub(crate) fn observe(object: &Foo, ctx: &Context<Foo, String>) -> Report<FooStatus> {
    status::of(object, ctx.owned::<Deployment>().first().map(|it| &**it))
}
