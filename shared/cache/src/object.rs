//! Keys of objects, and the part of an object's metadata that the runtime reads.

use std::{borrow::Cow, fmt, sync::Arc};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;
use xxhash_rust::xxh3::xxh3_128;

mod names;

pub(crate) use names::shared;

/// The label that names the operator which made a child, such as `memcached-operator`.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The label with the kind of a child's primary, in lower case.
pub const NAME: &str = "app.kubernetes.io/name";
/// The label with the name of a child's primary.
pub const INSTANCE: &str = "app.kubernetes.io/instance";

/// Namespace and name of an object; the namespace is empty for a cluster-scoped one. Cloning is cheap: it copies two pointers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// `metadata.namespace`, or empty.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
}

impl ObjectKey {
    /// The key of `namespace/name`.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() { f.write_str(&self.name) } else { write!(f, "{}/{}", self.namespace, self.name) }
    }
}

/// An object's uid in 16 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Uid([u8; 16]);

impl Uid {
    /// The bytes of a UUID; a hash of any other text, which only test API servers use.
    pub fn of(text: &str) -> Self {
        Self(
            uuid::Uuid::try_parse(text)
                .map_or_else(|_| xxh3_128(text.as_bytes()).to_be_bytes(), uuid::Uuid::into_bytes),
        )
    }
}

/// The metadata of any object, parsed without copying.
#[derive(Debug, Deserialize)]
pub struct Head<'a> {
    /// `metadata`.
    #[serde(borrow)]
    pub metadata: Metadata<'a>,
}

/// The part of `metadata` that the runtime reads.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata<'a> {
    /// `namespace`; empty for a cluster-scoped object.
    #[serde(borrow, default)]
    pub namespace: Cow<'a, str>,
    /// `name`.
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    /// `uid`.
    #[serde(borrow, default)]
    pub uid: Cow<'a, str>,
    /// `resourceVersion`, see [`Metadata::version`].
    #[serde(borrow, default)]
    pub resource_version: Cow<'a, str>,
    /// `generation`; 0 if the kind has none.
    #[serde(default)]
    pub generation: i64,
    /// `creationTimestamp`.
    pub creation_timestamp: Option<Timestamp>,
    /// `deletionTimestamp`.
    pub deletion_timestamp: Option<Timestamp>,
    /// The recommended labels among `labels`.
    #[serde(borrow, default)]
    pub labels: AppLabels<'a>,
    /// `ownerReferences`.
    #[serde(borrow, default)]
    pub owner_references: Vec<OwnerReference<'a>>,
    /// `managedFields`.
    #[serde(borrow, default)]
    pub managed_fields: Vec<ManagedFields<'a>>,
}

/// The recommended labels, as far as the runtime reads them.
#[derive(Debug, Default, Deserialize)]
pub struct AppLabels<'a> {
    /// `app.kubernetes.io/name`.
    #[serde(borrow, rename = "app.kubernetes.io/name")]
    pub name: Option<Cow<'a, str>>,
    /// `app.kubernetes.io/instance`.
    #[serde(borrow, rename = "app.kubernetes.io/instance")]
    pub instance: Option<Cow<'a, str>>,
    /// `app.kubernetes.io/managed-by`.
    #[serde(borrow, rename = "app.kubernetes.io/managed-by")]
    pub managed_by: Option<Cow<'a, str>>,
}

/// One entry of `metadata.ownerReferences`.
#[derive(Debug, Deserialize)]
pub struct OwnerReference<'a> {
    /// `uid`.
    #[serde(borrow)]
    pub uid: Cow<'a, str>,
    /// `name`.
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    /// `controller`.
    #[serde(default)]
    pub controller: bool,
}

/// One entry of `metadata.managedFields`: the fields that a field manager owns.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ManagedFields<'a> {
    /// The name of the field manager.
    #[serde(borrow, default)]
    pub manager: Cow<'a, str>,
    /// `Update` or `Apply`.
    #[serde(borrow, default)]
    pub operation: Cow<'a, str>,
    /// The subresource that was written; empty for the object itself.
    #[serde(borrow, default)]
    pub subresource: Cow<'a, str>,
    /// The set of fields, as `fieldsV1`.
    #[serde(borrow, rename = "fieldsV1")]
    pub fields: Option<&'a RawValue>,
}

impl Metadata<'_> {
    /// The owner that has `controller: true`.
    pub fn controller(&self) -> Option<&OwnerReference<'_>> {
        self.owner_references.iter().find(|owner| owner.controller)
    }

    /// The resource version as a number, which orders the versions of an object; 0 if it is not a number.
    ///
    /// Kubernetes guarantees this order since 1.35, and etcd always has.
    pub fn version(&self) -> u64 {
        self.resource_version.parse().unwrap_or(0)
    }
}

/// The field manager of an operator that labels its children `managed_by`: `memcached-operator` writes as
/// `memcached-controller`.
pub fn field_manager(managed_by: &str) -> String {
    format!("{}-controller", managed_by.strip_suffix("-operator").unwrap_or(managed_by))
}
