//! What the server stores: objects, their versions and their history.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use serde_json::Value;

use crate::{admission::Mutation, gc::Collecting, kind::Kind, log::Entry};

/// Resource versions begin here, so that a small number in a test is always a past one.
const FIRST_VERSION: u64 = 1_000;

/// Everything in the server.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) kinds: Vec<Arc<Kind>>,
    /// By resource, and then by namespace and name as etcd sorts them.
    objects: BTreeMap<String, BTreeMap<String, Arc<Value>>>,
    pub(crate) version: u64,
    /// Changes up to this version are forgotten.
    pub(crate) compacted: u64,
    history: Vec<Change>,
    /// Objects as they are stored, by resource and key, where they are read with more: defaults of what was taken out.
    thin: BTreeMap<(String, String), Value>,
    pub(crate) log: Vec<Entry>,
    pub(crate) collecting: Collecting,
    pub(crate) mutations: Vec<Mutation>,
    numbers: u64,
    /// How often an earlier state was restored.
    pub(crate) restored: u64,
    /// Whose request is being handled.
    pub(crate) writer: Arc<str>,
    pub(crate) now: Timestamp,
}

/// What a backup holds.
#[derive(Debug, Clone)]
pub struct Snapshot {
    objects: BTreeMap<String, BTreeMap<String, Arc<Value>>>,
    version: u64,
}

impl Snapshot {
    /// The version of the cluster when it was taken.
    pub fn version(&self) -> u64 {
        self.version
    }
}

/// One change of one object.
#[derive(Debug, Clone)]
pub struct Change {
    /// The version that it made.
    pub version: u64,
    /// `deployments.apps`.
    pub resource: Arc<str>,
    /// `namespace/name`, or the name alone.
    pub key: Arc<str>,
    /// The object before; `None` when it was created.
    pub before: Option<Arc<Value>>,
    /// The object now; `None` when it is gone.
    pub after: Option<Arc<Value>>,
    /// The client whose write it was; `garbage-collector`, or empty for a write of the test.
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

    /// The kind that an owner reference names.
    pub(crate) fn kind_of(&self, api_version: &str, kind: &str) -> Option<Arc<Kind>> {
        self.kinds.iter().find(|it| it.kind == kind && it.api_version() == api_version).cloned()
    }

    /// A number that was not given before.
    pub(crate) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// A uid, the same in every run.
    pub(crate) fn uid(&mut self) -> String {
        format!("00000000-0000-4000-8000-{:012x}", self.number())
    }

    /// The time as objects carry it.
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

    /// The objects of a resource as they were at a version; `None` if that is forgotten.
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

    /// Stores an object, which gets the next version.
    pub(crate) fn put(&mut self, resource: &str, key: &str, mut object: Value) -> Arc<Value> {
        self.version += 1;
        self.thin.remove(&(resource.to_owned(), key.to_owned()));
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        let after = Arc::new(object);
        let before = self.objects.entry(resource.to_owned()).or_default().insert(key.to_owned(), after.clone());
        self.record(resource, key, before, Some(after.clone()));
        after
    }

    /// Stores an object of a kind that may be read with more than is stored.
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

    /// An object as it is stored, if that is not as it is read.
    pub(crate) fn thin(&self, resource: &str, key: &str) -> Option<&Value> {
        self.thin.get(&(resource.to_owned(), key.to_owned()))
    }

    /// Takes an object out; it is returned with the version at which it went.
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

    /// The first change of a resource after a version.
    pub(crate) fn change_after(&self, resource: &str, version: u64) -> Option<&Change> {
        let start = self.history.partition_point(|change| change.version <= version);
        self.history[start..].iter().find(|change| *change.resource == *resource)
    }

    /// All changes after a version.
    pub(crate) fn changes_after(&self, version: u64) -> &[Change] {
        &self.history[self.history.partition_point(|change| change.version <= version)..]
    }

    /// Forgets how things came to be as they are.
    pub(crate) fn compact(&mut self) {
        self.compacted = self.version; // the history stays for watches that are open
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot { objects: self.objects.clone(), version: self.version }
    }

    /// Goes back to a snapshot, its version included. Numbers that make uids are not given twice.
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

/// `namespace/name`, or the name alone.
pub(crate) fn key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

/// The key under which an object is stored.
pub(crate) fn key_of(object: &Value) -> String {
    let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default();
    key(text("namespace"), text("name"))
}
