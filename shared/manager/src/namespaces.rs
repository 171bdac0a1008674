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

/// Returns the permissions that `--watch-namespace-selector` needs in the whole cluster, beside those of the operators. `rbac` prints
/// them, and a test of the chart compares them with the rule that the chart grants.
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

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use clap::{Args, Command, FromArgMatches};
    use parking_lot::Mutex;
    use tracing::{Event, Subscriber, field::Field};
    use tracing_subscriber::{
        Layer,
        layer::{Context, SubscriberExt},
    };

    use super::*;

    /// The messages of a log, with their fields.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<String>>>);

    impl<S: Subscriber> Layer<S> for Log {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            event.record(&mut |_: &Field, value: &dyn Debug| self.0.lock().push(format!("{value:?}")));
        }
    }

    #[test]
    fn start_with_a_selector_says_that_the_permissions_are_needed_in_the_whole_cluster() {
        let says = |flags: &[&str]| {
            let command = Settings::augment_args(Command::new("run").no_binary_name(true));
            let matches = command.try_get_matches_from(flags).expect("they parse");
            let (settings, log) = (Settings::from_arg_matches(&matches).expect("they parse"), Log::default());
            let subscriber = tracing_subscriber::registry().with(log.clone());
            tracing::subscriber::with_default(subscriber, || drop(choose(&settings)));
            log.0.lock().join(", ")
        };
        let said = says(&["--watch-namespace-selector", "team=x"]);
        assert!(said.contains("permissions of the operators are needed in the whole cluster"), "{said}");
        assert!(said.contains("team=x"), "{said}");
        assert_eq!(says(&["--watch-namespaces", "one"]), "");
    }
}
