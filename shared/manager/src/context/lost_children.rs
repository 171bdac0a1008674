//! Children that left the watch although this operator did not delete them: another client deleted them, or removed the
//! label by which they are watched. In the second case a child that is no longer wanted can still be found and deleted.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Mutex,
};

use workloads::Child;

use super::{Context, Primary, lock};
use crate::{
    api::Namespaced,
    error::{Class, Error},
    object::{Head, ObjectKey},
    store::Delta,
};

/// The last such child of each kind, by its owner. For a child that is still wanted, the next write settles the case. A child
/// that is no longer wanted is read once; otherwise it would stay for ever.
#[derive(Debug, Default)]
pub(crate) struct LostChildren(Mutex<HashMap<ObjectKey, BTreeMap<String, ObjectKey>>>);

impl LostChildren {
    /// Takes in a change of a child of `owner`, an object that exists.
    pub(crate) fn record(&self, owner: &ObjectKey, kind: &str, delta: &Delta) {
        match &delta.owners {
            [Some(_), None] => {
                lock(&self.0).entry(owner.clone()).or_default().insert(kind.to_owned(), delta.key.clone());
            }
            [_, Some(_)] => self.settle(owner, kind),
            [None, None] => {}
        }
    }

    fn of(&self, owner: &ObjectKey, kind: &str) -> Option<ObjectKey> {
        lock(&self.0).get(owner)?.get(kind).cloned()
    }

    /// Clears the entry: the child's state is known.
    pub(super) fn settle(&self, owner: &ObjectKey, kind: &str) {
        let mut all = lock(&self.0);
        if let Some(kinds) = all.get_mut(owner) {
            kinds.remove(kind);
            if kinds.is_empty() {
                all.remove(owner);
            }
        }
    }

    /// Drops the entries of an owner that is gone.
    pub(super) fn forget(&self, owner: &ObjectKey) {
        lock(&self.0).remove(owner);
    }
}

impl<K: Primary> Context<K> {
    /// Deletes the child of this kind that left the watch, if it still exists and still belongs to this object.
    pub(super) async fn delete_lost_children<C: Child + Namespaced>(&self) -> Result<(), Error> {
        let requests = self.requests::<C>();
        let Some(key) = self.controller.caches.lost_children.of(&self.reconciliation.key, requests.kind()) else {
            return Ok(());
        };
        match requests.get(&key).await {
            Ok(text) => {
                let broken = |source| Error::Decode { request: requests.describe("read", &key), source };
                let metadata = serde_json::from_str::<Head<'_>>(&text).map_err(broken)?.metadata;
                let is_ours = metadata.controller().is_some_and(|owner| owner.uid == self.reconciliation.uid.as_str());
                if is_ours && metadata.deletion_timestamp.is_none() {
                    self.delete_unwanted::<C>(&requests, &key, &metadata.uid).await?;
                }
            }
            Err(error) if error.class() == Class::NotFound => {}
            Err(error) => return Err(error),
        }
        self.controller.caches.lost_children.settle(&self.reconciliation.key, requests.kind());
        Ok(())
    }
}
