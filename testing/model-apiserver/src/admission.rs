//! Mutating admission: changes every write as a webhook or policy of the cluster does.

use std::{fmt, sync::Arc};

use serde_json::Value;

use crate::{state::State, write::Target};

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
}

impl State {
    /// Runs after `managedFields` are computed, as in the real server, so its changes count as sent by the client.
    pub(crate) fn admit(&self, target: &Target, object: &mut Value) {
        let resource = target.kind.resource();
        for mutation in &self.mutations {
            if mutation.resource == resource && target.subresource.is_empty() {
                (mutation.mutate)(object);
                target.kind.decode(object); // fills in the defaults again
            }
        }
    }
}
