//! Mutating admission: what a webhook or policy of the cluster makes of every write.

use std::{fmt, sync::Arc};

use serde_json::Value;

use crate::{state::State, write::Target};

/// A change of all objects of a resource that are created or updated.
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
}

impl State {
    /// Runs after `managedFields` are written, as in the real server: what is changed here counts as sent.
    pub(crate) fn admit(&self, target: &Target, object: &mut Value) {
        let resource = target.kind.resource();
        for mutation in &self.mutations {
            if mutation.resource == resource && target.subresource.is_empty() {
                (mutation.mutate)(object);
                target.kind.decode(object); // which fills in again what has a default
            }
        }
    }
}
