//! Reconciles a [`Gadget`]: keeps one `ConfigMap` for it.

use std::sync::Arc;

use manager::{Action, Context, Error};

use crate::{Gadget, desired, status};

/// Brings the cluster one step closer to the spec of `object`. The runtime may call this at any time, and again after each change
/// of the object or its children.
pub(crate) async fn reconcile(object: Arc<Gadget>, ctx: Context<Gadget>) -> Result<Action, Error> {
    let child = ctx.apply(desired::config_map(&object)).await?;
    ctx.apply_status(status::of(child.is_some())).await?;
    Ok(Action::Done)
}
