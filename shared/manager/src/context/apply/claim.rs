//! Finds out who owns an object that has the name of a child.

use cache::{Known, Metadata};
use workloads::Live;

use super::{Context, Shared};
use crate::status::Primary;

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
