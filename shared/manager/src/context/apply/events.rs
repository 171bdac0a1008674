//! Emits events about the writes to a child.

use std::collections::BTreeSet;

use cache::{
    Metadata, ObjectKey, Verified,
    owned::{Change, holder},
};
use serde_json::Value;

use super::{
    super::{Context, Primary, Rollout, Shared},
    Target,
};
use crate::{
    api::Requests,
    events::{EventType, Note, Reference},
};

/// The largest number of paths in an event.
const PATHS: usize = 10;

/// A write that changed a child.
pub(super) struct AppliedWrite<'a> {
    pub(super) requests: &'a Requests,
    pub(super) target: &'a Target,
    pub(super) before: Before<'a>,
    /// The changes that took effect.
    pub(super) changes: Vec<Change>,
    /// The changes that did not: a policy of the cluster keeps these fields as they are.
    pub(super) kept: Vec<Change>,
}

/// What was known of a child before a write.
#[derive(Clone, Copy)]
pub(super) struct Before<'a> {
    pub(super) metadata: &'a Metadata<'a>,
    /// The state in which this process last saw the child in sync, if it has.
    pub(super) verified: Option<Verified>,
    /// Whether the fields that we own have changed since then.
    pub(super) is_changed: bool,
    /// Whether the cache lacked the child, because it had lost our label.
    pub(super) is_lost: bool,
    /// Whether we owned every wanted field that the child had.
    pub(super) is_covered: bool,
}

impl<K: Primary, S: Shared> Context<K, S> {
    pub(super) fn child_event(
        &self,
        requests: &Requests,
        key: &ObjectKey,
        uid: &str,
        reason: &'static str,
        message: String,
    ) {
        let (api_version, kind) = requests.type_meta();
        let related = Reference {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            key: key.clone(),
            uid: uid.to_owned(),
        };
        self.reconciliation.notes.lock().push(Note {
            type_: EventType::Normal,
            reason: reason.into(),
            message,
            related: Some(related),
        });
    }

    /// Emits the event about a child that was created, unless another client deletes or replaces it again and again: then the
    /// status reports it.
    pub(super) fn report_creation(
        &self,
        requests: &Requests,
        target: &Target,
        uid: &str,
        reason: &'static str,
        text: String,
    ) {
        let (owner, id, recent) = (&self.reconciliation.key, self.reconciliation.id, &self.controller.recent);
        let restores = recent.restores(owner, id, requests.kind(), &target.key.name);
        recent.created(owner, id, requests.kind(), &target.key.name);
        if restores {
            self.record_creation(requests, target, None);
        }
        if !self.reports_creations(requests, target) {
            self.child_event(requests, &target.key, uid, reason, text);
        }
    }

    /// Emits the event about a child that was adopted, unless another client takes it away again and again: then the status
    /// reports it.
    pub(super) fn report_adoption(&self, write: &AppliedWrite<'_>) {
        let AppliedWrite { requests, target, before: Before { metadata, verified, .. }, .. } = write;
        // What this process has seen in sync was no orphan: another client has removed the owner since.
        let is_contested = verified.is_some() && self.record_revert(write);
        if !is_contested {
            let text = format!("Adopted {} \"{}\"", requests.kind(), target.key.name);
            self.child_event(requests, &target.key, &metadata.uid, "Adopted", text);
        }
    }

    /// Emits an event if the kind is missing, once per object and process until the kind is installed: it may stay missing for
    /// ever, and the object is not at fault.
    pub(super) fn report_missing(&self, requests: &Requests, is_missing: bool) {
        let (api_version, kind) = requests.type_meta();
        let (key, memory) = (&self.reconciliation.key, &self.controller.memory);
        if memory.read(key, |it| it.reported_missing.contains(kind)) == is_missing {
            return;
        }
        let change = |reported: &mut BTreeSet<String>| {
            if is_missing { reported.insert(kind.to_owned()) } else { reported.remove(kind) }
        };
        memory.modify(key, |it| change(&mut it.reported_missing));
        if is_missing {
            self.reconciliation.notes.lock().push(Note {
                type_: EventType::Warning,
                reason: format!("{kind}Unavailable").into(),
                message: format!("API {api_version} is not installed; no {kind} is made"),
                related: None,
            });
        }
    }

    /// Emits the events for the changes of a write.
    pub(super) fn report_changes(&self, write: &AppliedWrite<'_>) {
        let AppliedWrite { requests, target, before: Before { metadata, is_lost, is_covered, .. }, changes, .. } =
            write;
        if changes.is_empty() {
            // The write has changed no value, but another client may take the fields from us again and again.
            if !is_covered && self.is_drift(write) {
                self.record_revert(write);
            }
            return;
        }
        let (kind, name, uid) = (requests.kind(), &target.key.name, &metadata.uid);
        let paths = list(changes);
        let is_drift = self.is_drift(write);
        let is_contested = (is_drift || *is_lost || self.reverts(write)) && self.record_revert(write);
        if is_drift {
            self.controller.children.repaired(kind);
            if is_contested {
                return; // the status reports it
            }
            let other =
                changes.iter().find_map(|change| holder(&change.path, requests.manager(), &metadata.managed_fields));
            let other = other.unwrap_or("another client");
            let own = &self.controller.names.kind;
            let message =
                format!("Reverted changes to {kind} \"{name}\" made by {other}: {paths}; change the {own} instead");
            self.event(EventType::Warning, "DriftReverted", message);
            return;
        }
        match &changes[..] {
            [Change { path, live: Some(live), desired: Some(desired) }] if path.starts_with(&["spec", "replicas"]) => {
                self.child_event(requests, &target.key, uid, "Scaled", format!("Scaled from {live} to {desired}"));
            }
            _ => {
                self.child_event(requests, &target.key, uid, "Updated", format!("Updated {kind} \"{name}\": {paths}"));
                let of_pods = changes.iter().any(|change| change.path.starts_with(&["spec", "template"]));
                if of_pods && self.begin_rollout(target) {
                    self.child_event(requests, &target.key, uid, "RolloutStarted", format!("Rolling out {paths}"));
                }
            }
        }
    }

    /// Whether the child differs because another client changed it, not because we want something else now.
    ///
    /// A process that has not seen the child in sync cannot tell a field that another client removed from one that its own
    /// new version wants for the first time. So it only reports drift if `managedFields` name another manager.
    fn is_drift(&self, write: &AppliedWrite<'_>) -> bool {
        let AppliedWrite { target, before: Before { verified, .. }, .. } = write;
        match verified {
            Some(verified) => verified.desired == target.hash,
            None => self.is_observed() && is_held_by_another(write),
        }
    }

    /// Whether the write reverts what another client did, although no user has changed the object since the last status. The
    /// desired value may be a new one, such as a generated key.
    fn reverts(&self, write: &AppliedWrite<'_>) -> bool {
        let before = &write.before;
        self.is_observed() && if before.verified.is_some() { before.is_changed } else { is_held_by_another(write) }
    }

    /// Records the start of a rollout, and returns true. False during the initial rollout, which emits no event.
    fn begin_rollout(&self, target: &Target) -> bool {
        let replicas = target.fields.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1);
        let begun = Rollout { since: tokio::time::Instant::now(), replicas: Some(replicas) };
        self.controller.memory.modify(&self.reconciliation.key, |it| {
            let is_initial = it.rollout.is_some_and(|rollout| rollout.replicas.is_none());
            if !is_initial {
                it.rollout = Some(begun);
            }
            !is_initial
        })
    }
}

/// Whether another manager holds a field that the write has set. A field that we no longer want does not count: other managers may
/// hold parts below it.
fn is_held_by_another(write: &AppliedWrite<'_>) -> bool {
    let AppliedWrite { requests, before: Before { metadata, .. }, changes, .. } = write;
    let held = |change: &Change| {
        change.desired.is_some() && holder(&change.path, requests.manager(), &metadata.managed_fields).is_some()
    };
    changes.iter().any(held)
}

fn list(changes: &[Change]) -> String {
    let mut paths: Vec<String> = changes.iter().take(PATHS).map(|change| change.path.to_string()).collect();
    if changes.len() > PATHS {
        paths.push(format!("and {} more", changes.len() - PATHS));
    }
    paths.join(", ")
}
