//! The trace of a world: requests, changes, watch events, wake-ups and disturbances, in order.

use std::{
    collections::BTreeSet,
    fmt::{self, Write as _},
    sync::Arc,
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;
use tracing::{Event, Subscriber, field::Field, field::Visit};
use tracing_subscriber::layer::{Context, Layer};

/// The trace of one world. Clones share their lines.
#[derive(Debug, Clone)]
pub(crate) struct Trace {
    begun: Instant,
    lines: Arc<Mutex<Vec<Line>>>,
    unexplained: Arc<Mutex<Option<String>>>,
}

/// One line of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Simulated time since the world began.
    pub at: Duration,
    /// What happened, in one line.
    pub text: String,
}

impl Trace {
    /// Starts an empty trace, and with it simulated time. Must be called within a tokio runtime.
    pub(crate) fn new() -> Self {
        Self { begun: Instant::now(), lines: Arc::default(), unexplained: Arc::default() }
    }

    /// Simulated time since the world began.
    pub(crate) fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    pub(crate) fn note(&self, text: impl Into<String>) {
        let line = Line { at: self.now(), text: text.into() };
        self.lines().push(line);
    }

    /// Describes the first reconcile without a cause, if there is one.
    pub(crate) fn unexplained(&self) -> Option<String> {
        self.unexplained.lock().clone()
    }

    /// Takes all lines so far.
    pub(crate) fn take(&self) -> Vec<Line> {
        std::mem::take(&mut self.lines())
    }

    fn lines(&self) -> MutexGuard<'_, Vec<Line>> {
        self.lines.lock()
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, millis) = (self.at.as_secs(), self.at.subsec_millis());
        write!(f, "{:02}:{:02}.{millis:03}  {}", seconds / 60, seconds % 60, self.text)
    }
}

/// A tracing layer that writes each reconcile and its causes into the trace.
pub(crate) struct WakeUps {
    trace: Trace,
    /// Objects with a cause that no reconcile has followed yet. `None` with several processes, which the layer cannot distinguish.
    asked: Option<Mutex<BTreeSet<String>>>,
}

impl WakeUps {
    pub(crate) fn new(trace: &Trace, processes: usize) -> Self {
        Self { trace: trace.clone(), asked: (processes == 1).then(Mutex::default) }
    }

    /// Checks that each reconcile has a cause.
    fn check(&self, fields: Fields) {
        let Some(asked) = &self.asked else { return };
        let mut asked = asked.lock();
        if !fields.cause.is_empty() {
            asked.insert(fields.object);
        } else if !asked.remove(&fields.object) {
            let mut unexplained = self.trace.unexplained.lock();
            unexplained.get_or_insert_with(|| format!("{} is reconciled without a cause", fields.object));
        }
    }
}

impl<S: Subscriber> Layer<S> for WakeUps {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() == "manager::wake" {
            let mut fields = Fields::default();
            event.record(&mut fields);
            self.trace.note(fields.line());
            self.check(fields);
        }
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    object: String,
    cause: String,
}

impl Fields {
    fn line(&self) -> String {
        if self.cause.is_empty() {
            format!("{} {}", self.message.to_lowercase(), self.object)
        } else {
            format!("{} {}: {}", self.message.to_lowercase(), self.object, self.cause)
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = match field.name() {
            "message" => &mut self.message,
            "object" => &mut self.object,
            "cause" => &mut self.cause,
            _ => return,
        };
        write!(text, "{value:?}").ok();
    }
}
