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
//! - The first write of a process to a child is preceded by a dry run (`rehearse`). If the write would change nothing,
//!   because admission rewrites our fields each time, the child counts as in sync.

use std::{sync::Arc, sync::atomic::Ordering, time::Duration};

use kube::Resource;
use serde_json::{Value, json};
use tokio::time::Instant;
use workloads::{Child, Live};

use super::{Again, Context, Primary, Rollout, lock};
use crate::{
    api::{Namespaced, Requests},
    conditions::{Problem, ProblemKind, WAITING},
    error::{Class, Error},
    informer::resource_name,
    metrics::{ChildMetrics, Written},
    object::{Head, MANAGED_BY, Metadata, ObjectKey, Uid},
    owned::{Change, Share, Writers, fingerprint, holder, make_room, rehearsal, unclaimed, unite},
    store::{Known, Verified},
    wire::{Decoded, Projected, Undecodable},
};

mod difference;
mod edit;
mod events;
mod rehearse;
mod target;

use difference::{Difference, carried_out};
pub(super) use target::Target;
use target::{agrees, defaulted};

/// The field manager to which the API server gives all fields of an object without `managedFields` on its first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// How often to poll a name conflict, because unlabelled objects are not watched, and a write that RBAC forbids.
const LOOK_AGAIN: Duration = Duration::from_mins(1);
/// How many times to try a write whose object changes between read and write.
const ATTEMPTS: usize = 4;
/// Who owns the object that has the name we want.
enum Claim {
    Ours,
    /// An earlier object of ours left it behind: it carries our labels and has no owner.
    Orphan,
    /// It belongs to an earlier object that is gone, and is being deleted.
    Dying,
    Foreign,
}

impl<K: Primary> Context<K> {
    /// Makes sure that `desired` exists as a child of this object and has these fields. Fields of other managers stay; fields
    /// of ours that are no longer in `desired` are removed. Sends nothing if nothing has to change.
    ///
    /// Returns the child as it is now, or `None` if the write was refused: an object that is not ours has the name, or
    /// admission rejects the child. The refusal is recorded, [`apply_status`](Context::apply_status) reports it, and other
    /// children are still written. Also returns `None` for an optional kind that is not installed, which is not a refusal.
    ///
    /// # Panics
    ///
    /// When the controller does not declare the kind with `owns`.
    pub fn apply<C: Child + Namespaced>(&self, desired: C) -> impl Future<Output = Outcome<C>> + Send + use<'_, K, C> {
        // Serialize here, outside of the `async` block, so that the future does not hold a whole typed object.
        let requests = self.requests::<C>();
        let target = self.target(&requests, desired);
        async move { self.bring_in_line::<C>(&requests, &target?).await }
    }

    /// [`apply`](Context::apply)s `Some`; deletes this object's child of that kind for `None`.
    ///
    /// Also deletes a child from which another client removed our label. There is one exception: if the label was removed while
    /// no operator ran, and the child was no longer wanted when one started again, the child is unknown and stays until its
    /// owner goes.
    ///
    /// # Panics
    ///
    /// When the controller does not declare the kind with `owns`.
    pub fn apply_or_delete<C: Child + Namespaced>(
        &self,
        desired: Option<C>,
    ) -> impl Future<Output = Outcome<C>> + Send + use<'_, K, C> {
        let requests = self.requests::<C>();
        let target = desired.map(|desired| self.target(&requests, desired));
        async move {
            if let Some(target) = target {
                return self.bring_in_line::<C>(&requests, &target?).await;
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
    /// or `None` if there is none.
    ///
    /// # Panics
    ///
    /// When the controller does not declare the kind with `owns`.
    pub fn apply_or_keep<C: Child + Namespaced>(
        &self,
        name: &str,
        desired: Option<C>,
    ) -> impl Future<Output = Outcome<C>> + Send + use<'_, K, C> {
        let requests = self.requests::<C>();
        let target = desired.map(|desired| self.target(&requests, desired)).ok_or_else(|| self.get::<C>(name));
        async move {
            match target {
                Ok(target) => self.bring_in_line::<C>(&requests, &target?).await,
                Err(kept) => Ok(kept),
            }
        }
    }

    /// Deletes a child if it still has the uid of `child`. The garbage collector deletes its dependents in the background.
    ///
    /// # Panics
    ///
    /// When the controller does not declare the kind with `owns`.
    pub async fn delete<C: Child + Namespaced>(&self, child: &Live<C::View>) -> Result<(), Error> {
        let key = ObjectKey { namespace: child.namespace.clone(), name: child.name.clone() };
        let requests = self.requests::<C>();
        if child.deleting.is_some() {
            return Ok(());
        }
        self.delete_unwanted::<C>(&requests, &key, &child.uid).await
    }

    pub(super) async fn delete_unwanted<C: Child + Namespaced>(
        &self,
        requests: &Requests,
        key: &ObjectKey,
        uid: &str,
    ) -> Result<(), Error> {
        if self.remove::<C>(requests, key, uid).await? {
            let text = format!("Deleted {} \"{}\", no longer wanted", requests.kind(), key.name);
            self.tell(requests, key, uid, "Deleted", text);
        }
        Ok(())
    }

    /// Like [`delete`](Context::delete), but without an event: for children that come and go by the hour. Returns whether the
    /// child still existed.
    ///
    /// # Panics
    ///
    /// When the controller does not declare the kind with `owns`.
    pub async fn delete_quietly<C: Child + Namespaced>(&self, child: &Live<C::View>) -> Result<bool, Error> {
        let key = ObjectKey { namespace: child.namespace.clone(), name: child.name.clone() };
        self.remove::<C>(&self.requests::<C>(), &key, &child.uid).await
    }

    async fn bring_in_line<C: Child + Namespaced>(&self, requests: &Requests, target: &Target) -> Outcome<C> {
        if self.controller.role.optional.contains(&resource_name::<C>()) && !self.installed::<C>() {
            self.tell_missing(requests);
            return Ok(None);
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
        self.settle(written)
    }

    async fn remove<C: Child + Namespaced>(
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
        self.store::<C>().observe_gone(key, Uid::of(uid));
        // The watch may have delivered the deletion first, which made an entry.
        self.controller.caches.lost_children.settle(&self.reconciliation.key, requests.kind());
        self.reconciliation.changed_children.store(true, Ordering::Relaxed);
        Ok(deleted)
    }

    async fn create_or_update<C: Child + Namespaced>(&self, requests: &Requests, target: &Target) -> Outcome<C> {
        match self.post::<C>(requests, target).await {
            // The name is taken: by an object that is not ours, an orphan, or our own create whose answer was lost.
            Err(error) if error.class() == Class::AlreadyExists => self.update::<C>(requests, target).await,
            other => other,
        }
    }

    async fn post<C: Child + Namespaced>(&self, requests: &Requests, target: &Target) -> Outcome<C> {
        let (owner, kind, name) = (&self.reconciliation.key, requests.kind(), &target.key.name);
        if self.controller.recent.contains(owner, kind, name) && !self.is_there().await? {
            return Ok(None); // the owner is gone: the garbage collector would delete the next child too
        }
        let answer = requests.create(&target.key, &target.body(requests)).await?;
        self.controller.recent.created(owner, kind, name);
        self.controller.children.wrote(requests.kind(), Written::Created);
        let live = self.observe::<C>(requests, target, &answer)?;
        let text = format!("Created {} \"{}\"", requests.kind(), target.key.name);
        self.tell(requests, &target.key, &live.uid, "Created", text);
        if ChildMetrics::rolls_out(requests.kind()) {
            let first = Rollout { since: Instant::now(), replicas: None };
            lock(&self.controller.rollouts).insert(self.reconciliation.key.clone(), first);
        }
        Ok(Some(live))
    }

    async fn update<C: Child + Namespaced>(&self, requests: &Requests, target: &Target) -> Outcome<C> {
        let mut last = Ok(None);
        for _ in 0..ATTEMPTS {
            let written = match requests.get(&target.key).await {
                Ok(text) => self.change::<C>(requests, target, &text, false).await,
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

    /// Makes the object that was just read match the target. `has_room` is true on the second pass, after a patch that
    /// exchanged the fields which exclude ours.
    async fn change<C: Child + Namespaced>(
        &self,
        requests: &Requests,
        target: &Target,
        text: &str,
        has_room: bool,
    ) -> Outcome<C> {
        let broken = |source| Error::Decode { request: requests.describe("read", &target.key), source };
        let live: Value = serde_json::from_str(text).map_err(broken)?;
        let metadata = serde_json::from_str::<Head<'_>>(text).map_err(broken)?.metadata;
        let fixed = C::immutable_difference(&live, &target.fields);
        let adopted = match self.claim(&metadata, fixed.is_some()) {
            Claim::Ours if metadata.deletion_timestamp.is_some() => {
                self.wait_for_collection(requests, &target.key);
                return Ok(None);
            }
            Claim::Ours => false,
            Claim::Orphan => true,
            Claim::Dying => {
                self.wait_for_collection(requests, &target.key);
                return Ok(None);
            }
            Claim::Foreign => {
                let kind = &self.controller.names.kind;
                let message = format!("Resource \"{}\" already exists and is not managed by {kind}", target.key.name);
                self.refuse(Problem::new(ProblemKind::RESOURCE_CONFLICT, message), Again::After(LOOK_AGAIN));
                return Ok(None);
            }
        };
        if let Some(what) = fixed.filter(|_| C::REPLACEABLE) {
            self.remove::<C>(requests, &target.key, &metadata.uid).await?;
            let answer = requests.create(&target.key, &target.body(requests)).await?;
            self.controller.children.wrote(requests.kind(), Written::Created);
            let live = self.observe::<C>(requests, target, &answer)?;
            let text = format!("Recreated {} \"{}\" to change its {what}", requests.kind(), target.key.name);
            self.tell(requests, &target.key, &live.uid, "Recreated", text);
            return Ok(Some(live));
        }

        let difference = Difference::of::<C>(&live, &metadata, requests.manager(), target);
        if difference.is_none() && !adopted {
            return self.observe::<C>(requests, target, text).map(Some); // equal values in another notation
        }
        let verified = self.store::<C>().known(&target.key).and_then(|known| known.verified);
        let mut body = target.body_for(requests, &metadata);
        if verified.is_none() && !adopted {
            let rehearsed = match rehearsal(&live, &metadata.uid, &difference.changes) {
                _ if difference.is_for_an_apply() => Some(requests.rehearse_apply(&target.key, &body).await),
                Some(operations) => Some(requests.rehearse_edit(&target.key, &operations).await),
                None => None,
            };
            let fingerprint = fingerprint(&live, requests.manager(), &metadata.managed_fields);
            if let Some(rehearsed) = rehearsed
                && self.is_in_vain::<C>(requests, target, fingerprint, rehearsed)?
            {
                return self.observe::<C>(requests, target, text).map(Some);
            }
        }
        if !has_room
            && let Some(operations) = make_room(&live, &metadata.uid, &self.reconciliation.uid, &difference.changes)
        {
            let answer = requests.edit(&target.key, &operations).await?;
            self.controller.children.wrote(requests.kind(), Written::Updated);
            let left = Difference::read::<C>(&answer, requests.manager(), target).map_err(broken)?;
            self.tell_changes(requests, target, &metadata, &carried_out(difference.changes, &left), verified);
            return Box::pin(self.change::<C>(requests, target, &answer, true)).await;
        }
        let left = left_behind::<C>(&live, requests.manager(), target, &metadata);
        if difference.from_create || left.is_some() {
            let folded = fold(&live, requests.manager(), requests.type_meta().0, &metadata, left);
            let answer = requests.merge(&target.key, &folded).await?;
            let metadata = serde_json::from_str::<Head<'_>>(&answer).map_err(broken)?.metadata;
            body = target.body_for(requests, &metadata);
        }
        let answer = requests.apply(&target.key, &body).await?;
        self.controller.children.wrote(requests.kind(), Written::Updated);
        let applied = self.observe::<C>(requests, target, &answer)?;
        if adopted {
            self.tell(
                requests,
                &target.key,
                &applied.uid,
                "Adopted",
                format!("Adopted {} \"{}\"", requests.kind(), target.key.name),
            );
        } else {
            let left = Difference::read::<C>(&answer, requests.manager(), target).map_err(broken)?;
            let changes = carried_out(difference.changes, &left);
            self.tell_changes(requests, target, &metadata, &changes, verified);
        }
        Ok(Some(applied))
    }

    /// Takes the API server's answer into the cache, and remembers that it is in sync with the target.
    fn observe<C: Child + Namespaced>(
        &self,
        requests: &Requests,
        target: &Target,
        answer: &str,
    ) -> Result<Arc<Live<C::View>>, Error> {
        let broken = |source| Error::Decode { request: requests.describe("read", &target.key), source };
        let decoded = Decoded::read::<Projected<C>>(answer).map_err(broken)?;
        let store = self.store::<C>();
        self.informer::<C>().observe(&decoded);
        self.controller.caches.lost_children.settle(&self.reconciliation.key, requests.kind());
        store.verify(&target.key, decoded.facts.uid, target.verified(decoded.facts.fingerprint.hash));
        self.reconciliation.changed_children.store(true, Ordering::Relaxed);
        let problem = |Undecodable { error, .. }| {
            Error::Other(format!("{} \"{}\" does not decode: {error}", requests.kind(), target.key.name).into())
        };
        decoded.item.map_err(problem)
    }

    fn claim(&self, metadata: &Metadata<'_>, differs_for_good: bool) -> Claim {
        match metadata.controller() {
            Some(owner) if owner.uid == self.reconciliation.uid.as_str() => Claim::Ours,
            Some(owner) if metadata.deletion_timestamp.is_some() && *owner.name == *self.reconciliation.key.name => {
                Claim::Dying
            }
            Some(_) => Claim::Foreign,
            None => {
                let labels = &metadata.labels;
                let ours = self.controller.role.adopts
                    && labels.name.as_deref() == Some(&*self.controller.names.app)
                    && labels.instance.as_deref() == Some(&*self.reconciliation.key.name)
                    && labels.managed_by.as_deref() == Some(&self.controller.names.managed_by);
                if ours && metadata.deletion_timestamp.is_some() {
                    Claim::Dying
                } else if ours && !differs_for_good {
                    Claim::Orphan
                } else {
                    Claim::Foreign
                }
            }
        }
    }

    /// Whether the child differs because another client changed it, not because we want something else now.
    ///
    /// A process that has not seen the child in sync cannot tell a field that another client removed from one that its own
    /// new version wants for the first time. So it only reports drift if `managedFields` name another manager.
    fn is_drift(
        &self,
        requests: &Requests,
        target: &Target,
        metadata: &Metadata<'_>,
        changes: &[Change],
        verified: Option<Verified>,
    ) -> bool {
        // A field that we no longer want does not count: other managers may hold parts below it.
        let held = |change: &Change| {
            change.desired.is_some() && holder(&change.path, requests.manager(), &metadata.managed_fields).is_some()
        };
        match verified {
            Some(verified) => verified.desired == target.hash,
            None => self.is_observed() && changes.iter().any(held),
        }
    }

    pub(super) fn settle<V>(
        &self,
        written: Result<Option<Arc<Live<V>>>, Error>,
    ) -> Result<Option<Arc<Live<V>>>, Error> {
        let error = match written {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        let (kind, again) = match error.class() {
            Class::Rejected => (ProblemKind::CHILD_REJECTED, Again::Backoff),
            Class::Quota => (ProblemKind::QUOTA_EXCEEDED, Again::Backoff),
            Class::Forbidden => (ProblemKind::FORBIDDEN, Again::After(LOOK_AGAIN)),
            _ => return Err(error),
        };
        self.refuse(Problem::new(kind, error.chain()), again);
        Ok(None)
    }

    fn wait_for_collection(&self, requests: &Requests, key: &ObjectKey) {
        let message = format!("{} \"{}\" of an earlier object is being deleted", requests.kind(), key.name);
        self.refuse(Problem::new(WAITING, message), Again::After(Duration::from_secs(2)));
    }

    fn owns<V>(&self, known: &Known<Live<V>>) -> bool {
        known.owner.as_ref().is_some_and(|owner| owner.uid == self.reconciliation.id)
    }

    pub(super) fn requests<C: Resource<DynamicType = ()>>(&self) -> Requests {
        let environment = &self.controller.environment;
        Requests::of::<C>(environment.client.clone(), &self.controller.names.manager, environment.leading.clone())
    }
}

/// The child as it is now, `None` if the write was refused, or an error to retry.
type Outcome<C> = Result<Option<Arc<Live<<C as workloads::Viewed>::View>>>, Error>;

/// Returns the fields to put into our `managedFields` entry before the apply, if the entry is missing or incomplete because
/// `managedFields` were cleared. `None` if our entry is complete, or if the apply alone is enough.
///
/// If the apply found no entry at all, the API server would give all fields to [`BEFORE_FIRST_APPLY`], and fields that we drop
/// later would stay in the object. The same holds if it has already done so for an apply of another client.
fn left_behind<C: Child>(live: &Value, manager: &str, target: &Target, metadata: &Metadata<'_>) -> Option<Value> {
    let label = format!("f:{MANAGED_BY}");
    let share = Share::of(manager, &metadata.managed_fields);
    // Each complete entry of ours holds our label. An entry that an edit made after the others were cleared does not.
    if share.is_some_and(|share| !share.into_fields()["f:metadata"]["f:labels"][&label].is_null()) {
        return None;
    }
    let entries: Vec<_> = metadata.managed_fields.iter().filter(|entry| entry.manager != BEFORE_FIRST_APPLY).collect();
    let unclaimed = unclaimed(live, &defaulted::<C>(&target.fields), Writers::of::<C>(), entries.iter().copied());
    let is_all_held = !entries.is_empty() && entries.len() == metadata.managed_fields.len();
    if is_all_held && unclaimed == json!({}) {
        return None;
    }
    let mut fields = json!({"f:metadata": {"f:labels": {label: {}}}}); // an entry must not be empty
    unite(&mut fields, unclaimed);
    Some(fields)
}

/// Returns a merge patch that turns our create entry into an apply entry, or makes a new one; either also gets the fields in
/// `left`. The patch carries uid and version, because it replaces the list `managedFields` as a whole.
fn fold(live: &Value, manager: &str, api_version: &str, metadata: &Metadata<'_>, left: Option<Value>) -> Value {
    let mut entries = live.pointer("/metadata/managedFields").and_then(Value::as_array).cloned().unwrap_or_default();
    let ours = |entry: &Value| entry["manager"] == manager && entry.get("subresource").is_none();
    // The API server would keep only one of two entries with the same identity, so they are united first.
    let mut fields = Share::of(manager, &metadata.managed_fields).map_or_else(|| json!({}), Share::into_fields);
    unite(&mut fields, left.unwrap_or_else(|| json!({})));
    let mut kept = entries
        .iter()
        .find(|entry| ours(entry))
        .cloned()
        .unwrap_or_else(|| json!({"manager": manager, "apiVersion": api_version, "fieldsType": "FieldsV1"}));
    kept["operation"] = json!("Apply");
    kept["fieldsV1"] = fields;
    entries.retain(|entry| !ours(entry) && entry["manager"] != BEFORE_FIRST_APPLY);
    entries.push(kept);
    json!({"metadata": {
        "uid": &*metadata.uid, "resourceVersion": &*metadata.resource_version, "managedFields": entries,
    }})
}
