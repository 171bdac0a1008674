//! What end-to-end tests and the demo share: the operators, installed in a cluster from their own image.

pub mod cache_client;
mod install;

pub use install::{Installed, MANAGER_NAMESPACE, SERVICE_ACCOUNT_USER, build_image, install};
