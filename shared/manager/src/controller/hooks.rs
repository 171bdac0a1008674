//! The types of the functions that the runtime calls beside an operator's reconciler.

use std::sync::Arc;

use cache::ObjectKey;
use jiff::Timestamp;
use kube::core::object::HasStatus;

use crate::{conditions::Report, context::Context};

/// The cached objects of a kind, in no order, one at a time.
pub type Objects<'a, K> = &'a mut dyn Iterator<Item = Arc<K>>;

/// A function that is called with all objects of the kind and the time of day, before a scrape.
pub(super) type Scraped<K> = Box<dyn Fn(Objects<'_, K>, Timestamp) + Send + Sync>;

/// A function that is called with the name of an object that is gone.
pub(super) type Gone = Box<dyn Fn(&ObjectKey) + Send + Sync>;

/// A function that is called when this process no longer leads.
pub(super) type Demoted = Box<dyn Fn() + Send + Sync>;

/// A function that reports on an object that is not reconciled at the moment.
pub(crate) type Observe<K, S> = Box<dyn Fn(&K, &Context<K, S>) -> Report<<K as HasStatus>::Status> + Send + Sync>;
