//! Deletes children.

use std::sync::atomic::Ordering;

use api_errors::Class;
use cache::{ObjectKey, Uid};
use workloads::{Child, Live};

use super::{Context, Shared};
use crate::{api::Requests, error::Error, metrics::Written, status::Primary};

impl<K: Primary, S: Shared> Context<K, S> {
    /// Deletes a child if it still has the uid of `child`. The garbage collector deletes its dependents in the background.
    ///
    /// # Panics
    ///
    /// When the controller does not declare the kind with `owns`.
    pub async fn delete<C: Child>(&self, child: &Live<C::View>) -> Result<(), Error> {
        let key = ObjectKey { namespace: child.namespace.clone(), name: child.name.clone() };
        let requests = self.requests::<C>();
        if child.deleting.is_some() {
            return Ok(());
        }
        self.delete_unwanted::<C>(&requests, &key, &child.uid).await
    }

    pub(in crate::context) async fn delete_unwanted<C: Child>(
        &self,
        requests: &Requests,
        key: &ObjectKey,
        uid: &str,
    ) -> Result<(), Error> {
        if self.remove::<C>(requests, key, uid).await? {
            let text = format!("Deleted {} \"{}\", no longer wanted", requests.kind(), key.name);
            self.child_event(requests, key, uid, "Deleted", text);
        }
        Ok(())
    }

    /// Like [`delete`](Context::delete), but without an event: for children that come and go by the hour. Returns whether the
    /// child still existed.
    ///
    /// # Panics
    ///
    /// When the controller does not declare the kind with `owns`.
    pub async fn delete_quietly<C: Child>(&self, child: &Live<C::View>) -> Result<bool, Error> {
        let key = ObjectKey { namespace: child.namespace.clone(), name: child.name.clone() };
        self.remove::<C>(&self.requests::<C>(), &key, &child.uid).await
    }

    /// Deletes the object if it still has this uid. Returns whether it existed.
    pub(super) async fn remove<C: Child>(
        &self,
        requests: &Requests,
        key: &ObjectKey,
        uid: &str,
    ) -> Result<bool, Error> {
        let deleted = match requests.delete(key, uid).await {
            Ok(_) => true,
            Err(error) if error.class() == Class::NotFound => false,
            // Includes a conflict: a different object may have the name now, which the watch will show.
            Err(error) => return Err(error),
        };
        if deleted {
            self.controller.children.wrote(requests.kind(), Written::Deleted);
        }
        self.informer::<C>().observe_gone(key, Uid::of(uid), self.writer());
        // The watch may have delivered the deletion first, which made an entry.
        self.controller.memory.clear_lost_child(&self.reconciliation.key, requests.kind());
        self.reconciliation.changed_children.store(true, Ordering::Relaxed);
        Ok(deleted)
    }
}
