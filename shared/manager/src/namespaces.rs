//! The namespaces that the process watches: all, those that a flag names, or those that a label selector selects at run time.

use std::{collections::BTreeSet, sync::Arc};

use cache::{Informer, Informers, Namespaces, Projected, SelectedNamespaces};
use k8s_openapi::api::{core::v1::Namespace, rbac::v1::PolicyRule};
use serde::Deserialize;
use tokio::sync::Notify;
use workloads::{As, ViewOf};

use crate::{assembly::Task, settings::Settings};

/// A namespace of which only the name matters.
#[derive(Debug, PartialEq, Deserialize)]
struct NameOnly {}

impl ViewOf<Namespace> for NameOnly {}

type NamedNamespace = As<Namespace, NameOnly>;

/// Returns the permissions that `--watch-namespace-selector` needs in the whole cluster.
pub fn namespace_selector_permissions() -> Vec<PolicyRule> {
    vec![PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec!["namespaces".to_owned()]),
        verbs: vec!["list".to_owned(), "watch".to_owned()],
        ..PolicyRule::default()
    }]
}

/// Returns the namespaces that the flags choose, an empty registry of informers for them, and the task that selects them.
pub(crate) fn choose(settings: &Settings) -> (Informers, Option<Task>) {
    let Some(selector) = &settings.watch_namespace_selector else {
        let named = &settings.watch_namespaces;
        let namespaces = if named.is_empty() { Namespaces::All } else { Namespaces::Named(named.clone()) };
        return (Informers::new(namespaces), None);
    };
    tracing::info!(
        selector,
        "Watching the whole cluster, and keeping the objects of namespaces with these labels; the permissions of the \
         operators are needed in the whole cluster, because RBAC knows no labels"
    );
    let selected = Arc::new(SelectedNamespaces::default());
    let mut informers = Informers::new(Namespaces::Selected(selected.clone()));
    let namespaces = informers.selected::<NamedNamespace>(selector);
    let changed = Arc::new(Notify::new());
    let notifier = changed.clone();
    namespaces.subscribe(Box::new(move |_, _| notifier.notify_one()));
    (informers, Some(Box::pin(select(namespaces, changed, selected))))
}

/// Selects the namespaces that the informer holds, after its first list and after each change.
async fn select(
    namespaces: Arc<Informer<Projected<NamedNamespace>>>,
    changed: Arc<Notify>,
    selected: Arc<SelectedNamespaces>,
) {
    namespaces.list_for(0, "").await;
    loop {
        let names: BTreeSet<Arc<str>> = namespaces.store.keys().into_iter().map(|key| key.name).collect();
        let (added, removed) = selected.set(&names);
        if !added.is_empty() || !removed.is_empty() {
            tracing::info!(?added, ?removed, "The selected namespaces have changed");
        }
        changed.notified().await;
    }
}
