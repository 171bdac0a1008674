//! The state of the server: objects, their versions and their history.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use serde_json::Value;

use crate::{admission::Mutation, kind::Kind, log::Entry};

/// The first resource version. It is not small, so that a small number in a test is always an old version.
const FIRST_VERSION: u64 = 1_000;

/// The state of the server.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) kinds: Vec<Arc<Kind>>,
    /// The objects, by resource, and then by namespace and name in the order of etcd.
    objects: BTreeMap<String, BTreeMap<String, Arc<Value>>>,
    pub(crate) version: u64,
    /// The version up to which the history is compacted.
    pub(crate) compacted: u64,
    history: Vec<Change>,
    /// The stored form of objects, by resource and key, where it differs from the read form. Reads add defaults for fields that a
    /// write removed.
    thin: BTreeMap<(String, String), Value>,
    pub(crate) log: Vec<Entry>,
    pub(crate) collecting: Collecting,
    pub(crate) mutations: Vec<Mutation>,
    numbers: u64,
    /// The number of restores.
    pub(crate) restored: u64,
    /// The client whose request the server is handling.
    pub(crate) writer: Arc<str>,
    pub(crate) now: Timestamp,
}

/// When the model collects garbage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Collecting {
    /// Only when the test calls [`Model::collect`](crate::Model::collect).
    #[default]
    WhenAsked,
    /// Within every write, before its answer.
    AtOnce,
}

/// A backup of the state.
#[derive(Debug, Clone)]
pub struct Snapshot {
    objects: BTreeMap<String, BTreeMap<String, Arc<Value>>>,
    version: u64,
}

impl Snapshot {
    /// The version of the cluster at the time of the backup.
    pub fn version(&self) -> u64 {
        self.version
    }
}

/// One change of one object.
#[derive(Debug, Clone)]
pub struct Change {
    /// The version that the change created.
    pub version: u64,
    /// The resource with its group: `deployments.apps`.
    pub resource: Arc<str>,
    /// `namespace/name`, or only the name.
    pub key: Arc<str>,
    /// The object before the change; `None` for a creation.
    pub before: Option<Arc<Value>>,
    /// The object after the change; `None` for a deletion.
    pub after: Option<Arc<Value>>,
    /// The client that made the change: its name, `garbage-collector`, or empty for the test itself.
    pub writer: Arc<str>,
}

impl State {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            kinds: crate::builtin::kinds().into_iter().map(Arc::new).collect(),
            objects: BTreeMap::new(),
            version: FIRST_VERSION,
            compacted: FIRST_VERSION,
            history: Vec::new(),
            thin: BTreeMap::new(),
            log: Vec::new(),
            collecting: Collecting::WhenAsked,
            mutations: Vec::new(),
            numbers: 0,
            restored: 0,
            writer: "".into(),
            now,
        }
    }

    pub(crate) fn kind(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Kind>> {
        let fits = |kind: &&Arc<Kind>| kind.group == group && kind.version == version && kind.plural == plural;
        self.kinds.iter().find(fits).cloned()
    }

    /// The kind with this `apiVersion` and name, as in an owner reference.
    pub(crate) fn kind_of(&self, api_version: &str, kind: &str) -> Option<Arc<Kind>> {
        self.kinds.iter().find(|it| it.kind == kind && it.api_version() == api_version).cloned()
    }

    /// A number that no earlier call returned.
    pub(crate) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// A new uid. It is the same in every run.
    pub(crate) fn uid(&mut self) -> String {
        format!("00000000-0000-4000-8000-{:012x}", self.number())
    }

    /// The current time, in the format of objects.
    pub(crate) fn time(&self) -> String {
        self.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    pub(crate) fn get(&self, resource: &str, key: &str) -> Option<Arc<Value>> {
        self.objects.get(resource)?.get(key).cloned()
    }

    /// The objects of a resource, in the order of lists.
    pub(crate) fn all(&self, resource: &str) -> impl Iterator<Item = (&str, &Arc<Value>)> {
        let objects = self.objects.get(resource);
        objects.into_iter().flatten().map(|(key, object)| (key.as_str(), object))
    }

    /// The objects of a resource at a version; `None` if that version is compacted.
    pub(crate) fn all_at(&self, resource: &str, version: u64) -> Option<BTreeMap<String, Arc<Value>>> {
        if version < self.compacted {
            return None;
        }
        let mut objects = self.objects.get(resource).cloned().unwrap_or_default();
        let since = self.history.iter().rev().take_while(|change| change.version > version);
        for change in since.filter(|change| *change.resource == *resource) {
            match &change.before {
                Some(before) => objects.insert(change.key.to_string(), before.clone()),
                None => objects.remove(&*change.key),
            };
        }
        Some(objects)
    }

    /// Stores an object under the next version.
    pub(crate) fn put(&mut self, resource: &str, key: &str, mut object: Value) -> Arc<Value> {
        self.version += 1;
        self.thin.remove(&(resource.to_owned(), key.to_owned()));
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        let after = Arc::new(object);
        let before = self.objects.entry(resource.to_owned()).or_default().insert(key.to_owned(), after.clone());
        self.record(resource, key, before, Some(after.clone()));
        after
    }

    /// Stores an object whose read form may have more fields than its stored form.
    pub(crate) fn put_of(&mut self, kind: &Kind, key: &str, object: Value) -> Arc<Value> {
        let mut read = object.clone();
        kind.read_stored(&mut read);
        let (is_thin, resource) = (read != object, kind.resource());
        let put = self.put(&resource, key, read);
        if is_thin {
            self.thin.insert((resource, key.to_owned()), object);
        }
        put
    }

    /// The stored form of an object, if it differs from the read form.
    pub(crate) fn thin(&self, resource: &str, key: &str) -> Option<&Value> {
        self.thin.get(&(resource.to_owned(), key.to_owned()))
    }

    /// Removes an object, and returns it with the version of the deletion.
    pub(crate) fn remove(&mut self, resource: &str, key: &str) -> Option<Value> {
        let before = self.objects.get_mut(resource)?.remove(key)?;
        self.version += 1;
        self.record(resource, key, Some(before.clone()), None);
        let mut gone = Arc::unwrap_or_clone(before);
        gone["metadata"]["resourceVersion"] = self.version.to_string().into();
        Some(gone)
    }

    fn record(&mut self, resource: &str, key: &str, before: Option<Arc<Value>>, after: Option<Arc<Value>>) {
        let (version, resource, key) = (self.version, resource.into(), key.into());
        self.history.push(Change { version, resource, key, before, after, writer: self.writer.clone() });
    }

    /// Returns the first change of a resource after a version.
    pub(crate) fn change_after(&self, resource: &str, version: u64) -> Option<&Change> {
        let start = self.history.partition_point(|change| change.version <= version);
        self.history[start..].iter().find(|change| *change.resource == *resource)
    }

    /// Returns all changes after a version.
    pub(crate) fn changes_after(&self, version: u64) -> &[Change] {
        &self.history[self.history.partition_point(|change| change.version <= version)..]
    }

    /// Compacts the history, as etcd does.
    pub(crate) fn compact(&mut self) {
        self.compacted = self.version; // keep the history for open watches
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot { objects: self.objects.clone(), version: self.version }
    }

    /// Restores a snapshot, including its version. Uids are still never used twice.
    pub(crate) fn restore(&mut self, snapshot: &Snapshot) {
        self.objects.clone_from(&snapshot.objects);
        self.version = snapshot.version;
        self.compacted = snapshot.version;
        self.history.clear();
        self.thin.clear();
        self.restored += 1;
    }

    pub(crate) fn resources(&self) -> impl Iterator<Item = &str> {
        self.objects.keys().map(String::as_str)
    }
}

/// `namespace/name`, or only the name if there is no namespace.
pub(crate) fn key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

/// The storage key of an object.
pub(crate) fn key_of(object: &Value) -> String {
    let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default();
    key(text("namespace"), text("name"))
}
