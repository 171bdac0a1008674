//! Deletes children.
//!
//! Each request names the version in which the child was known to be ours. At first that is the version in the cache, which costs
//! no read. If the child has changed since, the API server refuses the request: then the child is read, and deleted in the version
//! that was read if it is still ours. So a controller that takes over a child keeps it, and a child whose status changes all the
//! time goes all the same.

use std::{borrow::Cow, sync::atomic::Ordering};

use api_errors::Class;
use cache::{CachedMeta, Decoded, Head, ObjectKey, Projected, Uid};
use workloads::{Child, Live};

use super::{ATTEMPTS, Context, Shared};
use crate::{api::Requests, error::Error, metrics::Written, status::Primary};

/// What a look at a child that has to go has found.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// It is ours, in this version.
    Ours(String),
    /// It does not exist any more, or another object has the name.
    Gone,
    /// This object is not its controller any more.
    Foreign,
}

impl Found {
    /// Reads what the JSON of the object with this name says about the child `uid` of `owner`.
    fn read(text: &str, uid: &str, owner: &str) -> Result<Self, serde_json::Error> {
        let metadata = serde_json::from_str::<Head<'_>>(text)?.metadata;
        let is_ours = metadata.controller().is_some_and(|controller| controller.uid == owner);
        Ok(if metadata.uid != uid {
            Self::Gone
        } else if is_ours {
            Self::Ours(metadata.resource_version.into_owned())
        } else {
            Self::Foreign
        })
    }
}

impl<K: Primary, S: Shared> Context<K, S> {
    /// Deletes a child if it still has the uid of `child`, and this object is still its controller. The garbage collector deletes
    /// its dependents in the background.
    ///
    /// Returns false if the API server refuses the deletion. The refusal is recorded, an [`apply_status`](Context::apply_status) that
    /// follows reports it, and the child stays.
    ///
    /// # Panics
    ///
    /// When the controller does not declare the kind. Only `owns` also gives the permissions.
    pub async fn delete<C: Child>(&self, child: &Live<C::View>) -> Result<bool, Error> {
        let key = ObjectKey { namespace: child.namespace.clone(), name: child.name.clone() };
        let requests = self.requests::<C>();
        if child.deleting.is_some() {
            return Ok(true);
        }
        self.delete_unwanted::<C>(&requests, &key, &child.uid, None).await
    }

    /// Returns false if the API server refuses the deletion, which is recorded. `read` is the child as it was just read, if it was.
    pub(in crate::context) async fn delete_unwanted<C: Child>(
        &self,
        requests: &Requests,
        key: &ObjectKey,
        uid: &str,
        read: Option<&str>,
    ) -> Result<bool, Error> {
        match self.remove::<C>(requests, key, uid, read).await {
            Ok(true) => {
                self.forget_contest(requests, key);
                let text = format!("Deleted {} \"{}\", no longer wanted", requests.kind(), key.name);
                self.child_event(requests, key, uid, "Deleted", text);
                Ok(true)
            }
            Ok(false) => Ok(true),
            Err(error) => self.report_refusal(error).map(|()| false),
        }
    }

    /// Like [`delete`](Context::delete), but without an event: for children that come and go by the hour. Returns whether the
    /// child still existed.
    ///
    /// If the API server refuses the deletion, this fails, because what follows may rely on it. The refusal is recorded all the same:
    /// an [`apply_status`](Context::apply_status) that follows reports it. The next attempt comes with the object's back-off.
    ///
    /// # Panics
    ///
    /// When the controller does not declare the kind. Only `owns` also gives the permissions.
    pub async fn delete_quietly<C: Child>(&self, child: &Live<C::View>) -> Result<bool, Error> {
        let key = ObjectKey { namespace: child.namespace.clone(), name: child.name.clone() };
        let requests = self.requests::<C>();
        let removed = self.remove::<C>(&requests, &key, &child.uid, None).await;
        let is_removed = removed.inspect_err(|error| self.record_refusal(error))?;
        if is_removed {
            self.forget_contest(&requests, &key);
        }
        Ok(is_removed)
    }

    /// Deletes the child if it still has this uid and is still ours. Returns whether it has deleted it. Its contest stays.
    /// `read` is the child as it was just read, if it was.
    pub(super) async fn remove<C: Child>(
        &self,
        requests: &Requests,
        key: &ObjectKey,
        uid: &str,
        read: Option<&str>,
    ) -> Result<bool, Error> {
        let owner = self.reconciliation.uid.as_str();
        let known = read.map(Cow::Borrowed).or_else(|| self.store::<C>().text(key).map(Cow::Owned));
        // Of what is known, only that the child is ours counts: anything else, only the API server knows.
        let mut version = known.and_then(|text| match Found::read(&text, uid, owner) {
            Ok(Found::Ours(version)) => Some(version),
            Ok(Found::Gone | Found::Foreign) | Err(_) => None,
        });
        let mut last = Ok(false);
        for _ in 0..ATTEMPTS {
            let found = match version.take() {
                Some(version) => Found::Ours(version),
                None => self.find(requests, key, uid).await?,
            };
            let version = match found {
                Found::Ours(version) => version,
                Found::Gone => {
                    self.note_removed::<C>(requests, key, uid, None);
                    return Ok(false);
                }
                // The watch will deliver the change of the owner.
                Found::Foreign => return Ok(false),
            };
            match requests.delete(key, uid, &version).await {
                Ok(answer) => {
                    self.controller.children.wrote(requests.kind(), Written::Deleted);
                    self.controller.recent.deleted(&self.reconciliation.key, requests.kind(), &key.name);
                    self.note_removed::<C>(requests, key, uid, kept::<C>(&answer).as_ref());
                    return Ok(true);
                }
                Err(error) if error.class() == Class::NotFound => {
                    self.note_removed::<C>(requests, key, uid, None);
                    return Ok(false);
                }
                // The child was changed or replaced: look again.
                Err(error) if error.class() == Class::Conflict => last = Err(error),
                Err(error) => return Err(error),
            }
        }
        last
    }

    /// Reads the object that has the name of the child now.
    async fn find(&self, requests: &Requests, key: &ObjectKey, uid: &str) -> Result<Found, Error> {
        match requests.get(key).await {
            Ok(text) => Found::read(&text, uid, &self.reconciliation.uid).map_err(requests.undecodable("read", key)),
            Err(error) if error.class() == Class::NotFound => Ok(Found::Gone),
            Err(error) => Err(error),
        }
    }

    /// Removes the child from the cache. `kept` is its metadata if it exists for a while.
    fn note_removed<C: Child>(&self, requests: &Requests, key: &ObjectKey, uid: &str, kept: Option<&CachedMeta>) {
        self.informer::<C>().observe_gone(key, Uid::of(uid), kept, self.writer());
        // The watch may have delivered the deletion first, which made an entry.
        self.controller.memory.clear_lost_child(&self.reconciliation.key, requests.kind(), key);
        self.reconciliation.changed_children.store(true, Ordering::Relaxed);
    }
}

/// The metadata in the answer to a deletion if a finalizer or a grace period keeps the object: then the answer is the object with
/// the time of its deletion. `None` if the object does not exist any more. For most kinds the answer is a Status then. For some,
/// such as Services, it is the object as it was.
fn kept<C: Child>(answer: &str) -> Option<CachedMeta> {
    let decoded = Decoded::read::<Projected<C>>(answer).ok()?; // a Status has no name
    Some(decoded.meta).filter(|meta| meta.is_deleting)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Service;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn answer_to_a_deletion_tells_whether_the_object_is_kept() {
        let service = |metadata: Value| json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata});
        for (answer, expected) in [
            (json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Success"}), None),
            (service(json!({"name": "a", "resourceVersion": "7"})), None),
            (
                service(json!({"name": "a", "resourceVersion": "7", "deletionTimestamp": "2026-11-22T00:00:00Z"})),
                Some(7),
            ),
        ] {
            assert_eq!(kept::<Service>(&answer.to_string()).map(|meta| meta.version), expected, "{answer}");
        }
    }

    #[test]
    fn only_a_child_of_this_object_is_ours() {
        let child = |uid: &str, owner: &str, controls: bool| {
            let owners =
                json!([{"apiVersion": "v1", "kind": "Toy", "name": "a", "uid": owner, "controller": controls}]);
            let object =
                json!({"metadata": {"name": "a", "uid": uid, "resourceVersion": "7", "ownerReferences": owners}});
            Found::read(&object.to_string(), "child", "us").expect("an object")
        };
        assert_eq!(child("child", "us", true), Found::Ours("7".to_owned()));
        assert_eq!(child("child", "them", true), Found::Foreign);
        assert_eq!(child("child", "us", false), Found::Foreign);
        assert_eq!(child("another", "us", true), Found::Gone);
    }
}
