//! Writes that leave a child as it was: the API server refuses them, or they have to wait.

use api_errors::Class;
use cache::{Head, ObjectKey};
use workloads::{Child, Live};

use super::{Again, Context, Outcome, POLL_INTERVAL, Primary, Shared};
use crate::{
    api::Requests,
    conditions::{Problem, ProblemKind, WAITING},
    error::Error,
};

impl<K: Primary, S: Shared> Context<K, S> {
    /// Whether this child, which [`apply`](Context::apply) has returned, has the fields that were wanted. False if the API server
    /// has refused the write, if the write has to wait because other clients undo it again and again, or if the child is being deleted.
    /// Then the child is as an earlier write or another client has left it: what it reports is true, but proves nothing about what is
    /// wanted now.
    pub fn is_in_sync<C: Child>(&self, child: &Live<C::View>) -> bool {
        let kind = C::kind(&());
        let left = self.reconciliation.left.lock();
        let is_child = |key: &ObjectKey| key.namespace == child.namespace && key.name == child.name;
        !left.iter().any(|(of, key)| *of == *kind && is_child(key))
    }

    /// Records that this reconcile leaves the child as it is, although something else is wanted.
    pub(super) fn leave(&self, kind: &str, key: &ObjectKey) {
        self.reconciliation.left.lock().push((kind.to_owned(), key.clone()));
    }

    /// Returns the child that this object has under this name, after a refused write, or while its creation waits. If the cache lacks
    /// it, each attempt reads it once: another client may have removed the label by which it is watched.
    pub(super) async fn existing<C: Child>(&self, requests: &Requests, key: &ObjectKey) -> Outcome<C> {
        if let Some(known) = self.store::<C>().known(key) {
            return Ok(self.owns(&known).then_some(known.item));
        }
        let text = match requests.get(key).await {
            Ok(text) => text,
            Err(error @ Error::NotLeading { .. }) => return Err(error),
            // Either there is no such child, or it is unknown. An error here would keep the refusal from the status, and other children
            // from being written. The next attempt is due already, and reads again.
            Err(_) => return Ok(None),
        };
        let metadata = serde_json::from_str::<Head<'_>>(&text).map_err(requests.undecodable("read", key))?.metadata;
        let is_ours = metadata.controller().is_some_and(|owner| owner.uid == self.reconciliation.uid.as_str());
        if is_ours { self.cache_read::<C>(requests, key, &text).map(Some) } else { Ok(None) }
    }

    /// Returns the child whose write has to wait. `text` is the child as it was just read, which counts if the cache lacks it.
    pub(super) fn waiting<C: Child>(&self, requests: &Requests, key: &ObjectKey, text: &str) -> Outcome<C> {
        match self.store::<C>().known(key) {
            Some(known) => Ok(Some(known.item)),
            None => self.cache_read::<C>(requests, key, text).map(Some),
        }
    }

    /// Turns a refusal that only a user can mend into a problem of this object. Other errors stay errors.
    pub(in crate::context) fn report_refusal(&self, error: Error) -> Result<(), Error> {
        let Some((problem, again)) = Self::refusal(&error) else { return Err(error) };
        self.refuse(problem, again);
        Ok(())
    }

    /// Records an error that the reconciler gets, too, as a problem of this object if only a user can mend it. The next attempt comes
    /// with the back-off of an error, and no earlier.
    pub(super) fn record_refusal(&self, error: &Error) {
        if let Some((problem, _)) = Self::refusal(error) {
            self.refuse(problem, Again::Backoff);
        }
    }

    /// Returns the problem to report for a refusal that only a user can mend, and when to try again. `None` for other errors.
    fn refusal(error: &Error) -> Option<(Problem, Again)> {
        let (kind, again) = match error.class() {
            Class::Rejected => (ProblemKind::CHILD_REJECTED, Again::Backoff),
            Class::Quota => (ProblemKind::QUOTA_EXCEEDED, Again::Backoff),
            Class::Forbidden => (ProblemKind::FORBIDDEN, Again::After(POLL_INTERVAL)),
            // The namespace of a namespaced object goes with the object. A cluster-scoped one stays, and nothing may wake it when
            // the namespace is gone.
            Class::NamespaceTerminating if !K::IS_NAMESPACED => (WAITING, Again::After(POLL_INTERVAL)),
            _ => return None,
        };
        Some((Problem::new(kind, error.chain()), again))
    }
}
