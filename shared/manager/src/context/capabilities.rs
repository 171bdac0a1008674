//! What a controller declared that it may do, beyond what every controller may do.

use std::collections::HashSet;

/// What a controller may do in addition to what every controller may do.
#[derive(Debug, Clone)]
pub(crate) struct Capabilities {
    /// Resources that are read by name, without a cache: `secrets`.
    pub(crate) reads: HashSet<String>,
    /// The indices of the kinds that are declared with `watches`.
    pub(crate) watched: HashSet<&'static str>,
    /// Kinds of children that may not be installed.
    pub(crate) optional: HashSet<String>,
    /// The finalizer of `on_delete`.
    pub(crate) finalizer: Option<&'static str>,
    /// Whether the object's own metadata may be written.
    pub(crate) annotates: bool,
    /// Whether the controller adopts an orphan that matches.
    pub(crate) adopts: bool,
}

impl Default for Capabilities {
    fn default() -> Self {
        Self {
            reads: HashSet::new(),
            watched: HashSet::new(),
            optional: HashSet::new(),
            finalizer: None,
            annotates: false,
            adopts: true,
        }
    }
}
