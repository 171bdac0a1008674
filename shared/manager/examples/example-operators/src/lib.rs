//! Small operators, each with a shape that the five operators of this repository do not have. Each file is one whole operator.
//!
//! - [`tenants`]: a cluster-scoped kind that makes namespaces with quotas.
//! - [`ledgers`]: a `StatefulSet` with a claim and a Secret, which are kinds without a view.
//! - [`banners`]: a kind that is fed by a `ConfigMap` and by another kind, and a webhook that reads the cache.
//! - [`tracks`]: a kind that messages from outside of the cluster wake, and that patches objects of other owners.

pub mod banners;

pub mod ledgers;
pub mod tenants;
pub mod tracks;
