//! Calling whoever runs the plan.

use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
};

use fault_plan::Request;

/// A point of the plan at which the runner does something: kill the client, change an object.
#[derive(Debug, Clone)]
pub struct Signal {
    /// The name that the plan gives it.
    pub name: String,
    /// The request that waits meanwhile; for an event, the watch.
    pub request: Request,
}

type Handler = Arc<dyn Fn(Signal) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// Who is called; nobody at first.
#[derive(Default)]
pub(crate) struct Hook(Mutex<Option<Handler>>);

impl Hook {
    pub(crate) fn set<F>(&self, handler: impl Fn(Signal) -> F + Send + Sync + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let handler: Handler = Arc::new(move |signal| Box::pin(handler(signal)));
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(handler);
    }

    /// Calls and waits. The handler runs in a task of its own: when it kills the client, the request that it was called
    /// for ends, and the handler must not end with it.
    pub(crate) async fn call(&self, name: &str, request: &Request) {
        let handler = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(handler) = handler {
            let signal = Signal { name: name.to_owned(), request: request.clone() };
            // A handler that panics has told why; the request goes on.
            drop(tokio::spawn(handler(signal)).await);
        }
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}
