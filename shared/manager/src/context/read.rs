//! Reading: from the cache, which costs nothing, and live, for the few decisions that must not be made on a cache that
//! may lag behind.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Secret;
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use workloads::{Live, Viewed};

use super::{Again, Context, Root, lock};
use crate::{
    api::{Namespaced, Requests},
    conditions::Problem,
    error::{Class, Error},
    object::ObjectKey,
    status::Status,
    wire::{Decoded, Seen},
};

/// A Secret that somebody has to make is looked for this often.
const MISSING: Duration = Duration::from_secs(30);
/// Secrets are not watched, so that nobody needs the right to list them; a change is noticed within this time.
const PRESENT: Duration = Duration::from_mins(1);

impl<K: Root> Context<K> {
    /// The object of kind `C` with this name in the namespace of the reconciled object. From the cache, which holds
    /// children and pods of this operator only.
    ///
    /// # Panics
    ///
    /// When the controller does not declare the kind with `owns` or `watches_labelled`.
    pub fn get<C: Viewed + Namespaced>(&self, name: &str) -> Option<Arc<Live<C::View>>> {
        self.store::<C>().get(&self.neighbour(name))
    }

    /// The objects of kind `C` whose controller is the reconciled object, sorted by name. From the cache.
    ///
    /// # Panics
    ///
    /// When the controller does not declare the kind with `owns`.
    pub fn owned<C: Viewed + Namespaced>(&self) -> Vec<Arc<Live<C::View>>> {
        let store = self.store::<C>();
        store.owned(self.pass.id).iter().filter_map(|key| store.get(key)).collect()
    }

    /// Whether the cluster has kind `C`, as far as the cache knows: what is declared with `owns_if_installed` may be missing,
    /// and then [`apply`](Context::apply) does nothing. The object is reconciled again when that changes to the better.
    ///
    /// # Panics
    ///
    /// When the controller does not declare the kind.
    pub fn installed<C: Viewed + Namespaced>(&self) -> bool {
        self.informer::<C>().health.is_there()
    }

    /// The objects of the reconciled kind, in the same namespace, that have `value` in the index, sorted by name. From the
    /// cache, this reconcile's own writes included.
    ///
    /// # Panics
    ///
    /// When the controller has no such [`index`](crate::ControllerBuilder::index).
    pub fn indexed(&self, index: &str, value: &str) -> Vec<Arc<K>> {
        self.scope.primary.store.indexed(index, &self.pass.key.namespace, value)
    }

    /// Reads one object from the API server, past the cache: for the rare decision that must not rest on a cache that
    /// lags behind. `None` when it is not there.
    ///
    /// # Panics
    ///
    /// When the controller does not declare the kind with `owns`; of a kind that is only watched, nothing may be read by name.
    pub async fn live<C: Viewed + Namespaced>(&self, name: &str) -> Result<Option<Arc<Live<C::View>>>, Error> {
        let (requests, key) = (self.requests::<C>(), self.neighbour(name));
        match requests.get(&key).await {
            Ok(text) => self.learn::<C>(&requests, &key, &text).map(Some),
            Err(error) if error.class() == Class::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The reconciled object with the memory in its status up to date: read from the API server if somebody else may have
    /// written it last, a former leader or nobody known. Once this leader has written it, the cache is enough. `None` when
    /// the object is gone, or is another one of that name by now.
    pub async fn recall(&self) -> Result<Option<Arc<K>>, Error> {
        let object = self.object();
        let present = self.scope.outside.leading.fence();
        let written = object.status().and_then(Status::fence);
        if present.as_ref() == written {
            return Ok(Some(object));
        }
        let Some(text) = self.read_again().await? else { return Ok(None) };
        let object = self.take_read(&text)?;
        if let Some(written) = object.as_ref().and_then(|object| object.status()?.fence()) {
            self.scope.outside.leading.witness(written);
        }
        Ok(object)
    }

    /// Whether the API server still has the reconciled object, and not another one of that name.
    pub(super) async fn is_there(&self) -> Result<bool, Error> {
        let Some(text) = self.read_again().await? else { return Ok(false) };
        Ok(self.take_seen(&text)?.is_some())
    }

    /// What the API server has under the name of the reconciled object.
    pub(super) async fn read_again(&self) -> Result<Option<String>, Error> {
        match self.scope.requests.get(&self.pass.key).await {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.class() == Class::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns when the cache knows of every child of kind `C` that this object can have: for the decision that must not
    /// miss one. A former leader may have made children that the watch has not delivered, so all of the kind are listed
    /// once more after this process has become leader, one list for all objects. From then on only this process makes any,
    /// and its own are in the cache at once; but for those whose [`create`](Context::create) was not answered, which are
    /// read by their names.
    ///
    /// That a child is there is sure then; what the cache says of it may still be a moment old, see
    /// [`live`](Context::live).
    ///
    /// # Panics
    ///
    /// When the controller does not declare the kind with `owns`.
    pub async fn catch_up<C: Viewed + Namespaced>(&self) -> Result<(), Error> {
        self.informer::<C>().list_for(self.scope.outside.leading.term()).await;
        let kind = self.requests::<C>().kind().to_owned();
        let unanswered = lock(&self.scope.unanswered).get(&self.pass.key).cloned().unwrap_or_default();
        for (_, name) in unanswered.iter().filter(|(other, _)| *other == kind) {
            self.live::<C>(name).await?;
            self.answered(&kind, name);
        }
        Ok(())
    }

    /// Reads the named `keys` of a Secret in the namespace of the reconciled object, from the API server. Secrets are
    /// never listed, watched or kept; the object is reconciled again within a minute, so a change is noticed.
    ///
    /// `None` when the Secret or one of the keys is missing: that is recorded, [`apply_status`](Context::apply_status)
    /// tells people, and the reconciler goes on without.
    ///
    /// # Panics
    ///
    /// When the controller does not declare `.reads::<Secret>()`.
    pub async fn secret(&self, name: &str, keys: &[&str]) -> Result<Option<SecretValues>, Error> {
        assert!(
            self.scope.role.reads.contains("secrets"),
            "{}'s controller reads a Secret but does not declare it: add .reads::<Secret>()",
            self.scope.names.kind
        );
        let (requests, key) = (self.requests::<Secret>(), self.neighbour(name));
        let text = match requests.get(&key).await {
            Ok(text) => text,
            Err(error) if error.class() == Class::NotFound => {
                self.refuse(
                    Problem::new("SecretNotFound", format!("Secret \"{name}\" not found")),
                    Again::After(MISSING),
                );
                return Ok(None);
            }
            Err(error) if error.class() == Class::Forbidden => {
                self.refuse(Problem::new("Forbidden", error.chain()), Again::After(PRESENT));
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let broken = |source| Error::Decode { request: requests.describe("read", &key), source };
        let mut data = serde_json::from_str::<Secret>(&text).map_err(broken)?.data.unwrap_or_default();
        let mut values = BTreeMap::new();
        for wanted in keys {
            let Some(value) = data.remove(*wanted) else {
                let message = format!("Secret \"{name}\" has no key \"{wanted}\"");
                self.refuse(Problem::new("SecretNotFound", message), Again::After(MISSING));
                return Ok(None);
            };
            values.insert((*wanted).to_owned(), value.0);
        }
        self.wake(Instant::now() + PRESENT);
        Ok(Some(SecretValues { values }))
    }

    /// The key of a neighbour in the same namespace: there are no references into other namespaces.
    pub(super) fn neighbour(&self, name: &str) -> ObjectKey {
        ObjectKey { namespace: self.pass.key.namespace.clone(), name: name.into() }
    }

    /// Takes an answer of the API server into the cache.
    pub(super) fn learn<C: Viewed + Namespaced>(
        &self,
        requests: &Requests,
        key: &ObjectKey,
        answer: &str,
    ) -> Result<Arc<Live<C::View>>, Error> {
        let broken = |source| Error::Decode { request: requests.describe("read", key), source };
        let decoded = Decoded::read::<Seen<C>>(answer).map_err(broken)?;
        self.informer::<C>().observe(&decoded);
        decoded.item.map_err(|undecodable| {
            Error::Other(format!("{} \"{}\" does not decode: {}", requests.kind(), key.name, undecodable.error).into())
        })
    }
}

/// The values of a Secret that were asked for. Its `Debug` form shows only the names.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretValues {
    values: BTreeMap<String, Vec<u8>>,
}

impl SecretValues {
    /// The bytes under `key`, which was among the keys that were asked for.
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        self.values.get(key).map(Vec::as_slice)
    }

    /// The SHA-256 of all values that were asked for, with their names, in hexadecimal: as an annotation of a pod
    /// template it restarts the pods when the Secret changes.
    pub fn sha256(&self) -> String {
        let mut hash = Sha256::new();
        for (key, value) in &self.values {
            for part in [key.as_bytes(), value] {
                hash.update(part.len().to_le_bytes());
                hash.update(part);
            }
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
        SecretValues { values }
    }

    #[test]
    fn a_secret_is_not_printed() {
        assert_eq!(format!("{:?}", values(&[("password", "hunter2")])), "{\"password\"}");
    }

    #[test]
    fn every_change_of_a_secret_shows() {
        let before = values(&[("a", "xy"), ("b", "z")]).sha256();
        assert_ne!(before, values(&[("a", "x"), ("b", "yz")]).sha256());
        assert_eq!(before, values(&[("b", "z"), ("a", "xy")]).sha256());
    }
}
