//! Small operators, each with a shape that the five operators of this repository do not have. Each file is one whole operator,
//! except [`registry`], which stands for a service outside of the cluster.
//!
//! - [`tenants`]: a cluster-scoped kind that makes namespaces with quotas, accounts and roles, also in namespaces that users label.
//! - [`ledgers`]: a `StatefulSet` with a claim and a Secret, which are kinds without a view.
//! - [`banners`]: a kind that is fed by a `ConfigMap` and by another kind, with a `DaemonSet` and an Ingress, and a webhook that
//!   reads the cache.
//! - [`tracks`]: a kind that messages from outside of the cluster wake, and that patches and scales objects of other owners.
//!
//! The page *Any shape of operator* of the book names the operators that use each kind of child and each part of the runtime.

pub mod banners;
pub mod ledgers;
pub mod registry;
pub mod tenants;
pub mod tracks;
