//! What of a child differs from what is wanted.

use serde_json::Value;
use workloads::Child;

use super::{Target, target::defaulted};
use crate::{
    object::{Head, Metadata},
    owned::{Change, Share, compare, covers},
};

/// A live child, compared with what is wanted.
#[derive(Debug)]
pub(super) struct Difference {
    pub(super) changes: Vec<Change>,
    /// What we want and what is there is held by us.
    pub(super) covered: bool,
    /// We hold it by an entry that also owns what the API server defaulted; see [`Share::from_create`].
    pub(super) from_create: bool,
}

impl Difference {
    pub(super) fn of<C: Child>(live: &Value, metadata: &Metadata<'_>, manager: &str, target: &Target) -> Self {
        let share = Share::of(manager, &metadata.managed_fields);
        let from_create = share.as_ref().is_some_and(|share| share.from_create);
        let owned = share.map_or(Value::Null, |share| share.project(live));
        let changes = if from_create {
            compare(live, &owned, &target.fields, &defaulted::<C>(&target.fields))
        } else {
            compare(live, &owned, &target.fields, &target.fields)
        };
        Self { changes, covered: covers(live, &owned, &target.fields), from_create }
    }

    /// Of an object as the API server sent it.
    pub(super) fn read<C: Child>(text: &str, manager: &str, target: &Target) -> Result<Self, serde_json::Error> {
        let live: Value = serde_json::from_str(text)?;
        Ok(Self::of::<C>(&live, &serde_json::from_str::<Head<'_>>(text)?.metadata, manager, target))
    }

    pub(super) fn is_none(&self) -> bool {
        self.changes.is_empty() && self.covered
    }

    /// Whether an apply does all that there is to do: from an entry that a create left it takes nothing away.
    pub(super) fn is_for_an_apply(&self) -> bool {
        !self.from_create || self.changes.iter().all(|change| change.desired.is_some())
    }

    /// Whether nothing differs but what `tried` did not change either: so it is what this cluster makes of it.
    pub(super) fn is_left_of(&self, tried: &[Change]) -> bool {
        self.covered && self.changes.iter().all(|left| tried.iter().any(|change| change.path == left.path))
    }
}

/// Those of `tried` after which nothing differs there any more.
pub(super) fn carried_out(mut tried: Vec<Change>, left: &Difference) -> Vec<Change> {
    tried.retain(|change| !left.changes.iter().any(|left| left.path == change.path));
    tried
}
