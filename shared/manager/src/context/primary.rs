//! Writes the metadata of the reconciled object: annotations and finalizers.

use std::sync::Arc;

use api_errors::Class;
use serde_json::{Map, Value, json};

use super::{Context, Primary, Shared};
use crate::error::Error;

impl<K: Primary, S: Shared> Context<K, S> {
    /// Sets annotations of the reconciled object; `None` removes one. Sends nothing if they already have these values.
    /// Returns the object with these annotations. Changes of other clients in the meantime are left to the next reconcile.
    ///
    /// Replaces or removes only the values that this reconcile has read: then it fails with a conflict if another client has changed
    /// the object since. A value that another client adds meanwhile is overwritten. It also fails with a conflict if a new object of
    /// the same name has replaced the reconciled one.
    ///
    /// # Panics
    ///
    /// When the controller neither has an `on_delete` nor declares `.annotates()`.
    pub async fn annotate(&self, annotations: &[(&str, Option<&str>)]) -> Result<Arc<K>, Error> {
        let object = self.object();
        let stored = object.meta().annotations.as_ref();
        let changes: Map<String, Value> = annotations
            .iter()
            .filter(|(name, wanted)| stored.and_then(|it| it.get(*name)).map(String::as_str) != *wanted)
            .map(|(name, wanted)| ((*name).to_owned(), json!(wanted)))
            .collect();
        if changes.is_empty() {
            return Ok(object);
        }
        let replaces_some = changes.keys().any(|name| stored.is_some_and(|it| it.contains_key(name)));
        let mut metadata = json!({"uid": self.reconciliation.uid, "annotations": changes});
        if replaces_some {
            metadata["resourceVersion"] = json!(object.meta().resource_version);
        }
        self.patch_metadata(metadata).await
    }

    /// Makes sure that the finalizer of `on_delete` is stored, and reads it back. From then on, `on_delete` will clean up
    /// whatever the reconciler does outside of the cluster. Returns `None` if the object is gone or is being deleted: then
    /// the reconciler must not do anything outside of the cluster.
    ///
    /// The answer of the write alone is no proof: a concurrent deletion can win (kubernetes#77988).
    ///
    /// # Panics
    ///
    /// When the controller has no `on_delete`.
    pub async fn ensure_finalizer(&self) -> Result<Option<Arc<K>>, Error> {
        let finalizer = self.finalizer();
        let object = self.object();
        if has_finalizer(&*object, finalizer) {
            return Ok(Some(object).filter(|object| object.meta().deletion_timestamp.is_none()));
        }
        let mut finalizers = object.meta().finalizers.clone().unwrap_or_default();
        finalizers.push(finalizer.to_owned());
        if self.patch_finalizers(&object, &finalizers).await?.is_none() {
            return Ok(None);
        }
        let requests = &self.reconciliation.requests;
        let text = match requests.get(&self.reconciliation.key).await {
            Ok(text) => text,
            Err(error) if error.class() == Class::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some(object) = self.cache_and_continue(&text)? else { return Ok(None) };
        let held = object.meta().deletion_timestamp.is_none() && has_finalizer(&*object, finalizer);
        Ok(held.then_some(object))
    }

    /// Removes our finalizer after the clean-up, so that the object can go. Finalizers of other controllers stay.
    pub(crate) async fn remove_finalizer(&self) -> Result<(), Error> {
        let finalizer = self.finalizer();
        let object = self.object();
        let mut finalizers = object.meta().finalizers.clone().unwrap_or_default();
        finalizers.retain(|other| other != finalizer);
        let patch = self.finalizers_patch(&object, &finalizers);
        match self.send_metadata(&patch).await {
            Ok(answer) if has_ended::<K>(&answer) => {
                self.forget_ended();
                Ok(())
            }
            Ok(answer) => self.cache_patched(&patch, &answer).map(drop),
            Err(error) if error.class() == Class::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn finalizer(&self) -> &'static str {
        self.controller.capabilities.finalizer.unwrap_or_else(|| {
            panic!("{}'s controller has no finalizer: declare it with .on_delete(…)", self.controller.names.kind)
        })
    }

    /// Replaces the list of finalizers. Returns `None` if the object is gone.
    async fn patch_finalizers(&self, object: &K, finalizers: &[String]) -> Result<Option<Arc<K>>, Error> {
        let patch = self.finalizers_patch(object, finalizers);
        match self.send_metadata(&patch).await {
            Ok(answer) => self.cache_patched(&patch, &answer).map(Some),
            Err(error) if error.class() == Class::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces the list of finalizers as a whole. So the patch carries the version that was read: it must neither drop nor
    /// restore another controller's finalizer.
    fn finalizers_patch(&self, object: &K, finalizers: &[String]) -> Value {
        let version = &object.meta().resource_version;
        json!({"metadata": {"uid": self.reconciliation.uid, "resourceVersion": version, "finalizers": finalizers}})
    }

    async fn patch_metadata(&self, metadata: Value) -> Result<Arc<K>, Error> {
        let patch = json!({"metadata": metadata});
        let answer = self.send_metadata(&patch).await?;
        self.cache_patched(&patch, &answer)
    }

    async fn send_metadata(&self, patch: &Value) -> Result<String, Error> {
        assert!(
            self.controller.capabilities.annotates,
            "{}'s controller must declare .annotates()",
            self.controller.names.kind
        );
        self.reconciliation.requests.merge_patch(&self.reconciliation.key, patch).await
    }
}

/// Whether the API server has deleted the object with this answer, because its last finalizer is gone. The answer then has the
/// version of before with other content, so it must not reach the cache.
fn has_ended<K: Primary>(answer: &str) -> bool {
    let object = serde_json::from_str::<K>(answer);
    object.is_ok_and(|object| {
        let meta = object.meta();
        meta.deletion_timestamp.is_some() && meta.finalizers.as_ref().is_none_or(Vec::is_empty)
    })
}

/// Whether the user has paused the object by annotation.
pub(crate) fn is_paused<K: Primary>(object: &K) -> bool {
    annotation(object, &paused_annotation::<K>()) == Some("true")
}

/// The annotation that pauses an object of this kind.
pub(crate) fn paused_annotation<K: Primary>() -> String {
    format!("{}/paused", K::group(&()))
}

/// The value of the annotation by which a user requests a reconcile.
pub(crate) fn reconcile_request<K: Primary>(object: &K) -> Option<&str> {
    annotation(object, &format!("{}/reconcile-requested-at", K::group(&())))
}

/// Returns an annotation of the object itself.
fn annotation<'a, K: Primary>(object: &'a K, name: &str) -> Option<&'a str> {
    object.meta().annotations.as_ref()?.get(name).map(String::as_str)
}

pub(crate) fn has_finalizer<K: Primary>(object: &K, finalizer: &str) -> bool {
    object.meta().finalizers.iter().flatten().any(|stored| stored == finalizer)
}
