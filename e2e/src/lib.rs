//! What end-to-end tests and the demo share: the operators, installed in a cluster from their own image.

pub mod cache_client;
pub mod cache_load;
mod install;
pub mod metrics;
pub mod permissions;
pub mod prometheus;

pub use install::{INSTALLED, Installed, MANAGER, MANAGER_NAMESPACE, build_image, install, make_namespace, values};
