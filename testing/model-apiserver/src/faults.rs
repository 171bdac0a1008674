//! Fault injection: decides what happens to requests, to their answers and to watch events.

use std::{future::Future, pin::Pin};

use fault_plan::{Action, Due, Frame, Plan, Progress, Request, Rule};
use parking_lot::Mutex;

use crate::request::RequestInfo;

/// The future of a signal handler.
pub type Signalled = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Decides what happens to each request and to each event of a watch.
///
/// [`Planned`] executes a [`Plan`]. Implement the trait for a test that has to decide itself. The model calls it without holding
/// a lock, so an implementation may use the [`Model`](crate::Model).
pub trait Faults: Send + Sync {
    /// Returns the actions before the server handles the request, after it has handled it, and after the client has the answer.
    fn on_request(&self, _request: &RequestInfo) -> Due {
        Due::default()
    }

    /// Returns the actions for an event of a watch.
    fn on_frame(&self, _watch: &RequestInfo, _frame: &Frame) -> Vec<Action> {
        Vec::new()
    }

    /// Handles an [`Action::Signal`] with this name. The request waits for the returned future.
    fn signal(&self, _name: &str) -> Signalled {
        Box::pin(async {})
    }
}

/// Injects no faults.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoFaults;

impl Faults for NoFaults {}

/// Executes a [`Plan`].
pub struct Planned {
    progress: Mutex<Progress>,
    signal: Box<dyn Fn(&str) -> Signalled + Send + Sync>,
}

impl Planned {
    /// Executes the plan. Signals have no effect.
    pub fn new(plan: &Plan) -> Self {
        Self::with_signals(plan, |_| Box::pin(async {}))
    }

    /// Executes the plan, and calls `signal` for each of its signals.
    pub fn with_signals(plan: &Plan, signal: impl Fn(&str) -> Signalled + Send + Sync + 'static) -> Self {
        Self { progress: Mutex::new(Progress::new(plan)), signal: Box::new(signal) }
    }

    /// Returns the rules that were never applied. If a rule never applied, the test has tested nothing.
    pub fn unused(&self) -> Vec<Rule> {
        self.progress().unused().into_iter().cloned().collect()
    }

    fn progress(&self) -> parking_lot::MutexGuard<'_, Progress> {
        self.progress.lock()
    }
}

impl Faults for Planned {
    fn on_request(&self, request: &RequestInfo) -> Due {
        self.progress().request(&signature(request))
    }

    fn on_frame(&self, watch: &RequestInfo, frame: &Frame) -> Vec<Action> {
        self.progress().frame(&signature(watch), frame)
    }

    fn signal(&self, name: &str) -> Signalled {
        (self.signal)(name)
    }
}

/// The signature of the request for fault plans.
pub fn signature(request: &RequestInfo) -> Request {
    let name = if request.name.is_empty() {
        let body: Option<serde_json::Value> = serde_json::from_slice(&request.body).ok();
        let name = body.as_ref().and_then(|body| body.pointer("/metadata/name")?.as_str().map(str::to_owned));
        name.or_else(|| {
            let fields = request.query.get("fieldSelector")?;
            fields.split(',').find_map(|field| field.strip_prefix("metadata.name=")).map(str::to_owned)
        })
        .unwrap_or_default()
    } else {
        request.name.clone()
    };
    let verb = if request.plural.is_empty() { request.method.as_str() } else { request.verb.as_str() };
    Request {
        verb: verb.to_owned(),
        group: request.group.clone(),
        version: request.version.clone(),
        resource: request.plural.clone(),
        subresource: request.subresource.clone(),
        namespace: request.namespace.clone(),
        name,
        path: request.path.clone(),
        dry_run: request.query.get("dryRun").is_some_and(|value| value == "All"),
        identity: request.client.clone(),
    }
}
