//! Calls a check with random inputs that resemble real ones, and repeats inputs that once failed.
//!
//! Each input follows from a seed. A failure prints its seed, and keeps the input in a file. `FUZZ_SEED` repeats one input;
//! `FUZZ_SECONDS` is the time for each target, by default one second.
//!
//! Reading order: [`Target`] runs a check. [`json`] and [`bytes`] make inputs from examples.

mod bytes;
mod json;
mod target;

pub use bytes::bytes;
pub use fastrand::Rng;
pub use json::json;
pub use target::Target;
