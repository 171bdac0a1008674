//! The namespaces that the operator watches: all, one that a flag names, or those with a label, which users set and remove.

use std::{collections::BTreeMap, time::Duration};

use fastrand::Rng;
use model_apiserver::Model;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::users::NAMESPACES;

/// How the operator chooses the namespaces that it watches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Watched {
    /// It watches all of them.
    #[default]
    All,
    /// A flag names one of the two.
    Named,
    /// A flag selects them by a label.
    Selected,
}

/// The label that selects a namespace.
const LABEL: (&str, &str) = ("watched", "yes");

impl Watched {
    /// Draws it: in most worlds, the operator watches all namespaces.
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        match rng.u8(..8) {
            0 => Self::Named,
            1 | 2 => Self::Selected,
            _ => Self::All,
        }
    }

    /// The flag of the operator, if it needs one.
    pub(crate) fn flag(self) -> Option<&'static str> {
        match self {
            Self::All => None,
            Self::Named => Some("--watch-namespaces=shop"),
            Self::Selected => Some("--watch-namespace-selector=watched=yes"),
        }
    }
}

/// Follows which namespaces the operator should watch, and labels them as users do.
pub(crate) struct WatchedNamespaces {
    pub(crate) watched: Watched,
    model: Model,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Until when users leave each namespace without the label.
    unlabelled_until: BTreeMap<&'static str, Duration>,
    /// Whether each namespace is watched, and since when. Empty if all are.
    since: BTreeMap<&'static str, (bool, Duration)>,
}

impl WatchedNamespaces {
    pub(crate) fn new(watched: Watched, model: &Model) -> Self {
        Self { watched, model: model.clone(), state: Mutex::default() }
    }

    /// Removes the label of a namespace until then. Returns whether it had the label.
    pub(crate) fn leave(&self, namespace: &str, until: Duration) -> bool {
        let Some(namespace) = NAMESPACES.into_iter().find(|known| *known == namespace) else { return false };
        if self.watched != Watched::Selected || self.has_label(namespace) != Some(true) {
            return false;
        }
        self.state.lock().unlabelled_until.insert(namespace, until);
        self.label(namespace, false);
        true
    }

    /// Lets users label what should be watched again. This may also be a namespace that is new, or that a restore has brought back.
    pub(crate) fn tick(&self, now: Duration) {
        if self.watched == Watched::All {
            return;
        }
        let mut state = self.state.lock();
        for namespace in NAMESPACES {
            let is_watched = if self.watched == Watched::Named {
                namespace == NAMESPACES[0]
            } else {
                let is_due = state.unlabelled_until.get(namespace).is_none_or(|until| now >= *until);
                if is_due && self.has_label(namespace) == Some(false) {
                    self.label(namespace, true);
                }
                self.has_label(namespace) == Some(true)
            };
            let since = state.since.entry(namespace).or_insert((is_watched, now));
            if since.0 != is_watched {
                *since = (is_watched, now);
            }
        }
    }

    /// Lets users label all namespaces again.
    pub(crate) fn heal(&self) {
        self.state.lock().unlabelled_until.clear();
    }

    /// Whether the operator should have watched this namespace for this time. The empty one stands for cluster-scoped objects.
    pub(crate) fn is_watched_for(&self, namespace: &str, now: Duration, time: Duration) -> bool {
        let since = self.state.lock().since.get(namespace).copied();
        since.is_none_or(|(is_watched, since)| is_watched && (since.is_zero() || now >= since + time))
    }

    /// Whether the operator should not have watched this namespace for longer than this time.
    pub(crate) fn is_unwatched_for(&self, namespace: &str, now: Duration, time: Duration) -> bool {
        let since = self.state.lock().since.get(namespace).copied();
        since.is_some_and(|(is_watched, since)| !is_watched && (since.is_zero() || now > since + time))
    }

    /// Whether the namespace has the label. `None` if it does not exist.
    fn has_label(&self, namespace: &str) -> Option<bool> {
        let stored = self.model.object("namespaces", "", namespace)?;
        Some(stored["metadata"]["labels"][LABEL.0] == LABEL.1)
    }

    fn label(&self, namespace: &str, is_watched: bool) {
        let Some(mut stored) = self.model.object("namespaces", "", namespace) else { return };
        let labels = &mut stored["metadata"]["labels"];
        if is_watched {
            labels[LABEL.0] = LABEL.1.into();
        } else if let Some(labels) = labels.as_object_mut() {
            labels.remove(LABEL.0);
        }
        self.model.put(stored);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn namespaces(watched: Watched) -> (Model, WatchedNamespaces) {
        let model = Model::new();
        for namespace in NAMESPACES {
            model.add_namespace(namespace);
        }
        let namespaces = WatchedNamespaces::new(watched, &model);
        namespaces.tick(at(0));
        (model, namespaces)
    }

    #[test]
    fn named_namespace_is_the_only_one_that_is_watched() {
        let (_, all) = namespaces(Watched::All);
        let (_, named) = namespaces(Watched::Named);
        assert_eq!(named.watched.flag(), Some(&*format!("--watch-namespaces={}", NAMESPACES[0])));
        let is_watched = |of: &WatchedNamespaces, namespace| of.is_watched_for(namespace, at(0), at(30));
        assert_eq!(["", "shop", "depot"].map(|it| is_watched(&all, it)), [true, true, true]);
        assert_eq!(["", "shop", "depot"].map(|it| is_watched(&named, it)), [true, true, false]);
        assert!(named.is_unwatched_for("depot", at(0), at(120)) && !named.is_unwatched_for("shop", at(0), at(120)));
        assert!(!named.leave("shop", at(9)), "it has no label");
    }

    #[test]
    fn label_decides_since_when_a_namespace_is_watched() {
        let (model, namespaces) = namespaces(Watched::Selected);
        assert!(namespaces.is_watched_for("shop", at(0), at(30)));
        assert!(namespaces.leave("shop", at(300)) && !namespaces.leave("shop", at(900)), "it has left already");
        namespaces.tick(at(10));
        assert!(
            !namespaces.is_unwatched_for("shop", at(130), at(120))
                && namespaces.is_unwatched_for("shop", at(131), at(120))
        );
        assert!(
            !namespaces.is_watched_for("shop", at(299), at(0)) && namespaces.is_watched_for("depot", at(299), at(30))
        );
        namespaces.tick(at(300));
        assert!(
            !namespaces.is_watched_for("shop", at(329), at(30)) && namespaces.is_watched_for("shop", at(330), at(30))
        );
        model.take("namespaces", "", "depot");
        model.add_namespace("depot");
        namespaces.tick(at(400));
        let labels = model.object("namespaces", "", "depot").expect("it is back")["metadata"]["labels"].clone();
        assert_eq!(labels[LABEL.0], LABEL.1, "a new namespace gets the label");
    }
}
