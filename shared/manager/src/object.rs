//! Keys of objects, and the part of an object's metadata that the runtime reads.

use std::{borrow::Cow, fmt, sync::Arc};

use jiff::Timestamp;
use kube::{Resource, core::NamespaceResourceScope};
use serde::Deserialize;
use serde_json::value::RawValue;
use xxhash_rust::xxh3::xxh3_128;

mod names;

pub(crate) use names::shared;

/// The label that names the operator which made a child, such as `memcached-operator`.
pub(crate) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// The label with the kind of a child's primary, in lower case.
pub(crate) const NAME: &str = "app.kubernetes.io/name";
/// The label with the name of a child's primary.
pub(crate) const INSTANCE: &str = "app.kubernetes.io/instance";

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

/// A kind whose objects live in namespaces, as everything does that operators own.
pub trait Namespaced: Resource<DynamicType = (), Scope = NamespaceResourceScope> {}
impl<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>> Namespaced for K {}

/// An object's uid in 16 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Uid([u8; 16]);

impl Uid {
    /// The bytes of a UUID; a hash of any other text, which only test API servers use.
    pub(crate) fn of(text: &str) -> Self {
        Self(
            uuid::Uuid::try_parse(text)
                .map_or_else(|_| xxh3_128(text.as_bytes()).to_be_bytes(), uuid::Uuid::into_bytes),
        )
    }
}

/// The metadata of any object, parsed without copying.
#[derive(Debug, Deserialize)]
pub(crate) struct Head<'a> {
    #[serde(borrow)]
    pub(crate) metadata: Metadata<'a>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Metadata<'a> {
    #[serde(borrow, default)]
    pub(crate) namespace: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) name: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) uid: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) resource_version: Cow<'a, str>,
    #[serde(default)]
    pub(crate) generation: i64,
    pub(crate) creation_timestamp: Option<Timestamp>,
    pub(crate) deletion_timestamp: Option<Timestamp>,
    #[serde(borrow, default)]
    pub(crate) labels: AppLabels<'a>,
    #[serde(borrow, default)]
    pub(crate) owner_references: Vec<OwnerReference<'a>>,
    #[serde(borrow, default)]
    pub(crate) managed_fields: Vec<ManagedFields<'a>>,
}

/// The recommended labels, as far as the runtime reads them.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct AppLabels<'a> {
    #[serde(borrow, rename = "app.kubernetes.io/name")]
    pub(crate) name: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "app.kubernetes.io/instance")]
    pub(crate) instance: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "app.kubernetes.io/managed-by")]
    pub(crate) managed_by: Option<Cow<'a, str>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct OwnerReference<'a> {
    #[serde(borrow)]
    pub(crate) uid: Cow<'a, str>,
    #[serde(borrow)]
    pub(crate) name: Cow<'a, str>,
    #[serde(default)]
    pub(crate) controller: bool,
}

/// One entry of `metadata.managedFields`: the fields that a field manager owns.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ManagedFields<'a> {
    #[serde(borrow, default)]
    pub(crate) manager: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) operation: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(crate) subresource: Cow<'a, str>,
    #[serde(borrow, rename = "fieldsV1")]
    pub(crate) fields: Option<&'a RawValue>,
}

impl Metadata<'_> {
    /// The owner that has `controller: true`.
    pub(crate) fn controller(&self) -> Option<&OwnerReference<'_>> {
        self.owner_references.iter().find(|owner| owner.controller)
    }

    /// The resource version as a number, which orders the versions of an object; 0 if it is not a number.
    ///
    /// Kubernetes guarantees this order since 1.35, and etcd always has.
    pub(crate) fn version(&self) -> u64 {
        self.resource_version.parse().unwrap_or(0)
    }
}

/// The field manager of an operator that labels its children `managed_by`: `memcached-operator` writes as
/// `memcached-controller`.
pub(crate) fn field_manager(managed_by: &str) -> String {
    format!("{}-controller", managed_by.strip_suffix("-operator").unwrap_or(managed_by))
}
