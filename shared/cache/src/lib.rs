//! A cache of Kubernetes objects, kept in step with the API server.
//!
//! ```text
//! API server ──list, watch──▶ Informer (one per kind, shared) ──▶ Store: views or packed JSON, by name, owner and label
//!                                │ Delta
//!                                ▼
//!                            subscribers
//! ```
//!
//! - [`Informers`] is the registry: it has one [`Informer`] for each kind and [`Representation`].
//! - An [`Informer`] lists and watches one kind, and notices when the cluster was restored from a backup.
//! - A [`Store`] holds the objects of one kind. The answers to one's own writes enter it too, so that a reader sees them at once.
//! - [`owned`] decides from `metadata.managedFields` which fields of an object are ours, and whether they still have the wanted
//!   values. The decision needs a hash of 8 bytes per object and, after a comparison, the pair of hashes that agreed.
//!
//! Reading order: `decode` (decoding one object), [`owned`], `store`, `informer`.
#![deny(missing_docs)]

mod decode;
mod informer;
mod informers;
mod namespaces;
mod object;
mod observed;
pub mod owned;
mod selection;
mod store;

pub use decode::{
    AppKey, CachedMeta, Content, Decoded, Full, LAST_APPLIED, Owner, Projected, Representation, Undecodable,
};
pub use informer::{
    Coverage, Informer, InformerFigures, InformerHealth, Origin, Phase, RestoreAlarm, Subscriber, resource_name,
};
pub use informers::{InformerTask, Informers};
pub use namespaces::{Namespaces, SelectedNamespaces};
pub use object::{
    AppLabels, Head, INSTANCE, MANAGED_BY, ManagedFields, Metadata, NAME, ObjectKey, OwnerReference, Uid, field_manager,
};
pub use selection::Selection;
pub use store::{Delta, Known, Store, Values, Verified, Writer};

/// The examples of the README, which compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
