//! Whether the objects of a kind live in namespaces.

use kube::{
    Resource,
    core::{ClusterResourceScope, NamespaceResourceScope},
};

/// A kind whose type says whether its objects live in namespaces. The types of k8s-openapi and of `#[derive(CustomResource)]` do.
pub trait Scoped: Resource<DynamicType = (), Scope: Scope> {
    /// Whether its objects live in namespaces.
    const IS_NAMESPACED: bool = <Self::Scope as Scope>::IS_NAMESPACED;
}
impl<K: Resource<DynamicType = (), Scope: Scope>> Scoped for K {}

/// Where the objects of a kind live.
pub trait Scope {
    /// In namespaces, or in the cluster as a whole.
    const IS_NAMESPACED: bool;
}
impl Scope for NamespaceResourceScope {
    const IS_NAMESPACED: bool = true;
}
impl Scope for ClusterResourceScope {
    const IS_NAMESPACED: bool = false;
}

/// A scope whose objects may own objects of scope `C`. An object in a namespace cannot own one that is in none: the garbage
/// collector would not find the owner and would delete the child.
#[diagnostic::on_unimplemented(
    message = "an object in a namespace cannot own a cluster-scoped object",
    label = "owned by a namespaced kind",
    note = "the garbage collector would delete the child; make the owner cluster-scoped too"
)]
pub trait MayOwn<C: Scope>: Scope {}
impl MayOwn<Self> for NamespaceResourceScope {}
impl<C: Scope> MayOwn<C> for ClusterResourceScope {}
