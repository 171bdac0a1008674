//! `rollback: OnStall`: restores the last available pod template when a release does not become available.
//!
//! One reconcile writes the decision into the status, and the next one acts on it, so no restart can lose it. The status stores
//! the last template that was fully available (`status.lastAvailableTemplate`). When a generation stalls, the operator gives it
//! up (`status.rolledBack`), and runs the stored template as long as the spec has that generation. The operator never changes
//! the spec, and tries any later generation again. All functions are pure.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use workloads::{DeploymentView, Live, Progress};

use crate::{
    HelloApp,
    api::v1::{HelloAppStatus, Rollback, RolledBack},
};

/// The maximum size of a stored template, in bytes; the operator does not store a larger one. The schema has the same bound.
const LARGEST_TEMPLATE: usize = 65_536;
/// The maximum length of a stored reason, in characters. The schema has the same bound.
const LONGEST_REASON: usize = 4_096;

/// The part of the status that a rollback needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    /// The pod template that was last fully available, as JSON.
    pub template: Option<String>,
    /// The generation that the operator has given up.
    pub rolled_back: Option<RolledBack>,
}

impl Memory {
    /// Reads it from the stored status.
    pub fn stored(status: Option<&HelloAppStatus>) -> Self {
        status.map_or_else(Self::default, |status| Self {
            template: status.last_available_template.clone(),
            rolled_back: status.rolled_back.clone(),
        })
    }
}

/// Returns the current generation with the reason, if the operator has given it up.
pub fn given_up(hello: &HelloApp) -> Option<&RolledBack> {
    let rolled_back = hello.status.as_ref()?.rolled_back.as_ref()?;
    let same = hello.metadata.generation == Some(rolled_back.generation);
    Some(rolled_back).filter(|_| same && hello.spec.rollback() == Rollback::OnStall)
}

/// Returns the template to run instead, if the operator has given up the current generation.
pub fn instead(hello: &HelloApp) -> Option<PodTemplateSpec> {
    given_up(hello)?;
    let remembered = hello.status.as_ref()?.last_available_template.as_ref()?;
    // A later release of this operator may have stored a template that this one cannot read. Treat it as absent.
    serde_json::from_str(remembered).ok()
}

/// Returns what the status has to store, given the Deployment `live` with the template `applied`. `wrong` is the message of the
/// worst problem.
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

/// Whether all wanted pods run the template and are available. Never true at size 0, where no pod proves the template.
fn is_fully_available(live: &DeploymentView, size: i32) -> bool {
    size > 0 && [live.replicas(), live.updated(), live.available()] == [size; 3]
}

#[cfg(test)]
mod tests;
