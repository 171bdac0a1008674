//! What an error of the Kubernetes API server means ([`classify`]), and how it reads on one line ([`chain`]).
#![deny(missing_docs)]

mod class;
mod retry_after;
mod text;

pub use class::{Class, classify, is_unauthorized};
pub use retry_after::{retry_after, retry_after_seconds};
pub use text::{NO_STATUS, chain, panic_message, sentence};

/// The examples of the README, which compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
