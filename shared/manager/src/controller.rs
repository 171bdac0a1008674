//! Declares a controller. What it watches is in `controller::watches`, its workers are in `controller::worker`.
//!
//! ```ignore
//! manager.add(
//!     Controller::of::<Memcached>()
//!         .owns::<Deployment>()
//!         .watches_labelled::<Pod>()
//!         .reconcile(controller::reconcile),
//! );
//! ```
//!
//! The declaration does no I/O. The runtime derives the rest from it: which informers run, which changes wake an object, and
//! which permissions the operator needs.

use std::{hash::Hash, pin::Pin, sync::Arc};

use cache::{Full, Informer, Informers, ObjectKey, Origin, Values, resource_name};
use futures::Stream;
use jiff::Timestamp;
use kube::Resource;
use workqueue::{Priority, WorkQueue};

use crate::{
    conditions::Report,
    context::{Caches, Capabilities, Context, Environment, Memory, Names, Shared},
    lookup::Lookup,
    metrics::ChildMetrics,
    rbac::Permission,
    status::Primary,
    wake::{Cause, flow_of, wake},
};

mod deletion;
mod hooks;
mod queue_metrics;
mod reconcile;
mod related;
mod running;
mod wake_filter;
mod watches;
mod worker;

use deletion::Cleanup;
pub use deletion::{Deletion, Finalize};
pub use hooks::Objects;
pub(crate) use hooks::Observe;
use hooks::{Demoted, Gone, Scraped};
use queue_metrics::QueueMetrics;
pub use reconcile::{Action, Reconcile};
use related::is_own_write;
pub(crate) use running::{Running, Start};
use running::{Waiting, WiredController};
use wake_filter::{Part, WakeFilter};
pub(crate) use watches::index_of_watched;

/// Where a declaration begins: [`Controller::of`].
#[derive(Debug, Clone, Copy)]
pub struct Controller;

impl Controller {
    /// A controller of all objects of kind `K`.
    pub fn of<K: Primary>() -> ControllerBuilder<K> {
        let rules =
            vec![Permission::on::<K>(&["get", "list", "watch"]), Permission::on::<K>(&["patch"]).subresource("status")];
        let options = ControllerOptions {
            needs: vec![resource_name::<K>()],
            capabilities: Capabilities::default(),
            cleanup: None,
            gone: None,
            scraped: None,
            demoted: None,
            observe: None,
            wakes_on: None,
            workers: None,
        };
        ControllerBuilder {
            sources: Vec::new(),
            children: Vec::new(),
            rules,
            indices: Vec::new(),
            streams: Vec::new(),
            options,
            config: (),
        }
    }
}

/// A controller that is being declared. Does nothing until [`reconcile`](ControllerBuilder::reconcile) completes it and
/// [`Manager::add`](crate::Manager::add) takes it.
#[must_use = "a controller does nothing until it is given a reconciler and added to the manager"]
pub struct ControllerBuilder<K: Primary, S = ()> {
    sources: Vec<Source<K>>,
    /// Kinds of children.
    children: Vec<String>,
    rules: Vec<Permission>,
    indices: Vec<(&'static str, Values<K>)>,
    streams: Vec<KeyStream>,
    options: ControllerOptions<K, S>,
    config: S,
}

/// Makes a stream of the keys of objects to reconcile.
type KeyStream = Box<dyn FnOnce() -> Pin<Box<dyn Stream<Item = ObjectKey> + Send>> + Send>;

/// The parts of a declaration that the running controller needs.
struct ControllerOptions<K: Primary, S> {
    /// The resources whose caches must be filled before the workers start.
    needs: Vec<String>,
    capabilities: Capabilities,
    cleanup: Option<Cleanup<K, S>>,
    gone: Option<Gone>,
    scraped: Option<Scraped<K>>,
    demoted: Option<Demoted>,
    observe: Option<Observe<K, S>>,
    /// The part of an object whose changes wake it; `None` for the whole object.
    wakes_on: Option<Part<K>>,
    /// The number of workers, if the controller sets its own.
    workers: Option<usize>,
}

/// Adds one cache to a controller, and subscribes the controller's queue to it.
type Source<K> = Box<dyn FnOnce(&mut Wiring<'_, K>)>;

/// The parts of a controller that its sources connect.
struct Wiring<'a, K: Primary> {
    informers: &'a mut Informers,
    primary: &'a Arc<Informer<Full<K>>>,
    queue: &'a WorkQueue<ObjectKey>,
    /// The value of `app.kubernetes.io/name`.
    app: &'a Arc<str>,
    memory: &'a Arc<Memory>,
    caches: &'a mut Caches,
}

impl<K: Primary> ControllerBuilder<K> {
    /// Sets the value that reconciles read with [`Context::config`], such as the operator's configuration or a client. Several
    /// values are the fields of a struct. The reconciler then takes a `Context<K, S>`, and so does a function of
    /// [`on_delete`](Self::on_delete) that is declared later.
    pub fn config<S: Shared>(self, config: S) -> ControllerBuilder<K, S> {
        let Self { sources, children, rules, indices, streams, options, config: () } = self;
        let ControllerOptions { needs, capabilities, cleanup, gone, scraped, demoted, observe, wakes_on, workers } =
            options;
        let cleanup = cleanup.map(|cleanup| -> Cleanup<K, S> {
            Box::new(move |object, context| cleanup(object, context.without_config()))
        });
        let observe = observe.map(|observe| -> Observe<K, S> {
            Box::new(move |object, context| observe(object, &context.clone().without_config()))
        });
        let options =
            ControllerOptions { needs, capabilities, cleanup, gone, scraped, demoted, observe, wakes_on, workers };
        ControllerBuilder { sources, children, rules, indices, streams, options, config }
    }
}

impl<K: Primary, S: Shared> ControllerBuilder<K, S> {
    /// Wakes the objects whose keys a stream delivers: for changes outside of the cluster, such as messages of a queue or calls of
    /// a webhook. `stream` makes the stream when the process starts. Keys of objects that do not exist do no harm.
    ///
    /// The stream runs on a standby too, so the first reconciles of a new leader know what it delivered. If the stream ends, the
    /// process ends with an error: from then on it would miss changes.
    pub fn wakes_from<T>(mut self, stream: impl FnOnce() -> T + Send + 'static) -> Self
    where
        T: Stream<Item = ObjectKey> + Send + 'static,
    {
        self.streams.push(Box::new(move || Box::pin(stream())));
        self
    }

    /// Declares that reconciles read objects of kind `C` by name ([`Context::secret`]): without a cache, without a watch, and
    /// without the permission to list them.
    ///
    /// This costs at least one request for each object and minute. A change wakes no object: it is noticed at the next read, up to a
    /// minute late. A watch would need the permission to watch. RBAC limits it only to names that are known when the permissions are
    /// written, and without this limit a watch delivers all objects, as a list does.
    pub fn reads<C: Resource<DynamicType = ()>>(mut self) -> Self {
        self.rules.push(Permission::on::<C>(&["get"]));
        self.options.capabilities.reads.insert(C::plural(&()).into_owned());
        self
    }

    /// Declares a permission of [`Context::client`].
    pub fn permits(mut self, permission: Permission) -> Self {
        self.rules.push(permission);
        self
    }

    /// Declares that reconciles write annotations of the object itself ([`Context::annotate`]).
    pub fn annotates(mut self) -> Self {
        self.rules.push(Permission::on::<K>(&["patch"]));
        self.options.capabilities.annotates = true;
        self
    }

    /// Never adopts the children that an earlier object of the same name left behind. They count as a name conflict.
    pub fn never_adopts(mut self) -> Self {
        self.options.capabilities.adopts = false;
        self
    }

    /// Runs `cleanup` when an object that carries `finalizer` is being deleted, even while it is paused. This is for what
    /// lives outside of the cluster; owned children do not need it.
    ///
    /// The runtime never adds the finalizer by itself. The reconciler adds it with [`Context::ensure_finalizer`], before it
    /// does anything outside of the cluster. The runtime removes it when `cleanup` returns [`Deletion::Finished`].
    pub fn on_delete<F: Finalize<K, S>>(mut self, finalizer: &'static str, cleanup: F) -> Self {
        self.options.capabilities.finalizer = Some(finalizer);
        let cleanup = Arc::new(cleanup);
        self.options.cleanup = Some(Box::new(move |object, context| {
            let cleanup = cleanup.clone();
            Box::pin(async move { cleanup.call(object, context).await })
        }));
        self.annotates()
    }

    /// Calls `gone` when an object is gone, for example to drop its metrics; on a standby at the next resync. May miss an object that
    /// is created again at once. Also called for each key without an object that labels of a child or the function of
    /// [`watches`](Self::watches) name, even while the list that would show the object fails.
    pub fn on_gone(mut self, gone: impl Fn(&ObjectKey) + Send + Sync + 'static) -> Self {
        self.options.gone = Some(Box::new(gone));
        self
    }

    /// Calls `scraped` with all cached objects and the time of day before each scrape, so that an operator can count them by their
    /// content and age.
    pub fn on_scrape(mut self, scraped: impl Fn(Objects<'_, K>, Timestamp) + Send + Sync + 'static) -> Self {
        self.options.scraped = Some(Box::new(scraped));
        self
    }

    /// Calls `observe` for an object that is paused or invalid, whose children stay as they are. So its status still shows, for
    /// instance, how many pods are ready. All fields of the reported status are written, so those that serve as memory must keep their
    /// stored values. Of the reported health only `Available` counts, because only a reconcile finds all problems.
    pub fn observes(
        mut self,
        observe: impl Fn(&K, &Context<K, S>) -> Report<K::Status> + Send + Sync + 'static,
    ) -> Self {
        self.options.observe = Some(Box::new(observe));
        self
    }

    /// Calls `demoted` when this process has lost its leadership and its reconciles have ended, so that an operator can forget what
    /// they have learnt: another process leads now, and gauges about the work of reconciles must not keep their last values.
    pub fn on_demotion(mut self, demoted: impl Fn() + Send + Sync + 'static) -> Self {
        self.options.demoted = Some(Box::new(demoted));
        self
    }

    /// Declares that only changes of a part of the object wake it. Changes of the uid, the generation, the finalizers, the annotations
    /// `GROUP/paused` and `GROUP/reconcile-requested-at`, and the deletion always do. controller-runtime calls such a filter a
    /// predicate.
    ///
    /// `part` must depend on the object alone. A change is compared with what the last reconcile acted on, so nothing is missed
    /// while a reconcile runs.
    pub fn wakes_on<P: Hash>(mut self, part: impl Fn(&K) -> P + Send + Sync + 'static) -> Self {
        self.options.wakes_on = Some(Box::new(move |object| wake_filter::hash(&part(object))));
        self
    }

    /// Sets the number of concurrent reconciles, unless `--max-concurrent-reconciles` names the kind. This is for reconciles
    /// that mostly wait for a service outside of the cluster.
    ///
    /// # Panics
    ///
    /// When the number is 0.
    pub fn workers(mut self, workers: usize) -> Self {
        assert!(workers > 0, "{}'s controller declares .workers(0): it needs at least one", K::kind(&()));
        self.options.workers = Some(workers);
        self
    }

    /// Indexes the objects by their content: [`Context::indexed`] returns the objects for which `values` returns a value.
    /// `values` may return none, one or many values. They must depend on the object alone.
    ///
    /// An object with one value takes about 75 bytes more, and each further value about 45, whatever its length.
    ///
    /// # Panics
    ///
    /// When the controller has an index of this name already.
    pub fn index(mut self, name: &'static str, values: impl Fn(&K) -> Vec<String> + Send + Sync + 'static) -> Self {
        assert!(
            self.indices.iter().all(|(other, _)| *other != name),
            "{}'s controller declares .index(\"{name}\", …) twice: one function has to return all values",
            K::kind(&())
        );
        self.indices.push((name, Box::new(values)));
        self
    }

    /// Lets `lookup` read the cache of the kind from outside of reconciles, for instance in a webhook.
    pub fn lookup(mut self, lookup: &Lookup<K>) -> Self {
        let lookup = lookup.clone();
        self.sources.push(Box::new(move |wiring| lookup.connect(wiring.primary)));
        self
    }

    /// Completes the controller with its reconciler.
    pub fn reconcile<F: Reconcile<K, S>>(self, reconciler: F) -> DeclaredController {
        let names = Names::of::<K>();
        DeclaredController {
            names: names.clone(),
            rules: self.rules.clone(),
            children: self.children.clone(),
            build: Box::new(move |environment, informers, children| {
                self.build(names, reconciler, environment, informers, children)
            }),
        }
    }

    fn build<F: Reconcile<K, S>>(
        mut self,
        names: Names,
        reconciler: F,
        environment: &Environment,
        informers: &mut Informers,
        children: ChildMetrics,
    ) -> Box<dyn Start> {
        let primary = informers.full::<K>();
        primary.health.require();
        for (name, values) in std::mem::take(&mut self.indices) {
            primary.store.index(name, values);
        }
        let config = workqueue::Config {
            metrics: Arc::new(QueueMetrics::of(&names.app, &environment.metrics)),
            seed: Some(environment.random.number()),
            ..workqueue::Config::default()
        };
        let queue = WorkQueue::with_flows(config, flow_of);
        let (mut caches, memory) = (Caches::default(), Arc::<Memory>::default());
        let filter = WakeFilter::new(self.options.wakes_on.take(), primary.store.clone(), memory.clone());
        let filter = Arc::new(filter);
        let (primary_queue, primary_filter, controller) = (queue.clone(), filter.clone(), memory.controller());
        let app = names.app.clone();
        primary.subscribe(Box::new(move |delta, origin| {
            if !is_own_write(delta, controller, &delta.key) && primary_filter.passes(&delta.key) {
                wake(&primary_queue, &app, delta.key.clone(), priority(origin), &Cause::Change(origin));
            }
        }));
        let mut wiring = Wiring {
            informers,
            primary: &primary,
            queue: &queue,
            app: &names.app,
            memory: &memory,
            caches: &mut caches,
        };
        for source in std::mem::take(&mut self.sources) {
            source(&mut wiring);
        }
        let streams = std::mem::take(&mut self.streams);
        Box::new(WiredController {
            names,
            streams,
            children,
            primary,
            queue,
            filter,
            memory,
            caches,
            options: self.options,
            config: Arc::new(self.config),
            reconciler,
        })
    }
}

/// A complete controller, ready for [`Manager::add`](crate::Manager::add).
#[must_use = "a controller does nothing until it is added to the manager"]
pub struct DeclaredController {
    pub(crate) names: Names,
    pub(crate) rules: Vec<Permission>,
    /// Kinds of children.
    pub(crate) children: Vec<String>,
    pub(crate) build: Build,
}

/// Creates the caches of a declared controller, and subscribes its queue to them.
type Build = Box<dyn FnOnce(&Environment, &mut Informers, ChildMetrics) -> Box<dyn Start>>;

/// Live changes overtake the listed objects that a start or a gap in the watch puts into the queue.
fn priority(origin: Origin) -> Priority {
    match origin {
        Origin::Live | Origin::Answer => Priority::LIVE,
        Origin::List => Priority::LOW,
    }
}
