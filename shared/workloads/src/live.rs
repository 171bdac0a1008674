//! The cached form of an object, and the traits that define it for a kind.

use std::{fmt::Debug, ops::Deref, sync::Arc};

use jiff::Timestamp;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::Scoped;

/// A kind whose objects are cached as a [`View`](Viewed::View): a small struct with only the fields that
/// reconcilers read, decoded straight from the wire.
///
/// A typed Deployment takes 12 to 20 KB of memory, its view less than 200 bytes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be cached yet",
    note = "implement `Viewed` for a kind of your own; use `Whole<{Self}>` for one of another crate"
)]
pub trait Viewed: Scoped + Debug + Send + Sync + 'static {
    /// The part of an object that the cache keeps. It is decoded from the whole object, so it nests as the object does
    /// (`spec.replicas`) and must tolerate absent fields. [`Live`] holds the identity.
    type View: DeserializeOwned + Debug + PartialEq + Send + Sync + 'static;
}

/// A kind that operators create as a child of their own objects.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a child yet",
    note = "implement `Child` for a kind of your own; use `Whole<{Self}>` for one of another crate"
)]
pub trait Child: Viewed + Serialize {
    /// Whether [`set_defaults`](Self::set_defaults) sets the defaults. If not, each create is followed by one more request, which
    /// records that the defaults are not ours.
    const KNOWS_DEFAULTS: bool = true;

    /// Sets the defaults that the API server sets when an object of this kind is created.
    ///
    /// After a create, the runtime compares the result with the fields that our field manager then owns. A default that is
    /// missing here costs one read and one write in the life of a child, never a wrong decision.
    fn set_defaults(object: &mut Value) {
        let _ = object;
    }

    /// Names the difference between `live` and `desired` that the API server does not allow to update, in one word for an event
    /// (`type`). Returns `None` if an update is possible.
    fn immutable_difference(live: &Value, desired: &Value) -> Option<&'static str> {
        let _ = (live, desired);
        None
    }

    /// Whether the operator may delete and recreate an object with an immutable difference. Never true for kinds that run pods.
    const REPLACEABLE: bool = false;

    /// Paths in an object of this kind that only its author writes, including everything below them.
    ///
    /// The runtime reads them only after another client has cleared `managedFields`. A value at such a path that no field manager
    /// owns and that is not desired is a leftover of an earlier version of the author, so the runtime removes it.
    const EXCLUSIVE_FIELDS: &'static [&'static [&'static str]] = &[];

    /// Exceptions: paths below those of [`Self::EXCLUSIVE_FIELDS`] that other clients write too.
    const SHARED_FIELDS: &'static [&'static [&'static str]] = &[];
}

/// One object of the cluster in its cached form: its identity, and the view of its kind.
#[derive(Debug, Clone)]
pub struct Live<V> {
    /// `metadata.namespace`; empty for a cluster-scoped object.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.uid`.
    pub uid: Box<str>,
    /// `metadata.generation`; 0 for kinds that have none.
    pub generation: i64,
    /// `metadata.creationTimestamp`.
    pub created: Option<Timestamp>,
    /// `metadata.deletionTimestamp`, when the object is being deleted.
    pub deleting: Option<Timestamp>,
    /// The kind's own fields.
    pub view: V,
}

impl<V> Deref for Live<V> {
    type Target = V;

    fn deref(&self) -> &V {
        &self.view
    }
}
