//! What end-to-end tests and the demo share: the operators, installed in a cluster from their own image.

mod backend;
pub mod cache_client;
pub mod cache_load;
mod install;
pub mod metrics;
pub mod permissions;
pub mod prometheus;

pub use backend::{Backend, clean_up, fresh_cluster, shared_cluster};
pub use install::{
    INSTALLED, Installed, MANAGER, MANAGER_NAMESPACE, image_for, install, make_namespace, uninstall, values,
};
