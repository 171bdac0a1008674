//! The handle with which a test controls the server.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::{
    admission::Mutation,
    definition,
    faults::Faults,
    kind::Kind,
    log::Entry,
    request::RequestInfo,
    service::ModelService,
    shared::Shared,
    state::{Change, Collecting, Snapshot, key_of},
};

/// A model of the Kubernetes API server. Clones share one server.
#[derive(Clone)]
pub struct Model {
    pub(crate) shared: Arc<Shared>,
}

impl Default for Model {
    fn default() -> Self {
        Self::new()
    }
}

impl Model {
    /// Creates a server with the built-in kinds and the namespaces `default` and `kube-system`. Its clock starts at the beginning
    /// of 2026 and advances with tokio's time.
    pub fn new() -> Self {
        let time = Timestamp::constant(1_767_225_600, 0);
        let model = Self { shared: Arc::new(Shared::new(time)) };
        for name in ["default", "kube-system"] {
            model.add_namespace(name);
        }
        model
    }

    /// Creates a client. Must be called within a tokio runtime.
    pub fn client(&self) -> Client {
        self.client_named("client")
    }

    /// Creates a client with a name. The name appears in the [log](Self::requests) and in [`RequestInfo`], so that a test can
    /// distinguish replicas. Must be called within a tokio runtime.
    pub fn client_named(&self, name: &str) -> Client {
        Client::new(self.service(name), "default")
    }

    /// Creates the client of a process that a test can kill. Once `alive` is false, its requests do not arrive, and it gets no
    /// answers. Must be called within a tokio runtime.
    pub fn client_while(&self, alive: Arc<AtomicBool>, name: &str) -> Client {
        let service = self.service(name);
        let gate = tower::service_fn(move |request| {
            let (alive, service) = (alive.clone(), service.clone());
            async move {
                if !alive.load(Ordering::Relaxed) {
                    return std::future::pending().await;
                }
                let answer = service.oneshot(request).await;
                if !alive.load(Ordering::Relaxed) {
                    return std::future::pending().await;
                }
                answer
            }
        });
        Client::new(gate, "default")
    }

    /// Handles a request that arrives only now, when its client has given it up. No fault disturbs it, and it is not logged.
    pub fn arrive_late(&self, request: &RequestInfo) {
        self.service(&request.client).handle_late(request);
    }

    /// Creates the service on which a client is built, for tests that add layers to it.
    pub fn service(&self, client: &str) -> ModelService {
        ModelService { shared: self.shared.clone(), client: client.into() }
    }

    /// Registers a kind.
    pub fn register(&self, kind: Kind) {
        self.shared.change(|state| {
            let same = |it: &Arc<Kind>| it.resource() == kind.resource() && it.version == kind.version;
            state.kinds.retain(|it| !same(it));
            state.kinds.push(Arc::new(kind));
        });
    }

    /// Installs a `CustomResourceDefinition`: serves its kinds, and stores the definition itself. It is established at once, unless it
    /// has conditions of its own.
    ///
    /// # Panics
    ///
    /// The definition lacks a required field.
    pub fn install(&self, definition: &impl serde::Serialize) {
        let mut definition = serde_json::to_value(definition).unwrap_or_default();
        match definition::kinds(&definition) {
            Ok(kinds) => kinds.into_iter().for_each(|kind| self.register(kind)),
            Err(error) => panic!("{error}"),
        }
        definition::establish(&mut definition, self.now());
        self.put(definition);
    }

    /// Removes a definition and all its objects.
    pub fn uninstall(&self, resource: &str) {
        self.shared.change(|state| {
            state.writer = "".into();
            let keys: Vec<String> = state.all(resource).map(|(key, _)| key.to_owned()).collect();
            for key in keys {
                state.remove(resource, &key);
            }
            state.kinds.retain(|kind| kind.resource() != resource);
            state.remove("customresourcedefinitions.apiextensions.k8s.io", resource);
        });
    }

    /// Creates a namespace, unless it exists.
    pub fn add_namespace(&self, name: &str) {
        if self.object("namespaces", "", name).is_none() {
            self.put(json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
                "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
            }));
        }
    }

    /// All objects of a resource (`deployments.apps`), sorted by namespace and name.
    pub fn objects(&self, resource: &str) -> Vec<Value> {
        self.shared.state().all(resource).map(|(_, object)| (**object).clone()).collect()
    }

    /// One stored object.
    pub fn object(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        self.shared.state().get(resource, &crate::state::key(namespace, name)).map(Arc::unwrap_or_clone)
    }

    /// Stores an object without validation, even one that no client could write. Fills in uid and versions.
    ///
    /// # Panics
    ///
    /// The kind of the object is not registered.
    pub fn put(&self, mut object: Value) -> Value {
        self.shared.change(|state| {
            state.writer = "".into();
            let text = |name: &str| object[name].as_str().unwrap_or_default().to_owned();
            let (version, kind) = (text("apiVersion"), text("kind"));
            let Some(known) = state.kind_of(&version, &kind) else { panic!("{kind} in {version} is not registered") };
            let (uid, time) = (state.uid(), state.time());
            crate::defaults::fill(&mut object["metadata"], "uid", uid);
            crate::defaults::fill(&mut object["metadata"], "creationTimestamp", time);
            Arc::unwrap_or_clone(state.put(&known.resource(), &key_of(&object), object))
        })
    }

    /// Removes an object at once, regardless of its finalizers.
    pub fn take(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        self.shared.change(|state| {
            state.writer = "".into();
            state.remove(resource, &crate::state::key(namespace, name))
        })
    }

    /// Makes a backup: all objects and the version of the cluster.
    pub fn snapshot(&self) -> Snapshot {
        self.shared.state().snapshot()
    }

    /// Restores a backup, as an administrator does while etcd and API server are stopped. Objects and versions become those of
    /// the snapshot, and open watches break. A watch at a later version sends nothing until the server passes that version. The
    /// test simulates the outage by [faults](Self::set_faults).
    pub fn restore(&self, snapshot: &Snapshot) {
        self.shared.change(|state| state.restore(snapshot));
    }

    /// All requests so far, in the order of their arrival.
    pub fn requests(&self) -> Vec<Entry> {
        self.shared.state().log.clone()
    }

    /// Clears the log of requests.
    pub fn clear_requests(&self) {
        self.shared.state().log.clear();
    }

    /// The version of the newest change.
    pub fn version(&self) -> u64 {
        self.shared.state().version
    }

    /// All changes after a version, in order. A restore clears earlier changes.
    pub fn changes_after(&self, version: u64) -> Vec<Change> {
        self.shared.state().changes_after(version).to_vec()
    }

    /// Compacts the history, as etcd does: a request for changes since an older version gets 410. Open watches continue.
    pub fn compact(&self) {
        self.shared.state().compact();
    }

    /// Sets the faults from now on.
    pub fn set_faults(&self, faults: impl Faults + 'static) {
        self.set_shared_faults(Arc::new(faults));
    }

    /// Same as [`Model::set_faults`], for faults to which the test keeps a reference.
    pub fn set_shared_faults(&self, faults: Arc<dyn Faults>) {
        self.shared.set_faults(faults);
    }

    /// Releases everything that faults have held or stalled until now.
    pub fn release(&self) {
        self.shared.releases.ring(self.shared.releases.number() + 1);
    }

    /// Adds a mutating admission policy for a resource (`deployments.apps`): `mutation` changes each created or updated object.
    pub fn mutate(&self, resource: &str, mutation: impl Fn(&mut Value) + Send + Sync + 'static) {
        self.shared.state().mutations.push(Mutation::new(resource, mutation));
    }

    /// Removes all policies that [`Model::mutate`] added.
    pub fn mutate_no_more(&self) {
        self.shared.state().mutations.clear();
    }

    /// The time of the server's clock.
    pub fn now(&self) -> Timestamp {
        self.shared.now()
    }

    /// Sets the server's clock, which then continues.
    pub fn set_time(&self, time: Timestamp) {
        self.shared.set_time(time);
    }

    /// Runs the garbage collector and the namespace controller until they have nothing left to do. Returns the number of their
    /// writes.
    pub fn collect(&self) -> usize {
        self.shared.change(|state| {
            state.writer = "garbage-collector".into();
            state.collect()
        })
    }

    /// Sets when garbage is collected.
    pub fn set_collecting(&self, when: Collecting) {
        self.shared.state().collecting = when;
    }
}
