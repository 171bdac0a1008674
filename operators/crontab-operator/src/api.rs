//! The custom resource: the types of each version.

pub mod v1;

pub use v1::CronTab;
