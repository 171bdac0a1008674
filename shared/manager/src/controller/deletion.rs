//! The type of `on_delete` functions, which clean up outside of the cluster before an object may go.

use std::{future::Future, pin::Pin, sync::Arc};

use super::Action;
use crate::{
    context::{Context, Shared},
    error::Error,
    status::Primary,
};

/// The progress of the clean-up for an object that is being deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deletion {
    /// Nothing is left outside: the runtime removes the finalizer, and the object goes.
    Finished,
    /// The clean-up is not finished: the object stays. The action says when to reconcile again.
    Pending(Action),
}

/// A plain async function that cleans up: `async fn(Arc<K>, Context<K>) -> Result<Deletion, Error>`. The runtime may call it
/// any number of times, so it must be idempotent.
///
/// The runtime implements it for every such function; do not implement it by hand.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not clean up after `{K}`",
    label = "expected `async fn(Arc<{K}>, Context<{K}>) -> Result<Deletion, Error>`",
    note = "the Error is `manager::Error`, and everything held across an await must be `Send`"
)]
pub trait Finalize<K: Primary, S = ()>: Send + Sync + 'static {
    /// Calls the function.
    fn call(&self, object: Arc<K>, context: Context<K, S>) -> impl Future<Output = Result<Deletion, Error>> + Send;
}

impl<K, S, F, R> Finalize<K, S> for F
where
    K: Primary,
    S: Shared,
    F: Fn(Arc<K>, Context<K, S>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Deletion, Error>> + Send,
{
    fn call(&self, object: Arc<K>, context: Context<K, S>) -> impl Future<Output = Result<Deletion, Error>> + Send {
        self(object, context)
    }
}

/// A type-erased [`Finalize`]. Deletions are rare, so the box costs little.
pub(super) type Cleanup<K, S> = Box<dyn Fn(Arc<K>, Context<K, S>) -> Cleaning + Send + Sync>;
pub(super) type Cleaning = Pin<Box<dyn Future<Output = Result<Deletion, Error>> + Send>>;
