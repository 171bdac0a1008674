//! What the cache keeps of one object, and the traits that tie a kind to it.

use std::{fmt::Debug, ops::Deref, sync::Arc};

use jiff::Timestamp;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// A kind whose objects are cached as a [`View`](Viewed::View): a small struct with only the fields that
/// reconcilers read, decoded straight from the wire.
///
/// A typed Deployment takes 12 to 20 KB of memory, its view less than 200 bytes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be cached yet",
    note = "add its view to `workloads`, as `workloads/src/config_map.rs` does for the simplest kind"
)]
pub trait Viewed: kube::Resource<DynamicType = ()> + Debug + Send + Sync + 'static {
    /// The part that is kept. Decoded from the whole object, so it nests as the object does
    /// (`spec.replicas`), and must tolerate absent fields; identity is kept beside it, in [`Live`].
    type View: DeserializeOwned + Debug + PartialEq + Send + Sync + 'static;
}

/// A kind that operators create as a child of their own objects.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a child yet",
    note = "add its view to `workloads`, as `workloads/src/config_map.rs` does for the simplest kind"
)]
pub trait Child: Viewed + Serialize {
    /// Fills in what the API server defaults in an object of this kind when it is created.
    ///
    /// The runtime compares the result with the fields that a create made us own. A default that is missing here costs
    /// one read and one write in the life of a child, never a wrong decision.
    fn set_defaults(object: &mut Value);

    /// What of `desired` cannot be changed in the `live` object, in a word for an event (`type`); `None` when an update
    /// will do.
    fn immutable_difference(live: &Value, desired: &Value) -> Option<&'static str> {
        let _ = (live, desired);
        None
    }

    /// Whether an object with an immutable difference may be deleted and created again: never one that runs pods.
    const REPLACEABLE: bool = false;

    /// Places in an object of this kind at which nobody but its author writes, with everything below them.
    ///
    /// Only read when `managedFields` were cleared: what stands there, is held by nobody and is not wanted is what an earlier
    /// version of the author wanted, and goes.
    const AUTHORS_ALONE: &'static [&'static [&'static str]] = &[];

    /// Places below those at which others write all the same.
    const OTHERS_TOO: &'static [&'static [&'static str]] = &[];
}

/// One object of the cluster as the cache keeps it: identity, and the kind's view.
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
