//! Cleaning up outside of the cluster before an object may go.

use std::{future::Future, pin::Pin, sync::Arc};

use super::Action;
use crate::{
    context::{Context, Root},
    error::Error,
};

/// How far the clean-up of an object that is being deleted has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deletion {
    /// Nothing is left outside: the finalizer is removed and the object goes.
    Finished,
    /// Not yet: the object stays, and this says when to look again.
    Pending(Action),
}

/// A plain async function that cleans up: `async fn(Arc<K>, Context<K>) -> Result<Deletion, Error>`. It may be called
/// any number of times, so what it does must be safe to repeat.
///
/// Implemented for every such function; nobody implements it by hand.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not clean up after `{K}`",
    label = "expected `async fn(Arc<{K}>, Context<{K}>) -> Result<Deletion, Error>`",
    note = "the Error is `manager::Error`, and everything held across an await must be `Send`"
)]
pub trait Finalize<K: Root>: Send + Sync + 'static {
    /// Calls the function.
    fn call(&self, object: Arc<K>, context: Context<K>) -> impl Future<Output = Result<Deletion, Error>> + Send;
}

impl<K, F, R> Finalize<K> for F
where
    K: Root,
    F: Fn(Arc<K>, Context<K>) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Deletion, Error>> + Send,
{
    fn call(&self, object: Arc<K>, context: Context<K>) -> impl Future<Output = Result<Deletion, Error>> + Send {
        self(object, context)
    }
}

/// A [`Finalize`] whose type is forgotten: deletions are rare.
pub(super) type Cleanup<K> = Box<dyn Fn(Arc<K>, Context<K>) -> Cleaning + Send + Sync>;
pub(super) type Cleaning = Pin<Box<dyn Future<Output = Result<Deletion, Error>> + Send>>;
