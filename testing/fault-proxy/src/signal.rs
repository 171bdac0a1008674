//! Signals: calls from the plan to the test that runs it.

use std::{fmt, pin::Pin, sync::Arc};

use fault_plan::Request;
use parking_lot::Mutex;

/// A point of the plan at which the test acts, for example kills the client or changes an object.
#[derive(Debug, Clone)]
pub struct Signal {
    /// The name of the signal in the plan.
    pub name: String,
    /// The request that waits for the handler; for an event, the request of the watch.
    pub request: Request,
}

type Handler = Arc<dyn Fn(Signal) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// The handler of signals. At first, there is none.
#[derive(Default)]
pub(crate) struct Hook(Mutex<Option<Handler>>);

impl Hook {
    pub(crate) fn set<F>(&self, handler: impl Fn(Signal) -> F + Send + Sync + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let handler: Handler = Arc::new(move |signal| Box::pin(handler(signal)));
        *self.0.lock() = Some(handler);
    }

    /// Calls the handler and waits for it. The handler runs in its own task: if it kills the client, the request ends, and the
    /// handler must not end with it.
    pub(crate) async fn call(&self, name: &str, request: &Request) {
        let handler = self.0.lock().clone();
        if let Some(handler) = handler {
            let signal = Signal { name: name.to_owned(), request: request.clone() };
            // If the handler panics, its message is printed already; the request continues.
            drop(tokio::spawn(handler(signal)).await);
        }
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}
