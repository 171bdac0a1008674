//! What a webhook of [`Webhook::reviewing`](crate::Webhook::reviewing) sees of a request.

use serde::Deserialize;

/// One request of a client to the API server.
#[derive(Debug)]
pub struct Review<K> {
    /// What the client does.
    pub operation: Operation,
    /// The namespace of the object; empty for a cluster-scoped one.
    pub namespace: String,
    /// The name of the object; empty if the API server will generate it. If a client deletes a collection, that of each object.
    pub name: String,
    /// The object as it will be stored; `None` if it is deleted.
    pub object: Option<K>,
    /// The object as it is stored; `None` if it is created.
    pub old: Option<K>,
    /// The client.
    pub user: User,
    /// Nothing will be stored, as for `kubectl diff` and `--dry-run=server`.
    pub dry_run: bool,
}

/// An operation on an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    /// The object does not exist yet.
    Create,
    /// The object changes. The webhook is not called for changes of the status alone.
    Update,
    /// The object is deleted. If it has finalizers, it goes later.
    Delete,
}

/// A client of the API server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct User {
    /// Such as `system:serviceaccount:NAMESPACE:NAME`.
    #[serde(rename = "username", default)]
    pub name: String,
    /// Such as `system:masters`.
    #[serde(default)]
    pub groups: Vec<String>,
}

impl Operation {
    /// The name in a webhook configuration.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}
