//! Creates children that must exist at most once: their name is deterministic, so the API server refuses a second create.

use std::sync::{Arc, atomic::Ordering};

use api_errors::Class;
use cache::{Head, ObjectKey};
use serde_json::Value;
use workloads::{Child, Live};

use super::{Context, Primary, Shared};
use crate::{api::Requests, error::Error, metrics::Written};

/// The result of [`Context::create`].
#[derive(Debug, Clone)]
pub enum Creation<V> {
    /// The child did not exist and was created.
    Created(Arc<Live<V>>),
    /// The child already exists: an earlier attempt created it for this same owner.
    Ours(Arc<Live<V>>),
    /// A child of an earlier owner of this name is still to be garbage-collected, or the present owner itself is gone.
    Dying,
    /// Another owner's object, or an unowned one, has the name. So has a child of an earlier owner of this name if the garbage
    /// collector has left it alone for minutes.
    Taken,
    /// The API server refuses the child (admission, quota, permission). The refusal is recorded, and
    /// [`apply_status`](Context::apply_status) reports it. Holds the error message.
    Refused(String),
}

impl<K: Primary, S: Shared> Context<K, S> {
    /// Creates a child with a deterministic name: of all attempts, concurrent or after a crash, one succeeds. Never changes an
    /// existing object, and emits no event. Use [`apply`](Context::apply) for children that are kept in sync.
    ///
    /// # Panics
    ///
    /// When the controller does not declare the kind. Only `owns` also gives the permissions.
    pub async fn create<C: Child>(&self, desired: C) -> Result<Creation<C::View>, Error> {
        let requests = self.requests::<C>();
        let target = self.target(&requests, desired)?;
        let kind = requests.kind().to_owned();
        let (owner, name) = (&self.reconciliation.key, &target.key.name);
        if self.controller.recent.contains(owner, &kind, name) && !self.still_exists().await? {
            return Ok(Creation::Dying); // the owner is gone: the garbage collector would delete the next child too
        }
        // Recorded before the request is sent, because this reconcile may be cancelled before the answer comes.
        let child = (kind.clone(), target.key.clone());
        self.controller.memory.modify(owner, |it| it.unanswered.insert(child));
        let created = match requests.create(&target.key, &target.body(&requests)).await {
            Ok(answer) => {
                self.controller.children.wrote(requests.kind(), Written::Created);
                self.controller.recent.created(owner, self.reconciliation.id, &kind, name);
                let live = self.cache_created::<C>(&requests, &target.key, &answer)?;
                self.reconciliation.changed_children.store(true, Ordering::Relaxed);
                Creation::Created(live)
            }
            Err(error) if error.class() == Class::AlreadyExists => {
                self.classify_existing::<C>(&requests, &target.key).await?
            }
            Err(error) if error.is_open() => return Err(error),
            Err(error) => {
                let words = error.chain();
                self.answered(&kind, &target.key);
                return self.report_refusal(error).map(|()| Creation::Refused(words));
            }
        };
        self.answered(&kind, &target.key);
        Ok(created)
    }

    /// Reads the object that already has the name, and finds out who owns it.
    async fn classify_existing<C: Child>(
        &self,
        requests: &Requests,
        key: &ObjectKey,
    ) -> Result<Creation<C::View>, Error> {
        let absent_at = self.store::<C>().absent_at(key);
        let text = requests.get(key).await?; // fails if the object is gone again; the next attempt creates the child
        let metadata = serde_json::from_str::<Head<'_>>(&text).map_err(requests.undecodable("read", key))?.metadata;
        let live: Value = serde_json::from_str(&text).map_err(requests.undecodable("read", key))?;
        self.check_absence::<C>(requests, key, absent_at, &text)?;
        Ok(match metadata.controller() {
            Some(owner) if owner.uid == self.reconciliation.uid.as_str() => {
                Creation::Ours(self.cache_read::<C>(requests, key, &text)?)
            }
            Some(owner) if metadata.deletion_timestamp.is_some() && *owner.name == *self.reconciliation.key.name => {
                Creation::Dying
            }
            Some(_) if self.is_of_earlier_self(&live) && self.expects_collection() => Creation::Dying,
            _ => Creation::Taken,
        })
    }

    /// Clears the entry of this child: the outcome of its create is known.
    pub(super) fn answered(&self, kind: &str, key: &ObjectKey) {
        self.controller.memory.modify(&self.reconciliation.key, |it| {
            it.unanswered.retain(|child| (&*child.0, &child.1) != (kind, key));
        });
    }
}
