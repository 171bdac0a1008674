//! Which namespaces the caches hold.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::Arc,
};

use crate::observed::Observed;

/// The namespaces whose objects the caches hold. Objects of cluster-scoped kinds are in all caches.
#[derive(Debug, Clone, Default)]
pub enum Namespaces {
    /// All of them, in one watch for each kind.
    #[default]
    All,
    /// These, each in a watch of its own.
    Named(Vec<String>),
    /// Those that are selected at the moment. One watch for each kind reads the whole cluster, and the caches leave out the rest.
    Selected(Arc<SelectedNamespaces>),
}

/// Namespaces that are selected at run time.
#[derive(Debug, Default)]
pub struct SelectedNamespaces {
    selection: Observed<Selection>,
}

#[derive(Debug, Default)]
struct Selection {
    /// The names, each with the revision in which it was added.
    names: BTreeMap<Arc<str>, u64>,
    /// How often the names were set to others; 0 before the first time.
    revision: u64,
}

impl Namespaces {
    /// Whether the caches hold the objects of this namespace. An empty name stands for cluster-scoped objects.
    pub fn contain(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => namespace.is_empty() || names.iter().any(|name| name == namespace),
            Self::Selected(selected) => namespace.is_empty() || selected.selection.get().names.contains_key(namespace),
        }
    }

    /// Returns the revision in which this namespace was added. A list that began in an earlier one lacks its objects.
    pub fn joined_in(&self, namespace: &str) -> u64 {
        match self {
            Self::Selected(selected) => selected.selection.get().names.get(namespace).copied().unwrap_or_default(),
            _ => 0,
        }
    }

    /// Returns the scopes of the watches of a kind. An empty one means the whole cluster.
    pub(crate) fn scopes(&self, is_namespaced: bool) -> Vec<String> {
        match self {
            Self::Named(names) if is_namespaced => names.clone(),
            _ => vec![String::new()],
        }
    }

    /// Returns the positions of those [`scopes`](Self::scopes) that have the objects of this namespace. An empty name stands for
    /// all namespaces.
    pub(crate) fn scopes_of(&self, namespace: &str, is_namespaced: bool) -> Range<usize> {
        match self {
            Self::Named(names) if is_namespaced => {
                let known = names.iter().position(|name| name == namespace);
                let (start, end) = known.map_or((0, names.len()), |position| (position, position + 1));
                start..end
            }
            _ => 0..1,
        }
    }

    /// Returns how often the namespaces have changed.
    pub(crate) fn revision(&self) -> u64 {
        match self {
            Self::Selected(selected) => selected.selection.get().revision,
            _ => 0,
        }
    }

    /// Returns when the namespaces have another revision. Never returns where they do not change.
    pub(crate) async fn changed_after(&self, revision: u64) {
        match self {
            Self::Selected(selected) => selected.selection.until(|it| it.revision != revision).await,
            _ => std::future::pending().await,
        }
    }

    /// Returns when the namespaces are known.
    pub(crate) async fn known(&self) {
        if let Self::Selected(selected) = self {
            selected.selection.until(|it| it.revision > 0).await;
        }
    }
}

impl SelectedNamespaces {
    /// Sets the selected namespaces. The caches then list again. Returns the names that were added and those that were removed.
    pub fn set(&self, names: &BTreeSet<Arc<str>>) -> (Vec<Arc<str>>, Vec<Arc<str>>) {
        let mut difference = (Vec::new(), Vec::new());
        self.selection.modify(|selection| {
            let known = &selection.names;
            difference = (
                names.iter().filter(|name| !known.contains_key(*name)).cloned().collect(),
                known.keys().filter(|name| !names.contains(*name)).cloned().collect(),
            );
            let is_news = selection.revision == 0 || difference != (Vec::new(), Vec::new());
            if is_news {
                let revision = selection.revision + 1;
                let since = |name: &Arc<str>| known.get(name).copied().unwrap_or(revision);
                let names = names.iter().map(|name| (name.clone(), since(name))).collect();
                *selection = Selection { names, revision };
            }
            is_news
        });
        difference
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_namespace_has_its_scope() {
        let named = Namespaces::Named(vec!["a".to_owned(), "b".to_owned()]);
        let selected = Namespaces::Selected(Arc::default());
        for (namespaces, namespace, is_namespaced, scopes) in [
            (&named, "a", true, 0..1),
            (&named, "b", true, 1..2),
            (&named, "", true, 0..2),
            (&named, "", false, 0..1),
            (&named, "b", false, 0..1),
            (&Namespaces::All, "b", true, 0..1),
            (&Namespaces::All, "", true, 0..1),
            (&selected, "b", true, 0..1),
        ] {
            assert_eq!(namespaces.scopes_of(namespace, is_namespaced), scopes, "{namespaces:?} {namespace}");
            let all = namespaces.scopes(is_namespaced);
            assert!(scopes.end <= all.len(), "{namespaces:?} {namespace}");
        }
    }

    #[test]
    fn equal_selection_is_no_change() {
        let selected = Arc::new(SelectedNamespaces::default());
        let namespaces = Namespaces::Selected(selected.clone());
        let names = |names: &[&str]| names.iter().map(|name| Arc::from(*name)).collect::<BTreeSet<Arc<str>>>();
        selected.set(&names(&[]));
        assert_eq!(namespaces.revision(), 1, "no namespace is a selection, too");
        assert_eq!(selected.set(&names(&["a", "b"])), (vec!["a".into(), "b".into()], vec![]));
        assert_eq!(selected.set(&names(&["b", "a"])), (vec![], vec![]));
        assert_eq!(namespaces.revision(), 2);
        assert_eq!(selected.set(&names(&["b", "c"])), (vec!["c".into()], vec!["a".into()]));
        assert!(namespaces.contain("c") && namespaces.contain("") && !namespaces.contain("a"));
        assert_eq!(["a", "b", "c"].map(|name| namespaces.joined_in(name)), [0, 2, 3]);
    }
}
