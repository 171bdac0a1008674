//! Children that left the watch although this operator did not delete them: another client deleted them, or removed the
//! label by which they are watched. In the second case a child that is no longer wanted can still be found and deleted.

use api_errors::Class;
use cache::{Delta, Head, ObjectKey};
use workloads::{Child, Live};

use super::{Context, Memory, Primary, Shared};
use crate::error::Error;

impl Memory {
    /// Takes in a change of a child of `owner`, an object that exists. For a child that is still wanted, the next write clears
    /// the entry. A child that is no longer wanted is read once; otherwise it would stay for ever.
    pub(crate) fn record_lost_child<V>(&self, owner: &ObjectKey, kind: &str, delta: &Delta<Live<V>>) {
        match &delta.owners {
            [Some(_), None] => {
                self.modify(owner, |it| it.lost_children.insert(kind.to_owned(), delta.key.clone()));
            }
            [_, Some(_)] => self.clear_lost_child(owner, kind),
            [None, None] => {}
        }
    }

    /// Records that the state of the child is known.
    pub(super) fn clear_lost_child(&self, owner: &ObjectKey, kind: &str) {
        self.modify(owner, |it| it.lost_children.remove(kind));
    }
}

impl<K: Primary, S: Shared> Context<K, S> {
    /// Deletes the child of this kind that left the watch, if it still exists and still belongs to this object.
    pub(super) async fn delete_lost_children<C: Child>(&self) -> Result<(), Error> {
        let requests = self.requests::<C>();
        let Some(key) =
            self.controller.memory.read(&self.reconciliation.key, |it| it.lost_children.get(requests.kind()).cloned())
        else {
            return Ok(());
        };
        match requests.get(&key).await {
            Ok(text) => {
                let metadata =
                    serde_json::from_str::<Head<'_>>(&text).map_err(requests.undecodable("read", &key))?.metadata;
                let is_ours = metadata.controller().is_some_and(|owner| owner.uid == self.reconciliation.uid.as_str());
                if is_ours && metadata.deletion_timestamp.is_none() {
                    self.delete_unwanted::<C>(&requests, &key, &metadata.uid, Some(&text)).await?;
                }
            }
            Err(error) if error.class() == Class::NotFound => {}
            Err(error) => return Err(error),
        }
        self.controller.memory.clear_lost_child(&self.reconciliation.key, requests.kind());
        Ok(())
    }
}
