//! Helpers for the end-to-end tests and the demo: they install the operators in a cluster from their image, and use them like a
//! client.

mod backend;
mod clean_up;
mod earlier;
mod install;
mod local_image;
pub mod metrics;
mod mirror;
pub mod permissions;
pub mod policies;
pub mod prometheus;
mod servers;
mod test_images;
mod versioned;

pub use backend::{Backend, cluster_with, failing_cluster, fresh_cluster, kind_cluster, own_cluster, shared_cluster};
pub use clean_up::{clean_up, delete_kind, keep_kind_logs, kind_nodes};
pub use earlier::{EARLIER, earlier_chart, first_release};
pub use install::{
    INSTALLED, Installed, MANAGER, MANAGER_NAMESPACE, METRICS_PROXY, Profile, build_image, image_for, image_of,
    install, make_namespace, uninstall, values,
};
pub use local_image::LocalImage;
pub use mirror::Mirror;
pub use servers::status_at;
pub use test_images::{TESTBOX, provide_kube_rbac_proxy, provide_testbox};
pub use versioned::copy_as_version;
