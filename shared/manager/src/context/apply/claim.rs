//! Finds out who owns an object that has the name of a child, and explains a conflict.

use cache::{Known, Metadata};
use jiff::SignedDuration;
use serde_json::Value;
use workloads::Live;

use super::{Context, Shared, Target};
use crate::{
    api::Requests,
    conditions::{Problem, ProblemKind},
    status::Primary,
};

/// How long after the creation of an object the garbage collector may take to see to the children of an earlier one. After that,
/// it probably never will: it does nothing about an owner whose `apiVersion` is no longer served.
const COLLECTION: SignedDuration = SignedDuration::from_mins(5);

/// Who owns the object that has the name we want.
pub(super) enum Claim {
    Ours,
    /// An earlier object of ours left it behind: it carries our labels and has no owner.
    Orphan,
    /// It belongs to an earlier object that is gone, and is being deleted.
    Dying,
    /// It belongs to an earlier object of this name. The garbage collector will delete it, or remove the owner.
    Leftover,
    /// As [`Leftover`](Self::Leftover), but the garbage collector has left it alone for too long.
    Uncollected,
    Foreign,
}

impl<K: Primary, S: Shared> Context<K, S> {
    /// Whether the cached child belongs to this object.
    pub(super) fn owns<V>(&self, known: &Known<Live<V>>) -> bool {
        known.owner.as_ref().is_some_and(|owner| owner.uid == self.reconciliation.id)
    }

    /// Explains that a foreign object has the name we want, or one of an earlier object that the garbage collector leaves alone.
    /// The text of the event is that of upstream's sample-controller.
    pub(super) fn conflict(
        &self,
        requests: &Requests,
        target: &Target,
        metadata: &Metadata<'_>,
        is_uncollected: bool,
    ) -> Problem {
        let (child, name, own) = (requests.kind(), &target.key.name, &self.controller.names.kind);
        let cure = match metadata.controller() {
            Some(_) if is_uncollected => format!(
                "the garbage collector does not delete this {child} of an earlier {own} of this name, so delete it, or \
                 remove its owner reference"
            ),
            Some(owner) => format!("the {child} belongs to the object \"{}\", so use another name", owner.name),
            None => format!("delete this {child} if it is not needed, or use another name"),
        };
        let message = format!("Resource \"{name}\" already exists and is not managed by {own}");
        Problem::new(ProblemKind::RESOURCE_CONFLICT, message).with_cure(cure)
    }

    /// Whether the controller of the live object has the group, the kind and the name of the reconciled object, but another uid. A
    /// name is used again only after its object is gone, so the garbage collector will see to the live object.
    pub(in crate::context) fn is_of_earlier_self(&self, live: &Value) -> bool {
        let (names, own) = (&self.controller.names, &self.reconciliation);
        let mut owners = live["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        owners.any(|owner| {
            let version = owner["apiVersion"].as_str().unwrap_or_default();
            let group = version.split_once('/').map_or("", |(group, _)| group);
            owner["controller"] == true
                && group == names.group
                && owner["kind"] == names.kind
                && owner["name"] == *own.key.name
                && owner["uid"] != own.uid
        })
    }

    /// Whether the garbage collector may still be about to see to the children of an earlier object of this name.
    pub(in crate::context) fn expects_collection(&self) -> bool {
        let object = self.object();
        let created = object.meta().creation_timestamp.as_ref();
        created.is_some_and(|created| self.now().duration_since(created.0) < COLLECTION)
    }

    /// Finds out who owns a live object. One that differs for good, in an immutable field, is no orphan of ours.
    pub(super) fn claim(&self, live: &Value, metadata: &Metadata<'_>, differs_for_good: bool) -> Claim {
        match metadata.controller() {
            Some(owner) if owner.uid == self.reconciliation.uid.as_str() => Claim::Ours,
            Some(owner) if metadata.deletion_timestamp.is_some() && *owner.name == *self.reconciliation.key.name => {
                Claim::Dying
            }
            Some(_) if self.is_of_earlier_self(live) => {
                if self.expects_collection() {
                    Claim::Leftover
                } else {
                    Claim::Uncollected
                }
            }
            Some(_) => Claim::Foreign,
            None => {
                let labels = &metadata.labels;
                let ours = self.controller.capabilities.adopts
                    && labels.name.as_deref() == Some(&*self.controller.names.app)
                    && labels.instance.as_deref() == Some(&*self.reconciliation.key.name)
                    && labels.managed_by.as_deref() == Some(&self.controller.names.managed_by);
                if ours && metadata.deletion_timestamp.is_some() {
                    Claim::Dying
                } else if ours && !differs_for_good {
                    Claim::Orphan
                } else {
                    Claim::Foreign
                }
            }
        }
    }
}
