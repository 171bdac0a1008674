//! The API: two versions, of which the API server stores `v1`, and the conversion between them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

pub mod convert;
pub mod v1;
pub mod v1alpha1;

pub use v1::Memcached;

/// Returns the CRD with both versions, for clusters without a conversion webhook: it serves only the stored version. The runtime
/// serves both versions while it converts.
pub fn definition() -> CustomResourceDefinition {
    let mut definition = Memcached::crd();
    let earlier: Vec<_> = definition.spec.versions.iter().map(v1alpha1::of).collect();
    definition.spec.versions.extend(earlier);
    definition
}
