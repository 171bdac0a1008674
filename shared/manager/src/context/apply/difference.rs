//! Compares a live child with the desired one.

use cache::{
    Head, Metadata,
    owned::{Change, OwnedFields, compare, covers},
};
use serde_json::Value;
use workloads::Child;

use super::{Target, target::defaulted};

/// The result of comparing a live child with the desired one.
#[derive(Debug)]
pub(super) struct Difference {
    pub(super) changes: Vec<Change>,
    /// Whether we own every desired field that the live child has.
    pub(super) covered: bool,
    /// Whether our entry also owns the fields that the API server defaulted; see [`OwnedFields::from_create`].
    pub(super) from_create: bool,
}

impl Difference {
    pub(super) fn of<C: Child>(live: &Value, metadata: &Metadata<'_>, manager: &str, target: &Target) -> Self {
        let share = OwnedFields::of(manager, &metadata.managed_fields);
        let from_create = share.as_ref().is_some_and(|share| share.from_create);
        let owned = share.map_or(Value::Null, |share| share.project(live));
        let changes = if from_create {
            compare(live, &owned, &target.fields, &defaulted::<C>(&target.fields))
        } else {
            compare(live, &owned, &target.fields, &target.fields)
        };
        Self { changes, covered: covers(live, &owned, &target.fields), from_create }
    }

    /// Compares an object as the API server sent it.
    pub(super) fn read<C: Child>(text: &str, manager: &str, target: &Target) -> Result<Self, serde_json::Error> {
        let live: Value = serde_json::from_str(text)?;
        Ok(Self::of::<C>(&live, &serde_json::from_str::<Head<'_>>(text)?.metadata, manager, target))
    }

    pub(super) fn is_none(&self) -> bool {
        self.changes.is_empty() && self.covered
    }

    /// Whether one apply makes all changes. It removes no field that a create entry of ours owns.
    pub(super) fn is_for_an_apply(&self) -> bool {
        !self.from_create || self.changes.iter().all(|change| change.desired.is_some())
    }

    /// Whether we only own fields too many, those that the API server set when it created the child.
    pub(super) fn is_only_defaults(&self) -> bool {
        self.from_create
            && self.covered
            && !self.changes.is_empty()
            && self.changes.iter().all(|change| change.desired.is_none())
    }

    /// Whether every difference is one that `tried` did not change either: then the cluster itself keeps it so.
    pub(super) fn remains_after(&self, tried: &[Change]) -> bool {
        self.covered && self.changes.iter().all(|left| tried.iter().any(|change| change.path == left.path))
    }
}

/// Returns the changes of `tried` that took effect, and then those that did not: the object still differs there.
pub(super) fn applied_changes(tried: Vec<Change>, left: &Difference) -> (Vec<Change>, Vec<Change>) {
    tried.into_iter().partition(|change| !left.changes.iter().any(|left| left.path == change.path))
}
