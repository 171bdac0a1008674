//! What happened, in order: requests, changes, events of watches, wake-ups and disturbances.

use std::{
    collections::BTreeSet,
    fmt::{self, Write as _},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use tracing::{Event, Subscriber, field::Field, field::Visit};
use tracing_subscriber::layer::{Context, Layer};

/// The record of one world. A clone is the same record.
#[derive(Debug, Clone)]
pub(crate) struct Trace {
    begun: Instant,
    lines: Arc<Mutex<Vec<Line>>>,
    unexplained: Arc<Mutex<Option<String>>>,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Simulated time since the world began.
    pub at: Duration,
    /// What happened, in one line.
    pub text: String,
}

impl Trace {
    /// Must be called within a tokio runtime: it is the beginning of simulated time.
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

    /// The first reconcile that nothing has asked for.
    pub(crate) fn unexplained(&self) -> Option<String> {
        self.unexplained.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Everything so far.
    pub(crate) fn take(&self) -> Vec<Line> {
        std::mem::take(&mut self.lines())
    }

    fn lines(&self) -> MutexGuard<'_, Vec<Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, millis) = (self.at.as_secs(), self.at.subsec_millis());
        write!(f, "{:02}:{:02}.{millis:03}  {}", seconds / 60, seconds % 60, self.text)
    }
}

/// Writes why each object is looked at, and when, into the trace.
pub(crate) struct WakeUps {
    trace: Trace,
    /// The objects that something has asked to look at; `None` for several processes, which it cannot tell apart.
    asked: Option<Mutex<BTreeSet<String>>>,
}

impl WakeUps {
    pub(crate) fn new(trace: &Trace, processes: usize) -> Self {
        Self { trace: trace.clone(), asked: (processes == 1).then(Mutex::default) }
    }

    /// No object is looked at without a cause.
    fn check(&self, fields: Fields) {
        let Some(asked) = &self.asked else { return };
        let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
        if !fields.cause.is_empty() {
            asked.insert(fields.object);
        } else if !asked.remove(&fields.object) {
            let mut unexplained = self.trace.unexplained.lock().unwrap_or_else(PoisonError::into_inner);
            unexplained.get_or_insert_with(|| format!("{} is looked at, and nothing has asked for it", fields.object));
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
