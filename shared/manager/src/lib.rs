//! The shared runtime of all operators.

pub mod conditions;

pub use conditions::{Health, Problem, Report, Verdict};
