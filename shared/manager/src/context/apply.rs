//! Writes children: makes the live object match the desired one, and sends no request if it already does.
//!
//! How a write is sent, and why (the costs were measured on a real API server):
//!
//! - A missing child is created by POST. This is the cheapest request, and it fails if the name is taken.
//! - If only plain fields have to be set, and no apply has changed the child yet, one JSON patch sets them (`edit`).
//! - Before any other change the child is read once. This shows who owns it, what differs (for the event) and who changed it.
//! - Such a change is a forced server-side apply with the uid and the version that were read. So it overwrites neither an
//!   object that takes the name in the meantime nor another change. The API server removes fields that we no longer want,
//!   because `managedFields` say that they are ours; if these were cleared after the read, the version makes the apply fail.
//! - The entry that a POST left in `managedFields` is turned into an apply entry before the first such change.
//!   Otherwise it would go on owning the fields that the apply drops.
//! - The first write of a process to a child is preceded by a dry run (`dry_run`). If the write would change nothing,
//!   because admission rewrites our fields each time, the child counts as in sync.
//! - If another client changes the same field again and again, or deletes or replaces the child, the writes become rare
//!   (`contest`).

use std::{sync::Arc, sync::atomic::Ordering, time::Duration};

use api_errors::Class;
use cache::{
    Decoded, Head, Known, Metadata, ObjectKey, Projected, Uid, Undecodable, owned::exchange_alternatives, resource_name,
};
use kube::Resource;
use serde_json::Value;
use tokio::time::Instant;
use workloads::{Child, Live};

use super::{Again, Context, Primary, Rollout, Shared};
use crate::{
    api::Requests,
    conditions::{Problem, WAITING},
    error::Error,
    metrics::{ChildMetrics, Written},
};

mod claim;
mod contest;
mod csaupgrade;
mod delete;
mod difference;
mod dry_run;
mod edit;
mod events;
mod refusal;
mod target;

use claim::Claim;
pub(super) use contest::Contest;
use csaupgrade::{unclaimed_fields, upgraded, without_defaults};
use difference::{Difference, applied_changes};
use events::{AppliedWrite, Before};
pub(super) use target::Target;
use target::agrees;

/// How often to poll a name conflict, because unlabelled objects are not watched, and a write that RBAC forbids.
const POLL_INTERVAL: Duration = Duration::from_mins(1);
/// How many times to try a write whose object changes between read and write.
const ATTEMPTS: usize = 4;

impl<K: Primary, S: Shared> Context<K, S> {
    /// Makes sure that `desired` exists as a child of this object and has these fields. Fields of other managers stay; fields
    /// of ours that are no longer in `desired` are removed. Sends nothing if nothing has to change.
    ///
    /// Returns the child as it is now; `None` if this object has no such child. If the API server refuses the write, that is the
    /// child as it was before, or `None` if it could not be created. The refusal is recorded,
    /// [`apply_status`](Context::apply_status) reports it, and other children are still written.
    /// [`is_in_sync`](Context::is_in_sync) tells whether the child has what was wanted.
    ///
    /// Also returns `None` if an object that is not ours has the name, which is recorded too, and for an optional kind that is not
    /// installed, which is not a refusal.
    ///
    /// # Panics
    ///
    /// When the controller does not declare the kind. Only `owns` also gives the permissions.
    pub fn apply<C: Child>(&self, desired: C) -> impl Future<Output = Outcome<C>> + Send + use<'_, K, S, C> {
        // Serialize here, outside of the `async` block, so that the future does not hold a whole typed object.
        let requests = self.requests::<C>();
        let target = self.target(&requests, desired);
        async move { self.ensure::<C>(&requests, &target?).await }
    }

    /// [`apply`](Context::apply)s `Some`; for `None`, deletes all children of that kind that this object has, whatever their names.
    /// [`delete`](Context::delete) deletes a single one.
    ///
    /// Also deletes children from which another client removed our label, the last 16 of them. There is one exception: if the label
    /// was removed while no operator ran, and the child was no longer wanted when one started again, the child is unknown and stays
    /// until its owner goes.
    ///
    /// For `None`, returns `None`. If the API server refuses a deletion, the child stays, and [`apply_status`](Context::apply_status)
    /// reports the refusal.
    ///
    /// # Panics
    ///
    /// When the controller does not declare the kind. Only `owns` also gives the permissions.
    pub fn apply_or_delete<C: Child>(
        &self,
        desired: Option<C>,
    ) -> impl Future<Output = Outcome<C>> + Send + use<'_, K, S, C> {
        let requests = self.requests::<C>();
        let target = desired.map(|desired| self.target(&requests, desired));
        async move {
            if let Some(target) = target {
                return self.ensure::<C>(&requests, &target?).await;
            }
            for key in self.store::<C>().owned(self.reconciliation.id) {
                if let Some(child) = self.store::<C>().get(&key) {
                    Box::pin(self.delete::<C>(&child)).await?;
                }
            }
            Box::pin(self.delete_lost_children::<C>()).await?;
            Ok(None)
        }
    }

    /// [`apply`](Context::apply)s `Some`; for `None`, leaves this object's child `name` as it is. Returns the child as it is now,
    /// or `None` if there is none. An object with this name that is not a child of this object does not count.
    ///
    /// # Panics
    ///
    /// When the controller does not declare the kind. Only `owns` also gives the permissions.
    pub fn apply_or_keep<C: Child + Resource<Scope = K::Scope>>(
        &self,
        name: &str,
        desired: Option<C>,
    ) -> impl Future<Output = Outcome<C>> + Send + use<'_, K, S, C> {
        let requests = self.requests::<C>();
        let target = desired
            .map(|desired| self.target(&requests, desired))
            .ok_or_else(|| self.owned::<C>().into_iter().find(|it| &*it.name == name));
        async move {
            match target {
                Ok(target) => self.ensure::<C>(&requests, &target?).await,
                Err(kept) => Ok(kept),
            }
        }
    }

    async fn ensure<C: Child>(&self, requests: &Requests, target: &Target) -> Outcome<C> {
        let outcome = self.match_target::<C>(requests, target).await;
        self.report_contest(requests, target);
        outcome
    }

    /// Makes the child match the target. Sends nothing if it already does.
    async fn match_target<C: Child>(&self, requests: &Requests, target: &Target) -> Outcome<C> {
        if self.controller.capabilities.optional.contains(&resource_name::<C>()) {
            self.report_missing(requests, self.informer::<C>().health.is_missing());
            if !self.installed::<C>() {
                return Ok(None);
            }
        }
        // The writes are boxed so that the future stays small: most reconciles write nothing.
        let written = match self.store::<C>().known(&target.key) {
            None => Box::pin(self.create_or_update::<C>(requests, target)).await,
            Some(known) if self.owns(&known) => {
                if known.item.deleting.is_some() {
                    self.wait_for_collection(requests, &target.key);
                    return Ok(Some(known.item));
                }
                if agrees::<C>(target, &known) {
                    let verified = target.verified(known.fingerprint.hash);
                    if known.verified != Some(verified) {
                        self.store::<C>().verify(&target.key, known.uid, verified);
                    }
                    self.controller
                        .environment
                        .metrics
                        .skipped_writes
                        .with_label_values(&[requests.kind(), "apply"])
                        .inc();
                    return Ok(Some(known.item));
                }
                match Box::pin(self.edit::<C>(requests, target, &known)).await {
                    Ok(None) => Box::pin(self.update::<C>(requests, target)).await,
                    written => written,
                }
            }
            Some(_) => Box::pin(self.update::<C>(requests, target)).await,
        };
        match written {
            Ok(child) => Ok(child),
            Err(error) => {
                self.report_refusal(error)?;
                self.leave(requests.kind(), &target.key);
                Box::pin(self.existing::<C>(requests, &target.key)).await
            }
        }
    }

    async fn create_or_update<C: Child>(&self, requests: &Requests, target: &Target) -> Outcome<C> {
        if self.creation_waits(requests, target) {
            // The other client may have removed the label of the child since, instead of deleting it once more.
            return self.existing::<C>(requests, &target.key).await;
        }
        match self.post::<C>(requests, target).await {
            // The name is taken: by an object that is not ours, an orphan, or our own create whose answer was lost.
            Err(error) if error.class() == Class::AlreadyExists => self.update::<C>(requests, target).await,
            other => other,
        }
    }

    async fn post<C: Child>(&self, requests: &Requests, target: &Target) -> Outcome<C> {
        let (owner, kind, name) = (&self.reconciliation.key, requests.kind(), &target.key.name);
        if self.creation_waits(requests, target) {
            return Ok(None);
        }
        if self.controller.recent.contains(owner, kind, name) && !self.still_exists().await? {
            return Ok(None); // the owner is gone: the garbage collector would delete the next child too
        }
        let text = format!("Created {} \"{}\"", requests.kind(), target.key.name);
        let live = self.send_create::<C>(requests, target, "Created", text).await?;
        if ChildMetrics::rolls_out(requests.kind()) {
            let first = Rollout { since: Instant::now(), replicas: None };
            self.controller.memory.modify(owner, |it| it.rollout = Some(first));
        }
        Ok(Some(live))
    }

    /// Creates the child, and emits an event about it.
    async fn send_create<C: Child>(
        &self,
        requests: &Requests,
        target: &Target,
        reason: &'static str,
        text: String,
    ) -> Result<Arc<Live<C::View>>, Error> {
        let answer = requests.create(&target.key, &target.body(requests)).await?;
        self.controller.children.wrote(requests.kind(), Written::Created);
        let patch = if C::KNOWS_DEFAULTS {
            None
        } else {
            let decode_error = requests.undecodable("create", &target.key);
            let live: Value = serde_json::from_str(&answer).map_err(&decode_error)?;
            let metadata = serde_json::from_str::<Head<'_>>(&answer).map_err(&decode_error)?.metadata;
            give_up_defaults(
                requests,
                &live,
                &metadata,
                &Difference::of::<C>(&live, &metadata, requests.manager(), target),
            )
        };
        let Some(patch) = patch else {
            let live = self.observe::<C>(requests, target, &answer)?;
            self.report_creation(requests, target, &live.uid, reason, text);
            return Ok(live);
        };
        // If the patch fails, the retry finds the created child in the cache, and gives up the defaults.
        let live = self.cache_created::<C>(requests, &target.key, &answer)?;
        self.report_creation(requests, target, &live.uid, reason, text);
        let answer = Box::pin(requests.merge_patch(&target.key, &patch)).await?;
        self.observe::<C>(requests, target, &answer)
    }

    async fn update<C: Child>(&self, requests: &Requests, target: &Target) -> Outcome<C> {
        let mut last = Ok(None);
        for _ in 0..ATTEMPTS {
            let absent_at = self.store::<C>().absent_at(&target.key);
            let written = match requests.get(&target.key).await {
                Ok(text) => {
                    self.check_absence::<C>(requests, &target.key, absent_at, &text)?;
                    self.change::<C>(requests, target, &text, false).await
                }
                Err(error) if error.class() == Class::NotFound => self.post::<C>(requests, target).await,
                Err(error) => return Err(error),
            };
            match written {
                // The object was changed, replaced or created between our read and our write: read again.
                Err(error) if matches!(error.class(), Class::Conflict | Class::AlreadyExists) => last = Err(error),
                other => return other,
            }
        }
        last
    }

    /// Checks whether the cache could have missed the object that was just read. `absent_at` is what the cache knew before.
    pub(super) fn check_absence<C: Child>(
        &self,
        requests: &Requests,
        key: &ObjectKey,
        absent_at: Option<u64>,
        text: &str,
    ) -> Result<(), Error> {
        let metadata = serde_json::from_str::<Head<'_>>(text).map_err(requests.undecodable("read", key))?.metadata;
        // The watch selects by this label.
        if metadata.labels.managed_by.as_deref() == Some(&self.controller.names.managed_by) {
            let uid = Uid::of(&metadata.uid);
            self.informer::<C>().check_absence(absent_at, key, uid, metadata.version());
        }
        Ok(())
    }

    /// Makes the object that was just read match the target. `exchanged` is true on the second pass, after a patch that
    /// exchanged other managers' alternatives for ours.
    async fn change<C: Child>(&self, requests: &Requests, target: &Target, text: &str, exchanged: bool) -> Outcome<C> {
        let decode_error = requests.undecodable("read", &target.key);
        let live: Value = serde_json::from_str(text).map_err(&decode_error)?;
        let metadata = serde_json::from_str::<Head<'_>>(text).map_err(&decode_error)?.metadata;
        let immutable = C::immutable_difference(&live, &target.fields);
        let adopted = match self.claim(&live, &metadata, immutable.is_some()) {
            Claim::Ours if metadata.deletion_timestamp.is_none() => false,
            Claim::Orphan => true,
            Claim::Ours | Claim::Dying => {
                self.wait_for_collection(requests, &target.key);
                return Ok(None);
            }
            Claim::Leftover => {
                self.wait_for_collector(requests, &target.key);
                return Ok(None);
            }
            claim @ (Claim::Foreign | Claim::Uncollected) => {
                let conflict = self.conflict(requests, target, &metadata, matches!(claim, Claim::Uncollected));
                self.refuse(conflict, Again::After(POLL_INTERVAL));
                return Ok(None);
            }
        };
        if let Some(what) = immutable.filter(|_| C::REPLACEABLE) {
            return self.recreate::<C>(requests, target, &metadata.uid, text, what).await;
        }

        let difference = Difference::of::<C>(&live, &metadata, requests.manager(), target);
        if difference.is_none() && !adopted {
            return self.observe::<C>(requests, target, text).map(Some); // equal values in another notation
        }
        let known = self.store::<C>().known(&target.key);
        let (is_lost, verified) = (known.is_none(), known.as_ref().and_then(|known| known.verified));
        let is_changed = known.as_ref().is_some_and(Known::is_changed);
        if self.waits(requests, target, &difference) {
            return self.waiting::<C>(requests, &target.key, text);
        }
        if verified.is_none()
            && !adopted
            && self.dry_run_changes_nothing::<C>(requests, target, &live, &metadata, &difference).await?
        {
            // A default that our table lacks. From now on the hashes agree, also in the next process.
            let Some(patch) = give_up_defaults(requests, &live, &metadata, &difference) else {
                return self.observe::<C>(requests, target, text).map(Some);
            };
            let answer = requests.merge_patch(&target.key, &patch).await?;
            return self.observe::<C>(requests, target, &answer).map(Some);
        }
        if !exchanged
            && let Some(operations) = exchange_alternatives(
                &live,
                &metadata.uid,
                &self.reconciliation.uid,
                &difference.changes,
                (requests.manager(), &metadata.managed_fields),
            )
        {
            let answer = requests.json_patch(&target.key, &operations).await?;
            self.controller.children.wrote(requests.kind(), Written::Updated);
            let before = Before { metadata: &metadata, verified, is_changed, is_lost, is_covered: difference.covered };
            self.report_applied::<C>(requests, target, before, difference, &answer)?;
            return Box::pin(self.change::<C>(requests, target, &answer, true)).await;
        }
        let mut body = target.body_for(requests, &metadata);
        let unclaimed = unclaimed_fields::<C>(&live, requests.manager(), target, &metadata);
        if difference.from_create || unclaimed.is_some() {
            let patch = upgraded(&live, requests.manager(), requests.type_meta().0, &metadata, unclaimed);
            let answer = requests.merge_patch(&target.key, &patch).await?;
            let metadata = serde_json::from_str::<Head<'_>>(&answer).map_err(&decode_error)?.metadata;
            body = target.body_for(requests, &metadata);
        }
        let answer = requests.apply(&target.key, &body).await?;
        self.controller.children.wrote(requests.kind(), Written::Updated);
        let applied = self.observe::<C>(requests, target, &answer)?;
        let before = Before { metadata: &metadata, verified, is_changed, is_lost, is_covered: difference.covered };
        if adopted {
            let (changes, kept) = (difference.changes, Vec::new());
            self.report_adoption(&AppliedWrite { requests, target, before, changes, kept });
        } else {
            self.report_applied::<C>(requests, target, before, difference, &answer)?;
        }
        Ok(Some(applied))
    }

    /// Deletes the child that was just read, and creates it again, because `what` cannot be updated.
    ///
    /// The contest of the child goes on. Otherwise two releases that want different values would take turns without a pause.
    async fn recreate<C: Child>(
        &self,
        requests: &Requests,
        target: &Target,
        uid: &str,
        read: &str,
        what: &'static str,
    ) -> Outcome<C> {
        if self.creation_waits(requests, target) {
            return self.waiting::<C>(requests, &target.key, read);
        }
        if self.remove::<C>(requests, &target.key, uid, Some(read)).await? {
            // Recorded before the create, which fails if the other client is faster.
            self.record_creation(requests, target, Some(what));
        }
        let text = format!("Recreated {} \"{}\" to change its {what}", requests.kind(), target.key.name);
        self.send_create::<C>(requests, target, "Recreated", text).await.map(Some)
    }

    /// Reports those changes that the answer to a write shows.
    fn report_applied<C: Child>(
        &self,
        requests: &Requests,
        target: &Target,
        before: Before<'_>,
        difference: Difference,
        answer: &str,
    ) -> Result<(), Error> {
        let decode_error = requests.undecodable("read", &target.key);
        let remaining = Difference::read::<C>(answer, requests.manager(), target).map_err(decode_error)?;
        let (changes, kept) = applied_changes(difference.changes, &remaining);
        self.report_changes(&AppliedWrite { requests, target, before, changes, kept });
        Ok(())
    }

    /// Takes the API server's answer into the cache, and remembers that it is in sync with the target.
    fn observe<C: Child>(
        &self,
        requests: &Requests,
        target: &Target,
        answer: &str,
    ) -> Result<Arc<Live<C::View>>, Error> {
        let decode_error = requests.undecodable("read", &target.key);
        let decoded = Decoded::read::<Projected<C>>(answer).map_err(&decode_error)?;
        let store = self.store::<C>();
        self.informer::<C>().observe(&decoded, self.writer());
        self.controller.memory.clear_lost_child(&self.reconciliation.key, requests.kind(), &target.key);
        store.verify(&target.key, decoded.meta.uid, target.verified(decoded.meta.fingerprint.hash));
        self.reconciliation.changed_children.store(true, Ordering::Relaxed);
        let problem = |Undecodable { error, .. }| {
            Error::Other(format!("{} \"{}\" does not decode: {error}", requests.kind(), target.key.name).into())
        };
        decoded.item.map_err(problem)
    }

    fn wait_for_collection(&self, requests: &Requests, key: &ObjectKey) {
        self.leave(requests.kind(), key);
        let message = format!("{} \"{}\" of an earlier object is being deleted", requests.kind(), key.name);
        self.refuse(Problem::new(WAITING, message), Again::After(Duration::from_secs(2)));
    }

    /// Waits for the garbage collector, which has not begun yet. What it does then wakes the object, unless the child has lost the
    /// label that selects it for the watch.
    fn wait_for_collector(&self, requests: &Requests, key: &ObjectKey) {
        let (child, own) = (requests.kind(), &self.controller.names.kind);
        let message = format!(
            "{child} \"{}\" belongs to an earlier {own} of this name; the garbage collector has not deleted it yet",
            key.name
        );
        self.refuse(Problem::new(WAITING, message), Again::After(POLL_INTERVAL));
    }

    pub(super) fn requests<C: Resource<DynamicType = ()>>(&self) -> Requests {
        let (controller, term) = (&self.controller, self.reconciliation.term.clone());
        Requests::of::<C>(controller.environment.client.clone(), &controller.names.manager, term)
    }
}

/// Returns the patch of `managedFields` after which the defaults of the API server are not ours any more, if we own them and
/// nothing else differs.
fn give_up_defaults(
    requests: &Requests,
    live: &Value,
    metadata: &Metadata<'_>,
    difference: &Difference,
) -> Option<Value> {
    let version = requests.type_meta().0;
    difference
        .is_only_defaults()
        .then(|| without_defaults(live, requests.manager(), version, metadata, &difference.changes))
        .flatten()
}

/// The child as it is now, `None` if there is none, or an error to retry.
type Outcome<C> = Result<Option<Arc<Live<<C as workloads::Viewed>::View>>>, Error>;
