//! What goes wrong on the way to the server, on the way back, and in watches.

use std::{
    future::Future,
    pin::Pin,
    sync::{Mutex, PoisonError},
};

use fault_plan::{Action, Due, Frame, Plan, Progress, Request, Rule};

use crate::request::RequestInfo;

/// A signal that is being acted upon.
pub type Signalled = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Decides what happens to each request and to each event of a watch.
///
/// [`Planned`] does what a [`Plan`] says; write another one where a test has to decide by itself. It is called without
/// any lock held, so it may use the [`Model`](crate::Model).
pub trait Faults: Send + Sync {
    /// What is to happen before the request is looked at, after it was done, and when the client has the answer.
    fn on_request(&self, _request: &RequestInfo) -> Due {
        Due::default()
    }

    /// What is to happen to an event of a watch.
    fn on_frame(&self, _watch: &RequestInfo, _frame: &Frame) -> Vec<Action> {
        Vec::new()
    }

    /// Does what an [`Action::Signal`] of this name means; the request waits for it.
    fn signal(&self, _name: &str) -> Signalled {
        Box::pin(async {})
    }
}

/// Nothing goes wrong.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoFaults;

impl Faults for NoFaults {}

/// Carries out a [`Plan`].
pub struct Planned {
    progress: Mutex<Progress>,
    signal: Box<dyn Fn(&str) -> Signalled + Send + Sync>,
}

impl Planned {
    /// Does what the plan says. Signals mean nothing.
    pub fn new(plan: &Plan) -> Self {
        Self::with_signals(plan, |_| Box::pin(async {}))
    }

    /// Does what the plan says, and calls `signal` where it says so.
    pub fn with_signals(plan: &Plan, signal: impl Fn(&str) -> Signalled + Send + Sync + 'static) -> Self {
        Self { progress: Mutex::new(Progress::new(plan)), signal: Box::new(signal) }
    }

    /// The rules that were never applied: a test whose plan did not happen has tested nothing.
    pub fn unused(&self) -> Vec<Rule> {
        self.progress().unused().into_iter().cloned().collect()
    }

    fn progress(&self) -> std::sync::MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
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

/// The request as plans see it.
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
