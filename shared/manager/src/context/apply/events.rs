//! Emits events about the writes to a child.

use serde_json::Value;

use super::{
    super::{Context, Primary, Rollout, lock},
    Target,
};
use crate::{
    api::Requests,
    events::{EventType, Note, Reference},
    object::{Metadata, ObjectKey},
    owned::{Change, holder},
    store::Verified,
};

/// The largest number of paths in an event.
const PATHS: usize = 10;

impl<K: Primary> Context<K> {
    pub(super) fn tell(&self, requests: &Requests, key: &ObjectKey, uid: &str, reason: &'static str, message: String) {
        let (api_version, kind) = requests.type_meta();
        let related = Reference {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            key: key.clone(),
            uid: uid.to_owned(),
        };
        lock(&self.reconciliation.notes).push(Note {
            type_: EventType::Normal,
            reason: reason.into(),
            message,
            related: Some(related),
        });
    }

    /// Emits an event, once per object and process: the kind may stay missing for ever, and the object is not at fault.
    pub(super) fn tell_missing(&self, requests: &Requests) {
        let (api_version, kind) = requests.type_meta();
        if lock(&self.controller.reported_missing)
            .entry(self.reconciliation.key.clone())
            .or_default()
            .insert(kind.to_owned())
        {
            lock(&self.reconciliation.notes).push(Note {
                type_: EventType::Warning,
                reason: format!("{kind}Unavailable").into(),
                message: format!("API {api_version} is not installed; no {kind} is made"),
                related: None,
            });
        }
    }

    /// Emits the events for `changes`, which took effect in the child. `metadata` is from before the write.
    pub(super) fn tell_changes(
        &self,
        requests: &Requests,
        target: &Target,
        metadata: &Metadata<'_>,
        changes: &[Change],
        verified: Option<Verified>,
    ) {
        if changes.is_empty() {
            return;
        }
        let (kind, name, uid) = (requests.kind(), &target.key.name, &metadata.uid);
        let paths = list(changes);
        if self.is_drift(requests, target, metadata, changes, verified) {
            self.controller.children.repaired(kind);
            let other =
                changes.iter().find_map(|change| holder(&change.path, requests.manager(), &metadata.managed_fields));
            let other = other.unwrap_or("another client");
            let own = &self.controller.names.kind;
            let message =
                format!("Reverted changes to {kind} \"{name}\" made by {other}: {paths}; change the {own} instead");
            self.event(EventType::Warning, "DriftReverted", message);
            return;
        }
        match changes {
            [Change { path, live: Some(live), desired: Some(desired) }] if path.starts_with(&["spec", "replicas"]) => {
                self.tell(requests, &target.key, uid, "Scaled", format!("Scaled from {live} to {desired}"));
            }
            _ => {
                self.tell(requests, &target.key, uid, "Updated", format!("Updated {kind} \"{name}\": {paths}"));
                let of_pods = changes.iter().any(|change| change.path.starts_with(&["spec", "template"]));
                if of_pods && self.begin_rollout(target) {
                    self.tell(requests, &target.key, uid, "RolloutStarted", format!("Rolling out {paths}"));
                }
            }
        }
    }

    /// Records the start of a rollout, and returns true. False during the initial rollout, which emits no event.
    fn begin_rollout(&self, target: &Target) -> bool {
        let mut rollouts = lock(&self.controller.rollouts);
        if rollouts.get(&self.reconciliation.key).is_some_and(|rollout| rollout.replicas.is_none()) {
            return false;
        }
        let replicas = target.fields.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1);
        let rollout = Rollout { since: tokio::time::Instant::now(), replicas: Some(replicas) };
        rollouts.insert(self.reconciliation.key.clone(), rollout);
        true
    }
}

fn list(changes: &[Change]) -> String {
    let mut paths: Vec<String> = changes.iter().take(PATHS).map(|change| change.path.to_string()).collect();
    if changes.len() > PATHS {
        paths.push(format!("and {} more", changes.len() - PATHS));
    }
    paths.join(", ")
}
