//! Finds out who owns an object that has the name of a child, and explains a conflict.

use cache::{Known, Metadata};
use workloads::Live;

use super::{Context, Shared, Target};
use crate::{
    api::Requests,
    conditions::{Problem, ProblemKind},
    status::Primary,
};

/// Who owns the object that has the name we want.
pub(super) enum Claim {
    Ours,
    /// An earlier object of ours left it behind: it carries our labels and has no owner.
    Orphan,
    /// It belongs to an earlier object that is gone, and is being deleted.
    Dying,
    Foreign,
}

impl<K: Primary, S: Shared> Context<K, S> {
    /// Whether the cached child belongs to this object.
    pub(super) fn owns<V>(&self, known: &Known<Live<V>>) -> bool {
        known.owner.as_ref().is_some_and(|owner| owner.uid == self.reconciliation.id)
    }

    /// Explains that a foreign object has the name we want. The text of the event is that of upstream's
    /// sample-controller.
    pub(super) fn conflict(&self, requests: &Requests, target: &Target, metadata: &Metadata<'_>) -> Problem {
        let (child, name, own) = (requests.kind(), &target.key.name, &self.controller.names.kind);
        let cure = match metadata.controller() {
            Some(owner) => format!("the {child} belongs to the object \"{}\", so use another name", owner.name),
            None => format!("delete this {child} if it is not needed, or use another name"),
        };
        let message = format!("Resource \"{name}\" already exists and is not managed by {own}");
        Problem::new(ProblemKind::RESOURCE_CONFLICT, message).with_cure(cure)
    }

    /// Finds out who owns a live object. One that differs for good, in an immutable field, is no orphan of ours.
    pub(super) fn claim(&self, metadata: &Metadata<'_>, differs_for_good: bool) -> Claim {
        match metadata.controller() {
            Some(owner) if owner.uid == self.reconciliation.uid.as_str() => Claim::Ours,
            Some(owner) if metadata.deletion_timestamp.is_some() && *owner.name == *self.reconciliation.key.name => {
                Claim::Dying
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
