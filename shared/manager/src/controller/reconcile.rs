//! What an operator writes: a function that reconciles one object, and its result.

use std::{future::Future, sync::Arc, time::Duration};

use crate::{
    context::{Context, Shared},
    error::Error,
    status::Primary,
};

/// When to reconcile again after a successful reconcile. A change of the object or of a child requeues it earlier, except after
/// [`Action::NotBefore`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Nothing more to do until something changes.
    Done,
    /// Requeue after this time. For a time of day use [`Context::requeue_at`].
    After(Duration),
    /// Requeue after this time, and not before, whatever changes: a system outside of the cluster has named the time.
    NotBefore(Duration),
    /// Requeue with the object's exponential back-off, which begins with this wait. For a system outside of the cluster that
    /// failed, after the reconcile has reported it. An `Err` would also count as an error of the reconcile.
    Retry(Duration),
}

/// A plain async function that reconciles: `async fn(Arc<K>, Context<K>) -> Result<Action, Error>`.
///
/// The runtime implements it for every such function; do not implement it by hand.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a reconciler of `{K}`",
    label = "expected `async fn(Arc<{K}>, Context<{K}>) -> Result<Action, Error>`",
    note = "after `.config(…)` the Context is `Context<{K}, {S}>`; the Error is `manager::Error`; everything held across an await must be `Send`"
)]
pub trait Reconcile<K: Primary, S = ()>: Send + Sync + 'static {
    /// Calls the function.
    fn call(&self, object: Arc<K>, context: Context<K, S>) -> impl Future<Output = Result<Action, Error>> + Send;
}

impl<K, S, F, R> Reconcile<K, S> for F
where
    K: Primary,
    S: Shared,
    F: Fn(Arc<K>, Context<K, S>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Action, Error>> + Send,
{
    fn call(&self, object: Arc<K>, context: Context<K, S>) -> impl Future<Output = Result<Action, Error>> + Send {
        self(object, context)
    }
}
