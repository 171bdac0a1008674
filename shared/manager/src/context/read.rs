//! Reads from the cache, which sends no request, and from the API server, for the few decisions that must not rest on a
//! cache that may lag behind.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use api_errors::Class;
use cache::{Decoded, ObjectKey, Projected, Writer};
use k8s_openapi::api::core::v1::Secret;
use kube::{Resource, core::NamespaceResourceScope};
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use workloads::{Live, Viewed};

use super::{Again, Context, Primary, Shared};
use crate::{
    api::Requests,
    conditions::{Problem, ProblemKind},
    controller::index_of_watched,
    error::Error,
    status::Status,
};

/// How often to look for a missing Secret.
const MISSING: Duration = Duration::from_secs(30);
/// How often to read a Secret again. Secrets are not watched, so that the operator needs no right to list them.
const PRESENT: Duration = Duration::from_mins(1);

impl<K: Primary, S: Shared> Context<K, S> {
    /// Returns the object of kind `C` with this name, in the namespace of the reconciled object if that has one. From the cache, which
    /// holds only what the controller declares.
    ///
    /// # Panics
    ///
    /// When the controller does not declare the kind.
    pub fn get<C: Viewed + Resource<Scope = K::Scope>>(&self, name: &str) -> Option<Arc<Live<C::View>>> {
        self.store::<C>().get(&self.neighbour(name))
    }

    /// Returns the objects of kind `C` whose controller is the reconciled object, sorted by name. From the cache.
    ///
    /// # Panics
    ///
    /// When the controller does not declare the kind.
    pub fn owned<C: Viewed>(&self) -> Vec<Arc<Live<C::View>>> {
        let store = self.store::<C>();
        store.owned(self.reconciliation.id).iter().filter_map(|key| store.get(key)).collect()
    }

    /// Returns the objects of kind `C` for which the function of [`watches`](crate::ControllerBuilder::watches) names the reconciled
    /// object, in all namespaces, sorted by namespace and name. From the cache.
    ///
    /// # Panics
    ///
    /// When the controller does not declare the kind with `watches`.
    pub fn watched<C: Viewed>(&self) -> Vec<Arc<Live<C::View>>> {
        let (index, key) = (index_of_watched::<K, C>(), self.reconciliation.key.to_string());
        assert!(
            self.controller.capabilities.watched.contains(index),
            "{}'s controller does not declare which objects of kind {1} name its own: add .watches::<{1}>(…)",
            self.controller.names.kind,
            C::kind(&())
        );
        self.store::<C>().indexed_cluster(index, &key)
    }

    /// Whether kind `C` is installed and its objects in the namespace of the reconciled object can be listed, as far as the cache
    /// knows. A kind that is declared with `owns_if_installed` may be missing.
    pub(super) fn installed<C: Viewed>(&self) -> bool {
        self.informer::<C>().is_installed(&self.reconciliation.key.namespace)
    }

    /// Returns the objects of the reconciled kind, in the same namespace, that have `value` in the index, sorted by name. From
    /// the cache, which includes this reconcile's own writes.
    ///
    /// # Panics
    ///
    /// When the controller has no such [`index`](crate::ControllerBuilder::index).
    pub fn indexed(&self, index: &str, value: &str) -> Vec<Arc<K>> {
        self.controller.primary.store.indexed(index, &self.reconciliation.key.namespace, value)
    }

    /// Reads one object from the API server, past the cache: for the rare decision that must not rest on a cache that
    /// lags behind. Returns `None` if the object does not exist. The cache takes it in if the watch selects it.
    ///
    /// # Panics
    ///
    /// When the controller does not declare the kind. For one that is only watched, the derived permissions have no `get`.
    pub async fn get_uncached<C>(&self, name: &str) -> Result<Option<Arc<Live<C::View>>>, Error>
    where
        C: Viewed + Resource<Scope = K::Scope>,
    {
        self.read_child::<C>(&self.neighbour(name)).await
    }

    async fn read_child<C: Viewed>(&self, key: &ObjectKey) -> Result<Option<Arc<Live<C::View>>>, Error> {
        let requests = self.requests::<C>();
        match requests.get(key).await {
            Ok(text) => self.cache_read::<C>(&requests, key, &text).map(Some),
            Err(error) if error.class() == Class::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the reconciled object with the memory in its status up to date. Reads it from the API server unless this
    /// leadership wrote the status last: a former leader may have written a later one. Once this leader has written it, the
    /// cache is enough. Returns `None` if the object is gone, or if a different object has the name now.
    pub async fn refresh_status(&self) -> Result<Option<Arc<K>>, Error> {
        let object = self.object();
        let present = self.reconciliation.term.fence();
        let written = object.status().and_then(Status::fence);
        if present.as_ref() == written {
            return Ok(Some(object));
        }
        let Some(text) = self.read_primary().await? else { return Ok(None) };
        let object = self.cache_and_continue(&text)?;
        if let Some(written) = object.as_ref().and_then(|object| object.status()?.fence()) {
            self.reconciliation.term.witness(written);
        }
        Ok(object)
    }

    /// Whether the API server still has the reconciled object, and not a different one of that name.
    pub(super) async fn still_exists(&self) -> Result<bool, Error> {
        let Some(text) = self.read_primary().await? else { return Ok(false) };
        Ok(self.cache_and_keep(&text)?.is_some())
    }

    /// Reads the object that now has the name of the reconciled object. Returns `None` if there is none.
    pub(super) async fn read_primary(&self) -> Result<Option<String>, Error> {
        match self.reconciliation.requests.get(&self.reconciliation.key).await {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.class() == Class::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits until the cache knows every child of kind `C` that this object can have: for a decision that must not miss one.
    ///
    /// A former leader may have created children that the watch has not delivered yet. So after this process has become
    /// leader, the kind is listed once more, with one list for all objects. From then on only this process creates children,
    /// and its own are in the cache at once. If a [`create`](Context::create) was not answered, its child is read by name.
    ///
    /// Fails at once if the API server refuses the list. After it has returned `Ok`, the cache misses no child. What it holds of a child
    /// may still be a moment old, see [`get_uncached`](Context::get_uncached).
    ///
    /// # Panics
    ///
    /// When the controller does not declare the kind.
    pub async fn sync_cache<C: Viewed>(&self) -> Result<(), Error> {
        let (term, namespace) = (self.reconciliation.term.times_elected(), &self.reconciliation.key.namespace);
        let kind = self.requests::<C>().kind().to_owned();
        // A list that is refused for good must not hold this worker: other namespaces need it.
        let listed = self.informer::<C>().try_list_for(term, namespace).await;
        listed.map_err(|why| Error::Other(format!("the cache of {kind} is not complete: {why}").into()))?;
        let unanswered = self.controller.memory.read(&self.reconciliation.key, |it| it.unanswered.clone());
        for (_, key) in unanswered.iter().filter(|(other, _)| *other == kind) {
            self.read_child::<C>(key).await?;
            self.answered(&kind, key);
        }
        Ok(())
    }

    /// Reads these `keys` of a Secret in the namespace of the reconciled object, from the API server. Secrets are never
    /// listed, watched or cached; the object is reconciled again within a minute, which detects a change.
    ///
    /// Returns `None` if the Secret or one of the keys is missing, or if RBAC forbids to read it. The problem is recorded,
    /// [`apply_status`](Context::apply_status) reports it, and the reconciler goes on without the values.
    ///
    /// # Panics
    ///
    /// When the controller does not declare `.reads::<Secret>()`.
    pub async fn secret(&self, name: &str, keys: &[&str]) -> Result<Option<SecretValues>, Error>
    where
        K: Resource<Scope = NamespaceResourceScope>,
    {
        assert!(
            self.controller.capabilities.reads.contains("secrets"),
            "{}'s controller reads a Secret but does not declare it: add .reads::<Secret>()",
            self.controller.names.kind
        );
        let (requests, key) = (self.requests::<Secret>(), self.neighbour(name));
        let text = match requests.get(&key).await {
            Ok(text) => text,
            Err(error) if error.class() == Class::NotFound => {
                self.refuse(
                    Problem::new(ProblemKind::SECRET_NOT_FOUND, format!("Secret \"{name}\" not found")),
                    Again::After(MISSING),
                );
                return Ok(None);
            }
            Err(error) if error.class() == Class::Forbidden => {
                self.refuse(Problem::new(ProblemKind::FORBIDDEN, error.chain()), Again::After(PRESENT));
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let decode_error = requests.undecodable("read", &key);
        let secret = serde_json::from_str::<Secret>(&text).map_err(&decode_error)?;
        let (uid, mut data) = (secret.metadata.uid.unwrap_or_default(), secret.data.unwrap_or_default());
        let mut values = BTreeMap::new();
        for wanted in keys {
            let Some(value) = data.remove(*wanted) else {
                let message = format!("Secret \"{name}\" has no key \"{wanted}\"");
                self.refuse(Problem::new(ProblemKind::SECRET_NOT_FOUND, message), Again::After(MISSING));
                return Ok(None);
            };
            values.insert((*wanted).to_owned(), value.0);
        }
        self.wake(Instant::now() + PRESENT);
        Ok(Some(SecretValues { uid, values }))
    }

    /// This reconcile, as the one that writes.
    pub(super) fn writer(&self) -> Writer {
        Writer { controller: self.controller.memory.controller(), key: self.reconciliation.key.clone() }
    }

    /// Returns the key of an object in the same namespace, or of a cluster-scoped one if this one is.
    pub(super) fn neighbour(&self, name: &str) -> ObjectKey {
        ObjectKey { namespace: self.reconciliation.key.namespace.clone(), name: name.into() }
    }

    /// Takes the answer to a create into the cache.
    pub(super) fn cache_created<C: Viewed>(
        &self,
        requests: &Requests,
        key: &ObjectKey,
        answer: &str,
    ) -> Result<Arc<Live<C::View>>, Error> {
        Self::decode::<C>(requests, key, answer, |decoded| {
            self.informer::<C>().observe(decoded, self.writer());
        })
    }

    /// Takes the answer to a read into the cache if the watch delivers the changes of the object. So an object without our label, for
    /// instance, is read anew each time.
    pub(super) fn cache_read<C: Viewed>(
        &self,
        requests: &Requests,
        key: &ObjectKey,
        answer: &str,
    ) -> Result<Arc<Live<C::View>>, Error> {
        Self::decode::<C>(requests, key, answer, |decoded| {
            self.informer::<C>().observe_read(decoded, self.writer());
        })
    }

    fn decode<C: Viewed>(
        requests: &Requests,
        key: &ObjectKey,
        answer: &str,
        observe: impl FnOnce(&Decoded<Live<C::View>>),
    ) -> Result<Arc<Live<C::View>>, Error> {
        let decoded = Decoded::read::<Projected<C>>(answer).map_err(requests.undecodable("read", key))?;
        observe(&decoded);
        decoded.item.map_err(|undecodable| {
            Error::Other(format!("{} \"{}\" does not decode: {}", requests.kind(), key.name, undecodable.error).into())
        })
    }
}

/// The requested values of a Secret. Its `Debug` form shows only their names.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretValues {
    uid: String,
    values: BTreeMap<String, Vec<u8>>,
}

impl SecretValues {
    /// Returns the bytes of `key`, which must be one of the requested keys.
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        self.values.get(key).map(Vec::as_slice)
    }

    /// Values of the Secret with this uid, by their keys: for an operator that has written the Secret itself.
    pub fn new(uid: String, values: BTreeMap<String, Vec<u8>>) -> Self {
        Self { uid, values }
    }

    /// Returns the SHA-256 of all requested values and their names, and of the Secret's uid, in hexadecimal. As an annotation of
    /// a pod template it restarts the pods when the Secret changes.
    ///
    /// Who may read the pods, but not the Secret, does not know the uid, and so cannot find a weak password by guessing. A Secret
    /// that is made anew, also from a backup, has another uid: then the pods restart although the values are the same.
    pub fn sha256(&self) -> String {
        let mut hash = Sha256::new();
        let parts = self.values.iter().flat_map(|(key, value)| [key.as_bytes(), value.as_slice()]);
        for part in std::iter::once(self.uid.as_bytes()).chain(parts) {
            hash.update(part.len().to_le_bytes());
            hash.update(part);
        }
        format!("{:x}", hash.finalize())
    }
}

impl fmt::Debug for SecretValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.values.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(pairs: &[(&str, &str)]) -> SecretValues {
        let values = pairs.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect();
        SecretValues { uid: "u".to_owned(), values }
    }

    #[test]
    fn secret_values_are_not_printed() {
        assert_eq!(format!("{:?}", values(&[("password", "hunter2")])), "{\"password\"}");
    }

    #[test]
    fn secret_hash_changes_with_any_value() {
        let before = values(&[("a", "xy"), ("b", "z")]).sha256();
        assert_ne!(before, values(&[("a", "x"), ("b", "yz")]).sha256());
        assert_eq!(before, values(&[("b", "z"), ("a", "xy")]).sha256());
    }

    #[test]
    fn secret_hash_differs_for_another_secret_with_the_same_values() {
        let one = values(&[("password-file", "user:password\n")]);
        let other = SecretValues { uid: "v".to_owned(), ..one.clone() };
        assert_ne!(one.sha256(), other.sha256());
    }
}
