//! Mutating admission: changes every write as a webhook or policy of the cluster does.

use std::{fmt, sync::Arc};

use serde_json::Value;

use crate::kind::Kind;

/// Changes every created or updated object of a resource.
#[derive(Clone)]
pub(crate) struct Mutation {
    resource: String,
    mutate: Arc<dyn Fn(&mut Value) + Send + Sync>,
}

impl fmt::Debug for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutation").field("resource", &self.resource).finish_non_exhaustive()
    }
}

impl Mutation {
    pub(crate) fn new(resource: &str, mutate: impl Fn(&mut Value) + Send + Sync + 'static) -> Self {
        Self { resource: resource.to_owned(), mutate: Arc::new(mutate) }
    }

    /// Changes an object of this kind.
    pub(crate) fn apply(&self, kind: &Kind, object: &mut Value) {
        if self.resource == kind.resource() {
            (self.mutate)(object);
            kind.decode(object); // fills in the defaults again
        }
    }
}
