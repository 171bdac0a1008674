//! The API.

pub mod v1;

pub use v1::HelloApp;
