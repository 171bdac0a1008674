//! The registry of informers: one for each kind and representation, shared by all controllers of the process.

use std::{
    any::{Any, TypeId},
    collections::BTreeSet,
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
    namespaces::Namespaces,
    selection::Selection,
};

/// The registry of informers. Getting one does no I/O; [`Informers::start`] runs them all.
#[derive(Default)]
pub struct Informers {
    namespaces: Namespaces,
    alarm: Arc<RestoreAlarm>,
    /// In the order in which they were declared. A hash map would start two informers of one resource in any order.
    entries: Vec<(TypeId, Entry)>,
}

struct Entry {
    informer: Arc<dyn Any + Send + Sync>,
    health: Arc<InformerHealth>,
    run: RunInformer,
    /// The operators whose children are watched, for the label selector.
    managed_by: BTreeSet<String>,
    /// Whether all objects are watched, without a selector.
    is_whole: bool,
    /// The label selector of the objects that are watched, if a caller sets one.
    selector: Option<String>,
}

/// The task of one informer. It runs until the token that stops it.
pub type InformerTask = Pin<Box<dyn Future<Output = ()> + Send>>;
type RunInformer = Box<dyn FnOnce(Client, Rng, Selection, CancellationToken) -> InformerTask + Send>;

impl Informers {
    /// A registry of informers that hold objects of these namespaces.
    pub fn new(namespaces: Namespaces) -> Self {
        Self { namespaces, ..Self::default() }
    }

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

    /// The informer of those objects of a kind that a label selector of the user selects.
    pub fn selected<C: Viewed>(&mut self, selector: &str) -> Arc<Informer<Projected<C>>> {
        let (informer, entry) = self.entry::<Projected<C>>();
        entry.selector = Some(selector.to_owned());
        informer
    }

    /// Builds the task of every informer. Returns their states, and the tasks with their names, sorted by resource.
    pub fn start(
        self,
        client: &Client,
        mut random: Rng,
        stop: &CancellationToken,
    ) -> (Vec<Arc<InformerHealth>>, Vec<(String, InformerTask)>) {
        let mut entries: Vec<Entry> = self.entries.into_iter().map(|(_, entry)| entry).collect();
        entries.sort_by(|a, b| a.health.resource.cmp(&b.health.resource));
        entries
            .into_iter()
            .map(|entry| {
                let selection = match entry.selector {
                    Some(selector) => Selection::Labels(selector),
                    None if entry.is_whole => Selection::All,
                    None => Selection::ManagedBy(entry.managed_by),
                };
                let task = (entry.run)(client.clone(), random.fork(), selection, stop.clone());
                (entry.health.clone(), (format!("informer of {}", entry.health.kind), task))
            })
            .unzip()
    }

    fn entry<R: Representation>(&mut self) -> (Arc<Informer<R>>, &mut Entry) {
        let type_ = TypeId::of::<R>();
        let position = self.entries.iter().position(|(known, _)| *known == type_).unwrap_or_else(|| {
            let informer = Arc::new(Informer::<R>::new(self.namespaces.clone(), self.alarm.clone()));
            let running = informer.clone();
            let entry = Entry {
                health: informer.health.clone(),
                informer,
                run: Box::new(move |client, random, selection, stop| {
                    Box::pin(running.run(client, random, selection, stop))
                }),
                managed_by: BTreeSet::new(),
                is_whole: false,
                selector: None,
            };
            self.entries.push((type_, entry));
            self.entries.len() - 1
        });
        let entry = &mut self.entries[position].1;
        let informer = entry.informer.clone().downcast().unwrap_or_else(|_| unreachable!("keyed by type"));
        (informer, entry)
    }
}
