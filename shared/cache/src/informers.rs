//! The registry of informers: one for each kind and representation, shared by all controllers of the process.

use std::{
    any::{Any, TypeId},
    collections::{BTreeSet, HashMap},
    future::Future,
    pin::Pin,
    sync::Arc,
};

use fastrand::Rng;
use kube::Client;
use tokio_util::sync::CancellationToken;
use workloads::Viewed;

use crate::{
    decode::{Full, Projected, Representation},
    informer::{Informer, InformerHealth, RestoreAlarm},
    object::MANAGED_BY,
};

/// The registry of informers. Getting one does no I/O; [`Informers::start`] runs them all.
#[derive(Default)]
pub struct Informers {
    alarm: Arc<RestoreAlarm>,
    entries: HashMap<TypeId, Entry>,
}

struct Entry {
    informer: Arc<dyn Any + Send + Sync>,
    health: Arc<InformerHealth>,
    run: RunInformer,
    /// The operators whose children are watched, for the label selector.
    managed_by: BTreeSet<String>,
    /// Whether all objects are watched, without a selector.
    is_whole: bool,
}

/// The task of one informer. It runs until the token that stops it.
pub type InformerTask = Pin<Box<dyn Future<Output = ()> + Send>>;
type RunInformer = Box<dyn FnOnce(Client, Rng, Vec<String>, Option<String>, CancellationToken) -> InformerTask + Send>;

impl Informers {
    /// The informer of a custom resource, whose objects are kept whole.
    pub fn full<K>(&mut self) -> Arc<Informer<Full<K>>>
    where
        Full<K>: Representation<Kind = K>,
    {
        let (informer, entry) = self.entry::<Full<K>>();
        entry.is_whole = true;
        informer
    }

    /// The informer of a kind whose objects are kept as views. Adds the children of `app`'s operator to its label selector.
    pub fn projected<C: Viewed>(&mut self, app: &str) -> Arc<Informer<Projected<C>>> {
        let (informer, entry) = self.entry::<Projected<C>>();
        entry.managed_by.insert(format!("{app}-operator"));
        informer
    }

    /// The informer of a kind whose objects are kept as views, all of them, whatever their labels.
    pub fn projected_whole<C: Viewed>(&mut self) -> Arc<Informer<Projected<C>>> {
        let (informer, entry) = self.entry::<Projected<C>>();
        entry.is_whole = true;
        informer
    }

    /// Builds the task of every informer. Returns their states, and the tasks with their names, sorted by resource.
    pub fn start(
        self,
        client: &Client,
        mut random: Rng,
        namespaces: &[String],
        stop: &CancellationToken,
    ) -> (Vec<Arc<InformerHealth>>, Vec<(String, InformerTask)>) {
        let mut entries: Vec<Entry> = self.entries.into_values().collect();
        entries.sort_by(|a, b| a.health.resource.cmp(&b.health.resource));
        entries
            .into_iter()
            .map(|entry| {
                let operators: Vec<String> = entry.managed_by.into_iter().collect();
                let selector = (!entry.is_whole).then(|| format!("{MANAGED_BY} in ({})", operators.join(",")));
                let task = (entry.run)(client.clone(), random.fork(), namespaces.to_vec(), selector, stop.clone());
                (entry.health.clone(), (format!("informer of {}", entry.health.kind), task))
            })
            .unzip()
    }

    fn entry<R: Representation>(&mut self) -> (Arc<Informer<R>>, &mut Entry) {
        let alarm = self.alarm.clone();
        let entry = self.entries.entry(TypeId::of::<R>()).or_insert_with(|| {
            let informer = Arc::new(Informer::<R>::new(alarm));
            let running = informer.clone();
            Entry {
                health: informer.health.clone(),
                informer,
                run: Box::new(move |client, random, namespaces, selector, stop| {
                    Box::pin(running.run(client, random, namespaces, selector, stop))
                }),
                managed_by: BTreeSet::new(),
                is_whole: false,
            }
        });
        let informer = entry.informer.clone().downcast().unwrap_or_else(|_| unreachable!("keyed by type"));
        (informer, entry)
    }
}
