//! What users write: two versions, of which `v1` is stored, and how one becomes the other.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

pub mod convert;
pub mod v1;
pub mod v1alpha1;

pub use v1::Memcached;

/// The definition with both versions, as it is installed where nobody converts: only the stored one is served. The
/// runtime serves both while it converts.
pub fn definition() -> CustomResourceDefinition {
    let mut definition = Memcached::crd();
    let earlier: Vec<_> = definition.spec.versions.iter().map(v1alpha1::of).collect();
    definition.spec.versions.extend(earlier);
    definition
}
