//! `rollback: OnStall`: restores the last available pod template when a release does not become available.
//!
//! One reconcile writes the decision into the status, and the next one acts on it, so no restart can lose it. The status stores
//! the last template that was fully available (`status.lastAvailableTemplate`). When a release stalls, the operator gives it up
//! (`status.rolledBack`), and runs the stored template as long as the spec results in the template of that release. The operator
//! never changes the spec, and tries any other template. So a new size does not try the bad release again.
//!
//! The stored template is not trusted: a client that may write the status could put any pod into it, and the administrator may have
//! forbidden its security profile since. All functions are pure.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use sha2::{Digest, Sha256};
use workloads::{DeploymentView, Live, SecurityPolicy};

use crate::{
    HelloApp,
    api::v1::{HelloAppStatus, Rollback, RolledBack},
    desired,
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
    /// The release that the operator has given up.
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

/// A release that the operator has given up, and the template that runs instead.
#[derive(Debug, Clone, PartialEq)]
pub struct GivenUp {
    /// What the status stores about it.
    pub rolled_back: RolledBack,
    /// The last available template.
    pub instead: PodTemplateSpec,
}

/// Returns what runs instead of `wanted`, the template of the spec; `None` if `wanted` runs. `security` is the administrator's.
pub fn given_up(hello: &HelloApp, wanted: &PodTemplateSpec, security: SecurityPolicy) -> Option<GivenUp> {
    let status = hello.status.as_ref()?;
    let rolled_back = status.rolled_back.clone()?;
    let is_wanted = rolled_back.template_hash == hash(wanted) && hello.spec.rollback() == Rollback::OnStall;
    let instead = restorable(status.last_available_template.as_deref()?, security).filter(|_| is_wanted)?;
    Some(GivenUp { rolled_back, instead })
}

/// Returns what the status has to store. The spec results in the template `wanted`. The Deployment is `live`, and has this
/// template or that of [`given_up`]. `is_stalled` tells whether the status reports that its rollout has stalled. `wrong` is the
/// message of the worst problem, if there is one.
pub fn remember(
    hello: &HelloApp,
    wanted: &PodTemplateSpec,
    given_up: Option<&GivenUp>,
    live: Option<&Live<DeploymentView>>,
    is_stalled: bool,
    wrong: Option<&str>,
    security: SecurityPolicy,
) -> Memory {
    if hello.spec.rollback() == Rollback::Never {
        return Memory::default();
    }
    let stored = Memory::stored(hello.status.as_ref());
    let current = live.filter(|it| it.is_observed());
    let applied = given_up.map_or(wanted, |it| &it.instead);
    let text = serde_json::to_string(applied).ok().filter(|it| it.len() <= LARGEST_TEMPLATE);
    let good = wrong.is_none() && current.is_some_and(|live| is_fully_available(live, hello.spec.size));
    let template = if good && text.is_some() { text.clone() } else { stored.template };

    let rolled_back = given_up.map(|it| it.rolled_back.clone()).or_else(|| {
        let stalled = is_stalled && current.is_some_and(|live| is_being_tried(live));
        let better = template != text && template.as_deref().is_some_and(|it| restorable(it, security).is_some());
        (stalled && better).then(|| RolledBack {
            generation: hello.metadata.generation.unwrap_or_default(),
            template_hash: hash(wanted),
            because: wrong.unwrap_or("no progress").chars().take(LONGEST_REASON).collect(),
        })
    });
    Memory { template, rolled_back }
}

/// Whether a stall is that of the present template, and not that of a former one.
///
/// If the `ReplicaSet` of the template exists already, as that of an older release does, the Deployment controller observes the
/// template but keeps reporting the stall of the former one until the rollout makes progress. The first pod of the template is
/// progress. So a stall without a pod of it belongs to a former template, unless the API server refuses the pods.
fn is_being_tried(live: &DeploymentView) -> bool {
    live.updated() > 0 || live.refused().is_some()
}

/// Reads a stored template. Returns `None` if a HelloApp cannot have it under this policy, or if a later release of this operator
/// stored it in a form that this one cannot read.
fn restorable(stored: &str, security: SecurityPolicy) -> Option<PodTemplateSpec> {
    let template: PodTemplateSpec = serde_json::from_str(stored).ok()?;
    let pod = template.spec.as_ref()?;
    security.permitted().any(|profile| desired::is_possible(pod, profile)).then_some(template)
}

/// Returns a hash of the template. It tells releases apart, and does not grow with them.
pub(crate) fn hash(template: &PodTemplateSpec) -> String {
    let text = serde_json::to_vec(template).unwrap_or_default();
    format!("{:x}", Sha256::digest(&text))
}

/// Whether all wanted pods run the template and are available. Never true at size 0, where no pod proves the template.
fn is_fully_available(live: &DeploymentView, size: i32) -> bool {
    size > 0 && [live.replicas(), live.updated(), live.available()] == [size; 3]
}

#[cfg(test)]
mod tests;
