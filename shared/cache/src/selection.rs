//! Which objects of a kind an informer watches.

use std::collections::BTreeSet;

use crate::{decode::CachedMeta, object::MANAGED_BY};

/// Which objects of a kind an informer watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// All of them.
    All,
    /// The children of these operators, which the label `app.kubernetes.io/managed-by` names.
    ManagedBy(BTreeSet<String>),
    /// Those that this label selector of a user selects.
    Labels(String),
}

impl Selection {
    /// The label selector of the requests; `None` for all objects.
    pub(crate) fn selector(&self) -> Option<String> {
        match self {
            Self::All => None,
            Self::ManagedBy(operators) => {
                let operators: Vec<&str> = operators.iter().map(String::as_str).collect();
                Some(format!("{MANAGED_BY} in ({})", operators.join(",")))
            }
            Self::Labels(selector) => Some(selector.clone()),
        }
    }

    /// Whether the watch certainly selects an object with this metadata. Nothing is certain about a user's selector.
    pub(crate) fn selects(&self, meta: &CachedMeta) -> bool {
        match self {
            Self::All => true,
            Self::ManagedBy(operators) => operators.iter().any(|operator| meta.is_managed_by(operator)),
            Self::Labels(_) => false,
        }
    }
}
