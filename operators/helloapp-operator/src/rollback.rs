//! `rollback: OnStall`: what runs instead of a release that does not come up.
//!
//! The decision is made in the status and acted on by the next reconcile, so that it is never forgotten: a template that
//! was fully available is remembered (`status.lastAvailableTemplate`), a generation that stalled is given up
//! (`status.rolledBack`), and as long as spec is of that generation the pods are made from what was remembered. The spec
//! is never changed, and any later generation is tried again. Pure.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use workloads::{DeploymentView, Live, Progress};

use crate::{
    HelloApp,
    api::v1::{HelloAppStatus, Rollback, RolledBack},
};

/// A larger template is not remembered. The schema has the same bound.
const LARGEST_TEMPLATE: usize = 65_536;
/// As long as the schema allows.
const LONGEST_REASON: usize = 4_096;

/// What a status remembers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    /// The pod template that was last fully available, as JSON.
    pub template: Option<String>,
    /// The generation that was given up.
    pub rolled_back: Option<RolledBack>,
}

impl Memory {
    /// What the stored status remembers.
    pub fn stored(status: Option<&HelloAppStatus>) -> Self {
        status.map_or_else(Self::default, |status| Self {
            template: status.last_available_template.clone(),
            rolled_back: status.rolled_back.clone(),
        })
    }
}

/// The generation of this spec that was given up, if it was.
pub fn given_up(hello: &HelloApp) -> Option<&RolledBack> {
    let rolled_back = hello.status.as_ref()?.rolled_back.as_ref()?;
    let same = hello.metadata.generation == Some(rolled_back.generation);
    Some(rolled_back).filter(|_| same && hello.spec.rollback() == Rollback::OnStall)
}

/// The template to run in place of the one that was given up.
pub fn instead(hello: &HelloApp) -> Option<PodTemplateSpec> {
    given_up(hello)?;
    let remembered = hello.status.as_ref()?.last_available_template.as_ref()?;
    // What cannot be read (a later release of this operator wrote it) is as good as not remembered.
    serde_json::from_str(remembered).ok()
}

/// What is to be remembered, now that `applied` is the template of the Deployment, which is as `live` says. `wrong` are the
/// words for what is wrong with it.
pub fn remember(
    hello: &HelloApp,
    applied: &PodTemplateSpec,
    live: Option<&Live<DeploymentView>>,
    wrong: Option<&str>,
) -> Memory {
    if hello.spec.rollback() == Rollback::Never {
        return Memory::default();
    }
    let stored = Memory::stored(hello.status.as_ref());
    let current = live.filter(|it| it.is_observed());
    let text = serde_json::to_string(applied).ok().filter(|it| it.len() <= LARGEST_TEMPLATE);
    let good = current.is_some_and(|live| is_fully_available(live, hello.spec.size));
    let template = if good && text.is_some() { text.clone() } else { stored.template };

    let rolled_back = given_up(hello).cloned().or_else(|| {
        let stalled = current.is_some_and(|live| matches!(live.progress(), Progress::Stalled(_)));
        let better = template.is_some() && template != text;
        let because = || wrong.unwrap_or("no progress").chars().take(LONGEST_REASON).collect();
        (stalled && better)
            .then(|| RolledBack { generation: hello.metadata.generation.unwrap_or_default(), because: because() })
    });
    Memory { template, rolled_back }
}

/// At size 0 nothing shows whether a template is any good.
fn is_fully_available(live: &DeploymentView, size: i32) -> bool {
    size > 0 && [live.replicas(), live.updated(), live.available()] == [size; 3]
}

#[cfg(test)]
mod tests;
