//! Why a text is no fault plan.

use std::fmt;

/// The reason why a text is not a valid plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidPlan(pub(crate) String);

impl fmt::Display for InvalidPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a fault plan: {}", self.0)
    }
}

impl std::error::Error for InvalidPlan {}
