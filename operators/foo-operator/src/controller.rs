//! Reconciles a [`Foo`]: keeps one Deployment for it.

use std::sync::Arc;

use manager::{Action, Context, Error, EventType};

use crate::{Foo, desired, status};

/// Brings the cluster one step closer to the spec of `sample`.
pub(crate) async fn reconcile(sample: Arc<Foo>, ctx: Context<Foo>) -> Result<Action, Error> {
    if sample.spec.deployment_name.is_empty() {
        let (field, why) = ("spec.deploymentName".to_owned(), "deployment name must be specified".to_owned());
        return Err(Error::Invalid { field, why });
    }
    let deployment = ctx.apply(desired::deployment(&sample)).await?;
    ctx.apply_status(status::of(&sample, deployment.as_deref())).await?;
    if deployment.is_some() && status::has_moved_on(sample.status.as_ref(), ctx.object().status.as_ref()) {
        ctx.event(EventType::Normal, "Synced", "Foo synced successfully");
    }
    Ok(Action::Done)
}
