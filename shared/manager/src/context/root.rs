//! Writing the reconciled object's own metadata, and objects whose name is a lock.

use std::sync::{Arc, atomic::Ordering};

use serde_json::{Map, Value, json};
use workloads::{Child, Live};

use super::{Context, Root, lock};
use crate::{
    api::{Namespaced, Requests},
    error::{Class, Error},
    metrics::Written,
    object::{Head, ObjectKey},
};

/// What became of an object whose name is a lock: see [`Context::create`].
#[derive(Debug, Clone)]
pub enum Creation<V> {
    /// It was not there, and is now.
    Created(Arc<Live<V>>),
    /// It was there already, made for this very object by an earlier try.
    Ours(Arc<Live<V>>),
    /// It belongs to an earlier object of this name and is being collected.
    Dying,
    /// It is somebody else's.
    Taken,
    /// The API server refuses it for good (admission, quota, permission): recorded, and told by
    /// [`apply_status`](Context::apply_status). With its words.
    Refused(String),
}

impl<K: Root> Context<K> {
    /// Creates a child whose name is a lock: of all who try, now or after a crash, one succeeds. Never changes an object
    /// that is there, and leaves no event; [`apply`](Context::apply) is for children that are kept in line.
    ///
    /// # Panics
    ///
    /// When the controller does not declare the kind with `owns`.
    pub async fn create<C: Child + Namespaced>(&self, desired: C) -> Result<Creation<C::View>, Error> {
        let requests = self.requests::<C>();
        let target = self.target(&requests, desired)?;
        let (kind, name) = (requests.kind().to_owned(), target.key.name.clone());
        if self.scope.recent.contains(&self.pass.key, &kind, &name) && !self.is_there().await? {
            return Ok(Creation::Dying); // it was collected, as its owner is gone, and so would the next one be
        }
        // Before it is sent, as this reconcile may be cut short before the answer comes.
        lock(&self.scope.unanswered).entry(self.pass.key.clone()).or_default().insert((kind.clone(), name.clone()));
        let created = match requests.create(&target.key, &target.body(&requests)).await {
            Ok(answer) => {
                self.scope.children.wrote(requests.kind(), Written::Created);
                self.scope.recent.created(&self.pass.key, &kind, &name);
                let live = self.learn::<C>(&requests, &target.key, &answer)?;
                self.pass.changed_children.store(true, Ordering::Relaxed);
                Creation::Created(live)
            }
            Err(error) if error.class() == Class::AlreadyExists => {
                self.of_that_name::<C>(&requests, &target.key).await?
            }
            Err(error) if error.is_open() => return Err(error),
            Err(error) => {
                let words = error.chain();
                self.answered(&kind, &name);
                return self.settle::<C::View>(Err(error)).map(|_| Creation::Refused(words));
            }
        };
        self.answered(&kind, &name);
        Ok(created)
    }

    /// Whose the object is that was faster.
    async fn of_that_name<C: Child + Namespaced>(
        &self,
        requests: &Requests,
        key: &ObjectKey,
    ) -> Result<Creation<C::View>, Error> {
        let text = requests.get(key).await?; // gone meanwhile: the next try creates it
        let broken = |source| Error::Decode { request: requests.describe("read", key), source };
        let metadata = serde_json::from_str::<Head<'_>>(&text).map_err(broken)?.metadata;
        Ok(match metadata.controller() {
            Some(owner) if owner.uid == self.pass.uid.as_str() => {
                Creation::Ours(self.learn::<C>(requests, key, &text)?)
            }
            Some(owner) if metadata.deletion_timestamp.is_some() && *owner.name == *self.pass.key.name => {
                Creation::Dying
            }
            _ => Creation::Taken,
        })
    }

    /// It is known what became of the creation of this child.
    pub(super) fn answered(&self, kind: &str, name: &str) {
        let mut unanswered = lock(&self.scope.unanswered);
        if let Some(children) = unanswered.get_mut(&self.pass.key) {
            children.retain(|child| (&*child.0, &*child.1) != (kind, name));
            if children.is_empty() {
                unanswered.remove(&self.pass.key);
            }
        }
    }

    /// Sets annotations of the reconciled object, `None` takes one away; sends nothing when they are as wanted. Returns
    /// the object with these annotations. What others have changed in it meanwhile is left to the next reconcile.
    ///
    /// Fails with a conflict when the object was replaced by a namesake.
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
        self.patch_metadata(json!({"uid": self.pass.uid, "annotations": changes})).await
    }

    /// Makes sure that the finalizer of `on_delete` is stored, and reads it back: what happens outside of the cluster
    /// from then on cannot be forgotten. `None` when the object is gone, or is being deleted: then nothing may be done
    /// outside.
    ///
    /// The answer of the write alone is no proof: a deletion that is under way at the same time can win
    /// (kubernetes#77988).
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
        let requests = &self.scope.requests;
        let text = match requests.get(&self.pass.key).await {
            Ok(text) => text,
            Err(error) if error.class() == Class::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some(object) = self.take_read(&text)? else { return Ok(None) };
        let held = object.meta().deletion_timestamp.is_none() && has_finalizer(&*object, finalizer);
        Ok(held.then_some(object))
    }

    /// What the finalizer stood for is cleaned up: lets the object go. Finalizers of others stay.
    pub(crate) async fn remove_finalizer(&self) -> Result<(), Error> {
        let finalizer = self.finalizer();
        let object = self.object();
        let mut finalizers = object.meta().finalizers.clone().unwrap_or_default();
        finalizers.retain(|other| other != finalizer);
        self.patch_finalizers(&object, &finalizers).await.map(drop)
    }

    pub(crate) fn finalizer(&self) -> &'static str {
        self.scope.role.finalizer.unwrap_or_else(|| {
            panic!("{}'s controller has no finalizer: declare it with .on_delete(…)", self.scope.names.kind)
        })
    }

    /// Replaces the list as a whole, so it carries the version it was read from: another controller's finalizer must
    /// neither be lost nor come back. `None` when the object is gone.
    async fn patch_finalizers(&self, object: &K, finalizers: &[String]) -> Result<Option<Arc<K>>, Error> {
        let version = &object.meta().resource_version;
        let patch = json!({"uid": self.pass.uid, "resourceVersion": version, "finalizers": finalizers});
        match self.patch_metadata(patch).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.class() == Class::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn patch_metadata(&self, metadata: Value) -> Result<Arc<K>, Error> {
        assert!(self.scope.role.annotates, "{}'s controller must declare .annotates()", self.scope.names.kind);
        let patch = json!({"metadata": metadata});
        let answer = self.scope.requests.merge(&self.pass.key, &patch).await?;
        self.take_patched(&patch, &answer)
    }
}

pub(crate) fn has_finalizer<K: Root>(object: &K, finalizer: &str) -> bool {
    object.meta().finalizers.iter().flatten().any(|stored| stored == finalizer)
}
