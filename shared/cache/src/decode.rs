//! Decodes the objects of lists and watches, one at a time, into what the cache keeps.
//!
//! An object that does not decode becomes a [`Decoded`] that holds an error, so that one bad object never stops the good ones.
//! A [`Representation`] chooses what the cache keeps: the JSON of a custom resource ([`Full`]), or a small view of a child or a
//! pod ([`Projected`]).

use std::{
    collections::BTreeMap,
    fmt::Debug,
    marker::PhantomData,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use api_errors::panic_message;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};
use workloads::{Live, Scoped, Viewed};
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    object::{Head, ManagedFields, Metadata, ObjectKey, Uid, field_manager, shared},
    owned::{Fingerprint, fingerprint},
};

/// The annotation in which `kubectl apply` keeps a copy of the whole object.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// What the cache keeps of a kind's objects.
pub trait Representation: Send + Sync + 'static {
    /// The kind of the objects.
    type Kind: Scoped + Debug;
    /// What reconcilers read of an object.
    type Item: Debug + Send + Sync + 'static;

    /// Decodes the item from the object's JSON.
    fn decode(json: &str, metadata: &Metadata<'_>, key: &ObjectKey) -> Result<Self::Item, serde_json::Error>;

    /// The part of the object's JSON that the cache keeps.
    fn text(json: &str, meta: &CachedMeta) -> Option<String>;

    /// What the cache keeps of an item and its text.
    fn content<T>(item: &Arc<Self::Item>, text: Option<T>) -> Content<Self::Item, T>;

    /// Decodes the item of a [`Content::Text`].
    fn revive(text: &str) -> Option<Self::Item>;

    /// Whether two items are the same for reconcilers, so that the change needs no reconcile.
    fn same(old: &Self::Item, new: &Self::Item) -> bool;

    /// The same question about the items of two [`Content::Text`]s. Their resource versions do not count.
    fn same_texts(_old: &str, _new: &str) -> bool {
        false
    }
}

/// What the cache keeps of an object.
#[derive(Debug)]
pub enum Content<I, T> {
    /// The text alone. Each read decodes the item from it.
    Text(T),
    /// The item, and the text of an object in which fields are ours.
    Item(Arc<I>, Option<T>),
}

/// A custom resource, kept as packed JSON without `managedFields`. The typed object takes twice the memory of the JSON, and
/// packed JSON a tenth.
#[derive(Debug)]
pub struct Full<K>(PhantomData<fn() -> K>);

/// A child or a pod, kept as its [`View`](Viewed::View).
#[derive(Debug)]
pub struct Projected<C>(PhantomData<fn() -> C>);

impl<K> Representation for Full<K>
where
    K: Scoped + Serialize + DeserializeOwned + Debug + Send + Sync + 'static,
{
    type Kind = K;
    type Item = K;

    fn decode(json: &str, _: &Metadata<'_>, _: &ObjectKey) -> Result<K, serde_json::Error> {
        let mut object: K = serde_json::from_str(json)?;
        object.meta_mut().managed_fields = None;
        Ok(object)
    }

    fn text(json: &str, _: &CachedMeta) -> Option<String> {
        Some(without_bookkeeping(json).unwrap_or_else(|_| json.to_owned()))
    }

    fn content<T>(item: &Arc<K>, text: Option<T>) -> Content<K, T> {
        text.map_or_else(|| Content::Item(item.clone(), None), Content::Text)
    }

    fn revive(text: &str) -> Option<K> {
        serde_json::from_str(text).ok()
    }

    fn same(_: &K, _: &K) -> bool {
        false
    }

    /// Compares what the type holds. A field that it lacks, such as one of the status that another controller writes, is read by no
    /// reconciler. If it is a field of the spec, the generation changes too.
    fn same_texts(old: &str, new: &str) -> bool {
        let held = |text: &str| {
            let mut object = serde_json::to_value(Self::revive(text)?).ok()?;
            object["metadata"].as_object_mut()?.remove("resourceVersion");
            Some(object)
        };
        let old = held(old);
        old.is_some() && old == held(new)
    }
}

impl<C: Viewed> Representation for Projected<C> {
    type Kind = C;
    type Item = Live<C::View>;

    fn decode(json: &str, metadata: &Metadata<'_>, key: &ObjectKey) -> Result<Live<C::View>, serde_json::Error> {
        Ok(Live {
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            uid: metadata.uid.as_ref().into(),
            generation: metadata.generation,
            created: metadata.creation_timestamp,
            deleting: metadata.deletion_timestamp,
            view: serde_json::from_str(json)?,
        })
    }

    /// Keeps the JSON only of objects in which fields are ours, so that changing them needs no read.
    fn text(json: &str, meta: &CachedMeta) -> Option<String> {
        (meta.fingerprint.hash != 0).then(|| without_status(json).unwrap_or_else(|_| json.to_owned()))
    }

    fn content<T>(item: &Arc<Live<C::View>>, text: Option<T>) -> Content<Live<C::View>, T> {
        Content::Item(item.clone(), text)
    }

    /// The cache keeps the item itself.
    fn revive(_: &str) -> Option<Live<C::View>> {
        None
    }

    fn same(old: &Live<C::View>, new: &Live<C::View>) -> bool {
        old.view == new.view && old.generation == new.generation && old.deleting == new.deleting
    }
}

/// One object as it came from the API server.
#[derive(Debug)]
pub struct Decoded<I> {
    /// Its namespace and name.
    pub key: ObjectKey,
    /// Its metadata, as the cache keeps it.
    pub meta: CachedMeta,
    /// The item, or why it does not decode.
    pub item: Result<Arc<I>, Undecodable>,
    /// The part of its JSON that the cache keeps.
    pub text: Option<String>,
}

/// An object that does not match the type of its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undecodable {
    /// The uid of the object.
    pub uid: Box<str>,
    /// The error, in words.
    pub error: Box<str>,
}

/// What the store knows about an object, in addition to the item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedMeta {
    /// Its uid.
    pub uid: Uid,
    /// Its resource version, see [`Metadata::version`].
    pub version: u64,
    /// The owner that has `controller: true`.
    pub owner: Option<Owner>,
    /// The primary that it belongs to according to its labels.
    pub app: Option<AppKey>,
    /// Which of its fields are ours.
    pub fingerprint: Fingerprint,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// Hash of the label `app.kubernetes.io/managed-by`; 0 without the label. Four bytes, which the alignment leaves free.
    managed_by: u32,
}

/// The owner that has `controller: true`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Its uid.
    pub uid: Uid,
    /// Its name.
    pub name: Arc<str>,
}

/// Which application an object belongs to: the two labels that make up every selector.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AppKey {
    /// Hash of `app.kubernetes.io/name`, the kind in lower case.
    name: u64,
    /// The object of that kind: our namespace and `app.kubernetes.io/instance`.
    pub instance: ObjectKey,
}

impl AppKey {
    /// The application `name` of the object `instance`.
    pub fn new(name: &str, instance: ObjectKey) -> Self {
        Self { name: xxh3_64(name.as_bytes()), instance }
    }

    /// Whether the application has that name.
    pub fn is_of(&self, name: &str) -> bool {
        self.name == xxh3_64(name.as_bytes())
    }
}

impl<I> Decoded<I> {
    /// Decodes one object.
    ///
    /// # Errors
    ///
    /// Not even the name is readable. If only the item does not decode, it holds the error.
    pub fn read<R: Representation<Item = I>>(json: &str) -> Result<Self, serde_json::Error> {
        let metadata = serde_json::from_str::<Head<'_>>(json)?.metadata;
        let key = ObjectKey { namespace: shared(&metadata.namespace), name: name(&metadata) };
        // Decoding may run an operator's own code, which may panic.
        let decoded = catch_unwind(AssertUnwindSafe(|| R::decode(json, &metadata, &key)));
        let item = decoded
            .map_err(|panic| format!("panic: {}", panic_message(&*panic)))
            .and_then(|decoded| decoded.map(Arc::new).map_err(|error| error.to_string()))
            .map_err(|error| Undecodable { uid: metadata.uid.as_ref().into(), error: error.into() });
        let meta = CachedMeta::of(&metadata, &key, json);
        let text = item.as_ref().ok().and_then(|_| R::text(json, &meta));
        Ok(Self { key, meta, item, text })
    }
}

/// The object's name. Primaries and children mostly have the same name, so it is interned; a pod's name is unique and is not.
fn name(metadata: &Metadata<'_>) -> Arc<str> {
    match &metadata.labels.instance {
        Some(instance) if *instance != metadata.name => Arc::from(&*metadata.name),
        _ => shared(&metadata.name),
    }
}

type Members<'a> = BTreeMap<&'a str, &'a RawValue>;

/// The object without `managedFields` and without the copy of itself that `kubectl apply` leaves in an annotation.
fn without_bookkeeping(json: &str) -> Result<String, serde_json::Error> {
    let mut object: Members<'_> = serde_json::from_str(json)?;
    let Some(metadata) = object.get("metadata") else { return Ok(json.to_owned()) };
    let mut metadata: Members<'_> = serde_json::from_str(metadata.get())?;
    metadata.remove("managedFields");
    let mut annotations: Members<'_> =
        metadata.get("annotations").map_or(Ok(Members::new()), |raw| serde_json::from_str(raw.get()))?;
    let others;
    if annotations.remove(LAST_APPLIED).is_some() {
        others = to_raw_value(&annotations)?;
        metadata.insert("annotations", &others);
    }
    let metadata = to_raw_value(&metadata)?;
    object.insert("metadata", &metadata);
    serde_json::to_string(&object)
}

/// The object without its status and the `managedFields` entries of subresources. Writers need neither, and both differ from
/// object to object, which would make the text pack badly.
fn without_status(json: &str) -> Result<String, serde_json::Error> {
    let mut object: Members<'_> = serde_json::from_str(json)?;
    object.remove("status");
    let Some(metadata) = object.get("metadata") else { return Ok(json.to_owned()) };
    let mut metadata: Members<'_> = serde_json::from_str(metadata.get())?;
    let mut entries: Vec<&RawValue> =
        metadata.get("managedFields").map_or(Ok(Vec::new()), |raw| serde_json::from_str(raw.get()))?;
    entries.retain(|entry| {
        serde_json::from_str::<ManagedFields<'_>>(entry.get()).is_ok_and(|entry| entry.subresource.is_empty())
    });
    let entries = to_raw_value(&entries)?;
    metadata.insert("managedFields", &entries);
    let metadata = to_raw_value(&metadata)?;
    object.insert("metadata", &metadata);
    serde_json::to_string(&object)
}

impl CachedMeta {
    fn of(metadata: &Metadata<'_>, key: &ObjectKey, json: &str) -> Self {
        let name = |text: &str| if *text == *key.name { key.name.clone() } else { shared(text) };
        let app = match (&metadata.labels.name, &metadata.labels.instance) {
            (Some(app), Some(instance)) => {
                Some(AppKey::new(app, ObjectKey { namespace: key.namespace.clone(), name: name(instance) }))
            }
            _ => None,
        };
        Self {
            uid: Uid::of(&metadata.uid),
            version: metadata.version(),
            owner: metadata.controller().map(|owner| Owner { uid: Uid::of(&owner.uid), name: name(&owner.name) }),
            app,
            fingerprint: own_fingerprint(metadata, json),
            is_deleting: metadata.deletion_timestamp.is_some(),
            managed_by: metadata.labels.managed_by.as_deref().map_or(0, hash_of_label),
        }
    }

    /// Whether the label `app.kubernetes.io/managed-by` has this value.
    pub(crate) fn is_managed_by(&self, operator: &str) -> bool {
        self.managed_by == hash_of_label(operator)
    }
}

fn hash_of_label(value: &str) -> u32 {
    u32::try_from(xxh3_64(value.as_bytes()) >> 32).unwrap_or_default()
}

/// The fingerprint for the operator that the object's label names. Empty for objects without that label or without an entry of
/// that operator.
fn own_fingerprint(metadata: &Metadata<'_>, json: &str) -> Fingerprint {
    let Some(managed_by) = &metadata.labels.managed_by else { return Fingerprint::default() };
    let manager = field_manager(managed_by);
    if !metadata.managed_fields.iter().any(|entry| entry.manager == manager.as_str()) {
        return Fingerprint::default();
    }
    match serde_json::from_str::<Value>(json) {
        Ok(live) => fingerprint(&live, &manager, &metadata.managed_fields),
        Err(_) => Fingerprint::default(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A representation whose decoding panics for each object.
    struct Panicking;

    impl Representation for Panicking {
        type Kind = k8s_openapi::api::core::v1::Pod;
        type Item = ();

        fn decode(_: &str, _: &Metadata<'_>, _: &ObjectKey) -> Result<(), serde_json::Error> {
            panic!("an operator's defect")
        }

        fn revive(_: &str) -> Option<()> {
            None
        }

        fn text(_: &str, _: &CachedMeta) -> Option<String> {
            None
        }

        fn content<T>(item: &Arc<()>, text: Option<T>) -> Content<(), T> {
            Content::Item(item.clone(), text)
        }

        fn same((): &(), (): &()) -> bool {
            true
        }
    }

    #[test]
    fn decoding_panic_makes_the_object_undecodable() {
        let object = json!({"metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1"}});
        let decoded = Decoded::read::<Panicking>(&object.to_string()).expect("its name is read");
        let undecodable = decoded.item.expect_err("it panicked");
        assert_eq!((&*undecodable.uid, &*undecodable.error), ("u", "panic: an operator's defect"));
    }

    #[test]
    fn primary_is_cached_without_bookkeeping_metadata() {
        let metadata = json!({"name": "a", "managedFields": [{"manager": "kubectl"}], "annotations": {LAST_APPLIED: "{}", "b": "c"}});
        let object = json!({"metadata": metadata, "spec": {"size": 3}, "status": {"replicas": 3}});
        let kept: Value = serde_json::from_str(&without_bookkeeping(&object.to_string()).expect("JSON")).expect("JSON");
        let metadata = json!({"name": "a", "annotations": {"b": "c"}});
        assert_eq!(kept, json!({"metadata": metadata, "spec": {"size": 3}, "status": {"replicas": 3}}));
    }

    #[test]
    fn child_is_cached_without_status_and_status_managers() {
        let entries = json!([{"manager": "ours"}, {"manager": "kubelet", "subresource": "status"}]);
        let object =
            json!({"metadata": {"name": "a", "managedFields": entries}, "spec": {}, "status": {"replicas": 3}});
        let kept: Value = serde_json::from_str(&without_status(&object.to_string()).expect("JSON")).expect("JSON");
        assert_eq!(kept, json!({"metadata": {"name": "a", "managedFields": [{"manager": "ours"}]}, "spec": {}}));
    }
}
