//! Reconciles a [`Gadget`]: keeps one `ConfigMap` for it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use manager::{Action, Context, Error};

use crate::{Gadget, desired, status};

/// Brings the cluster one step closer to the spec of `object`. The runtime may call this at any time, and again after each change
/// of the object or its children.
pub(crate) async fn reconcile(object: Arc<Gadget>, ctx: Context<Gadget>) -> Result<Action, Error> {
    let child = ctx.apply(desired::config_map(&object)).await?;
    // A write that the API server refuses, or that has to wait, leaves the ConfigMap as it was.
    let is_up_to_date = child.is_some_and(|it| ctx.is_in_sync::<ConfigMap>(&it));
    ctx.apply_status(status::of(is_up_to_date)).await?;
    Ok(Action::Done)
}
