//! Writing children: exactly what is wanted, and no request when the live object already says so.
//!
//! How a write is sent, and why (the costs were measured on a real API server):
//!
//! - A child that is not there is created by POST, the cheapest request, which fails when a stranger has the name.
//! - Where plain fields of a child are to be set that an apply never changed, one JSON patch does it (`edit`).
//! - Before any other change the child is read once: that shows whose it is, what differs (for the event) and who did it.
//! - It is changed by server-side apply, forced, carrying the uid and the version that were read, so that neither a stranger
//!   who appears meanwhile nor another change is ever overwritten. Fields that we no longer want go, because the API server
//!   knows that they were ours; if `managedFields` were cleared after the read, it would not.
//! - The entry that a POST left in `managedFields` is turned into an apply entry before the first such change;
//!   otherwise it would go on owning what the apply drops.
//! - The first write of a process to a child is sent as a dry run before, to see whether it would change anything
//!   (`rehearse`): what admission rewrites for ever is in sync.

use std::{sync::Arc, sync::atomic::Ordering, time::Duration};

use kube::Resource;
use serde_json::{Value, json};
use tokio::time::Instant;
use workloads::{Child, Live};

use super::{Again, Context, Rollout, Root, lock};
use crate::{
    api::{Namespaced, Requests},
    conditions::{Problem, WAITING},
    error::{Class, Error},
    informer::resource_name,
    metrics::{ChildMetrics, Written},
    object::{Head, MANAGED_BY, Metadata, ObjectKey, Uid},
    owned::{Change, Share, Writers, fingerprint, holder, make_room, rehearsal, unclaimed, unite},
    store::{Known, Verified},
    wire::{Decoded, Seen, Undecodable},
};

mod difference;
mod edit;
mod rehearse;
mod target;
mod tell;

use difference::{Difference, carried_out};
pub(super) use target::Target;
use target::{agrees, defaulted};

/// The manager that gets all fields of an object without `managedFields` from the API server when it is applied for the first
/// time.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// A stranger without our labels is not watched, so his object is looked at again.
const LOOK_AGAIN: Duration = Duration::from_mins(1);
/// How often a write is started anew because the object changed under it.
const ATTEMPTS: usize = 4;
/// Whose object it is that has the name we want.
enum Claim {
    Ours,
    /// Left behind by an earlier object of ours: nobody owns it, and it carries our labels.
    Orphan,
    /// Belongs to something that is gone, and is being collected.
    Dying,
    Foreign,
}

impl<K: Root> Context<K> {
    /// Makes sure that `desired` exists and says what it says, as a child of this object. Fields of others stay; fields
    /// of ours that are no longer in `desired` go. Sends nothing when nothing has to change.
    ///
    /// Returns the child as it is now, or `None` when it was refused (a stranger has the name, an admission rule says
    /// no): that is recorded, [`apply_status`](Context::apply_status) tells people, and other children go on. `None` too for
    /// an optional kind that the cluster does not have, which is nothing to tell.
    ///
    /// # Panics
    ///
    /// When the controller does not declare the kind with `owns`.
    pub fn apply<C: Child + Namespaced>(&self, desired: C) -> impl Future<Output = Outcome<C>> + Send + use<'_, K, C> {
        // Turned into JSON here, so that the future need not carry a whole typed object.
        let requests = self.requests::<C>();
        let target = self.target(&requests, desired);
        async move { self.bring_in_line::<C>(&requests, &target?).await }
    }

    /// [`apply`](Context::apply)s `Some`; deletes this object's child of that kind for `None`.
    ///
    /// Also one that somebody has taken our label from. But if that happened while no operator ran, and the child was no more
    /// wanted when one came back, it is not known, and stays until its owner goes.
    ///
    /// # Panics
    ///
    /// When the controller does not declare the kind with `owns`.
    pub fn apply_or_delete<C: Child + Namespaced>(
        &self,
        desired: Option<C>,
    ) -> impl Future<Output = Outcome<C>> + Send + use<'_, K, C> {
        let applied = desired.map(|desired| self.apply(desired));
        async move {
            let Some(applied) = applied else {
                for key in self.store::<C>().owned(self.pass.id) {
                    if let Some(child) = self.store::<C>().get(&key) {
                        Box::pin(self.delete::<C>(&child)).await?;
                    }
                }
                Box::pin(self.delete_out_of_sight::<C>()).await?;
                return Ok(None);
            };
            applied.await
        }
    }

    /// Deletes a child, if it is still the one that was looked at. Its own dependents follow in the background.
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

    /// As [`delete`](Context::delete), without an event: for children that come and go by the hour. Returns whether it was
    /// still there.
    ///
    /// # Panics
    ///
    /// When the controller does not declare the kind with `owns`.
    pub async fn discard<C: Child + Namespaced>(&self, child: &Live<C::View>) -> Result<bool, Error> {
        let key = ObjectKey { namespace: child.namespace.clone(), name: child.name.clone() };
        self.remove::<C>(&self.requests::<C>(), &key, &child.uid).await
    }

    async fn bring_in_line<C: Child + Namespaced>(&self, requests: &Requests, target: &Target) -> Outcome<C> {
        if self.scope.role.optional.contains(&resource_name::<C>()) && !self.installed::<C>() {
            self.tell_missing(requests);
            return Ok(None);
        }
        // The writes are boxed: most reconciles write nothing and should not carry the space for it.
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
                    self.scope.outside.metrics.skipped_writes.with_label_values(&[requests.kind(), "apply"]).inc();
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
            // A conflict too: whether somebody else's object has the name now, the watch will say.
            Err(error) => return Err(error),
        };
        if deleted {
            self.scope.children.wrote(requests.kind(), Written::Deleted);
        }
        self.store::<C>().observe_gone(key, Uid::of(uid));
        self.scope.caches.out_of_sight.settle(&self.pass.key, requests.kind()); // the watch may have been faster
        self.pass.changed_children.store(true, Ordering::Relaxed);
        Ok(deleted)
    }

    async fn create_or_update<C: Child + Namespaced>(&self, requests: &Requests, target: &Target) -> Outcome<C> {
        match self.post::<C>(requests, target).await {
            // Somebody was faster: a stranger, an orphan, or our own request whose answer was lost.
            Err(error) if error.class() == Class::AlreadyExists => self.update::<C>(requests, target).await,
            other => other,
        }
    }

    async fn post<C: Child + Namespaced>(&self, requests: &Requests, target: &Target) -> Outcome<C> {
        let (owner, kind, name) = (&self.pass.key, requests.kind(), &target.key.name);
        if self.scope.recent.contains(owner, kind, name) && !self.is_there().await? {
            return Ok(None); // the next child would be collected like the last one
        }
        let answer = requests.create(&target.key, &target.body(requests)).await?;
        self.scope.recent.created(owner, kind, name);
        self.scope.children.wrote(requests.kind(), Written::Created);
        let live = self.observe::<C>(requests, target, &answer)?;
        let text = format!("Created {} \"{}\"", requests.kind(), target.key.name);
        self.tell(requests, &target.key, &live.uid, "Created", text);
        if ChildMetrics::rolls_out(requests.kind()) {
            let first = Rollout { since: Instant::now(), replicas: None };
            lock(&self.scope.rollouts).insert(self.pass.key.clone(), first);
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
                // Changed, replaced or created between our read and our write: look again.
                Err(error) if matches!(error.class(), Class::Conflict | Class::AlreadyExists) => last = Err(error),
                other => return other,
            }
        }
        last
    }

    /// Brings the object that was just read in line. `has_room` once what excludes ours was taken out, or tried to.
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
                let kind = &self.scope.names.kind;
                let message = format!("Resource \"{}\" already exists and is not managed by {kind}", target.key.name);
                self.refuse(Problem::new("ResourceConflict", message), Again::After(LOOK_AGAIN));
                return Ok(None);
            }
        };
        if let Some(what) = fixed.filter(|_| C::REPLACEABLE) {
            self.remove::<C>(requests, &target.key, &metadata.uid).await?;
            let answer = requests.create(&target.key, &target.body(requests)).await?;
            self.scope.children.wrote(requests.kind(), Written::Created);
            let live = self.observe::<C>(requests, target, &answer)?;
            let text = format!("Recreated {} \"{}\" to change its {what}", requests.kind(), target.key.name);
            self.tell(requests, &target.key, &live.uid, "Recreated", text);
            return Ok(Some(live));
        }

        let difference = Difference::of::<C>(&live, &metadata, requests.manager(), target);
        if difference.is_none() && !adopted {
            return self.observe::<C>(requests, target, text).map(Some); // the same, only written in another way
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
        if !has_room && let Some(operations) = make_room(&live, &metadata.uid, &self.pass.uid, &difference.changes) {
            let answer = requests.edit(&target.key, &operations).await?;
            self.scope.children.wrote(requests.kind(), Written::Updated);
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
        self.scope.children.wrote(requests.kind(), Written::Updated);
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

    /// Takes the API server's answer into the cache, and remembers that it is what we want.
    fn observe<C: Child + Namespaced>(
        &self,
        requests: &Requests,
        target: &Target,
        answer: &str,
    ) -> Result<Arc<Live<C::View>>, Error> {
        let broken = |source| Error::Decode { request: requests.describe("read", &target.key), source };
        let decoded = Decoded::read::<Seen<C>>(answer).map_err(broken)?;
        let store = self.store::<C>();
        self.informer::<C>().observe(&decoded);
        self.scope.caches.out_of_sight.settle(&self.pass.key, requests.kind());
        store.verify(&target.key, decoded.facts.uid, target.verified(decoded.facts.fingerprint.hash));
        self.pass.changed_children.store(true, Ordering::Relaxed);
        let problem = |Undecodable { error, .. }| {
            Error::Other(format!("{} \"{}\" does not decode: {error}", requests.kind(), target.key.name).into())
        };
        decoded.item.map_err(problem)
    }

    fn claim(&self, metadata: &Metadata<'_>, differs_for_good: bool) -> Claim {
        match metadata.controller() {
            Some(owner) if owner.uid == self.pass.uid.as_str() => Claim::Ours,
            Some(owner) if metadata.deletion_timestamp.is_some() && *owner.name == *self.pass.key.name => Claim::Dying,
            Some(_) => Claim::Foreign,
            None => {
                let labels = &metadata.labels;
                let ours = self.scope.role.adopts
                    && labels.name.as_deref() == Some(&*self.scope.names.app)
                    && labels.instance.as_deref() == Some(&*self.pass.key.name)
                    && labels.managed_by.as_deref() == Some(&self.scope.names.managed_by);
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
    /// A process that has not seen the child in sync cannot tell a field that was removed from one that its own new
    /// version wants first. So it accuses only whom `managedFields` name.
    fn is_drift(
        &self,
        requests: &Requests,
        target: &Target,
        metadata: &Metadata<'_>,
        changes: &[Change],
        verified: Option<Verified>,
    ) -> bool {
        // Below a field that we want no more, others may hold parts of their own.
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
        let (reason, again) = match error.class() {
            Class::Rejected => ("ChildRejected", Again::Backoff),
            Class::Quota => ("QuotaExceeded", Again::Backoff),
            Class::Forbidden => ("Forbidden", Again::After(LOOK_AGAIN)),
            _ => return Err(error),
        };
        self.refuse(Problem::new(reason, error.chain()), again);
        Ok(None)
    }

    fn wait_for_collection(&self, requests: &Requests, key: &ObjectKey) {
        let message = format!("{} \"{}\" of an earlier object is being deleted", requests.kind(), key.name);
        self.refuse(Problem::new(WAITING, message), Again::After(Duration::from_secs(2)));
    }

    fn owns<V>(&self, known: &Known<Live<V>>) -> bool {
        known.owner.as_ref().is_some_and(|owner| owner.uid == self.pass.id)
    }

    pub(super) fn requests<C: Resource<DynamicType = ()>>(&self) -> Requests {
        let outside = &self.scope.outside;
        Requests::of::<C>(outside.client.clone(), &self.scope.names.manager, outside.leading.clone())
    }
}

/// The child as it is now, `None` when it was refused, or an error that is worth another try.
type Outcome<C> = Result<Option<Arc<Live<<C as workloads::Viewed>::View>>>, Error>;

/// What an entry of ours has to say where there is none any more, or too small a one, before the apply. `None` where there is a
/// whole one, and where the apply alone does.
///
/// If the apply found no entry at all, the API server would give all fields to [`BEFORE_FIRST_APPLY`], and what we drop later
/// would stay in the object. The same if it has done so for the apply of another client.
fn left_behind<C: Child>(live: &Value, manager: &str, target: &Target, metadata: &Metadata<'_>) -> Option<Value> {
    let label = format!("f:{MANAGED_BY}");
    let share = Share::of(manager, &metadata.managed_fields);
    // Our label is in each entry of ours, but for one that an edit has made after the others were cleared.
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

/// A merge patch that turns our create entry into an apply entry, or makes one that says what was `left` behind. It carries uid
/// and version: `managedFields` is a list that is replaced as a whole.
fn fold(live: &Value, manager: &str, api_version: &str, metadata: &Metadata<'_>, left: Option<Value>) -> Value {
    let mut entries = live.pointer("/metadata/managedFields").and_then(Value::as_array).cloned().unwrap_or_default();
    let ours = |entry: &Value| entry["manager"] == manager && entry.get("subresource").is_none();
    // Of two entries with one identity the API server would keep only one, so they are united first.
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
