//! The trace of a world: requests, changes, watch events, wake-ups and disturbances, in order.

use std::{
    collections::BTreeSet,
    fmt::{self, Write as _},
    sync::Arc,
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;
use tracing::{
    Event, Span, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id},
};
use tracing_subscriber::{
    layer::{Context, Layer},
    registry::LookupSpan,
};

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

/// The target of the spans of processes.
const PROCESS: &str = "simulation::process";

/// Returns the span in which all tasks of a process run. `start` is the number of its start, and `client` its name.
pub(crate) fn span_of_process(start: u64, client: &str) -> Span {
    tracing::info_span!(target: PROCESS, "process", start, client)
}

/// A tracing layer that writes each reconcile and its causes into the trace, and finds reconciles without a cause.
pub(crate) struct WakeUps {
    trace: Trace,
    /// The objects with a cause that no reconcile has followed yet. Each queue has its own causes: an object may be in the queues
    /// of several processes, and a process that starts again has lost its queues.
    asked: Mutex<BTreeSet<Wanted>>,
}

/// An object in a queue: the number of the start of the process, the controller, and the key of the object.
type Wanted = (u64, String, String);

/// A process, as its span describes it.
#[derive(Debug, Clone, Default)]
struct Process {
    start: u64,
    client: String,
}

impl WakeUps {
    pub(crate) fn new(trace: &Trace) -> Self {
        Self { trace: trace.clone(), asked: Mutex::default() }
    }

    /// Checks that each reconcile has a cause: one of its own process and controller.
    fn check(&self, process: Option<Process>, Fields { controller, object, cause, .. }: Fields) {
        let Some(Process { start, client }) = process else {
            return self.complain(format!("no process reconciles or wakes {controller} {object}"));
        };
        let wanted = (start, controller, object);
        let mut asked = self.asked.lock();
        if !cause.is_empty() {
            asked.insert(wanted);
        } else if !asked.remove(&wanted) {
            let (_, controller, object) = wanted;
            self.complain(format!("{client} reconciles {controller} {object} without a cause"));
        }
    }

    /// Keeps the first of these complaints.
    fn complain(&self, unexplained: String) {
        self.trace.unexplained.lock().get_or_insert(unexplained);
    }
}

impl<S: Subscriber + for<'span> LookupSpan<'span>> Layer<S> for WakeUps {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if attributes.metadata().target() == PROCESS {
            let mut process = Process::default();
            attributes.record(&mut process);
            if let Some(span) = context.span(id) {
                span.extensions_mut().insert(process);
            }
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        if event.metadata().target() == "manager::wake" {
            let mut fields = Fields::default();
            event.record(&mut fields);
            let mut spans = context.event_scope(event).into_iter().flatten();
            let process = spans.find_map(|span| span.extensions().get::<Process>().cloned());
            let client = process.as_ref().map_or("no process", |process| &*process.client);
            self.trace.note(format!("{client}: {}", fields.line()));
            self.check(process, fields);
        }
    }
}

impl Visit for Process {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "start" {
            self.start = value;
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "client" {
            value.clone_into(&mut self.client);
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}

#[derive(Default)]
struct Fields {
    message: String,
    controller: String,
    object: String,
    cause: String,
}

impl Fields {
    fn line(&self) -> String {
        let Self { message, controller, object, cause } = self;
        let separator = if cause.is_empty() { "" } else { ": " };
        format!("{} {controller} {object}{separator}{cause}", message.to_lowercase())
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = match field.name() {
            "message" => &mut self.message,
            "controller" => &mut self.controller,
            "object" => &mut self.object,
            "cause" => &mut self.cause,
            _ => return,
        };
        write!(text, "{value:?}").ok();
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    /// What a process logs: that something wakes an object of this name, or that this controller reconciles it.
    #[derive(Debug, Clone, Copy)]
    enum Log {
        Wake(&'static str, &'static str),
        Reconcile(&'static str, &'static str),
    }

    use Log::{Reconcile, Wake};

    impl Log {
        fn write(self) {
            match self {
                Wake(controller, object) => {
                    tracing::trace!(target: "manager::wake", %controller, %object, cause = %"changed", "Wake");
                }
                Reconcile(controller, object) => {
                    tracing::trace!(target: "manager::wake", %controller, %object, "Reconcile");
                }
            }
        }
    }

    /// Returns the complaint about what processes log, each by the number of its start, and the lines of the trace.
    fn judged(logs: &[(u64, Log)]) -> (Option<String>, Vec<String>) {
        let trace = Trace::new();
        let subscriber = tracing_subscriber::registry().with(WakeUps::new(&trace));
        tracing::subscriber::with_default(subscriber, || {
            for (start, log) in logs {
                // Reconciles have spans of their own.
                span_of_process(*start, "operator-0")
                    .in_scope(|| tracing::info_span!("reconcile").in_scope(|| log.write()));
            }
        });
        (trace.unexplained(), trace.take().into_iter().map(|line| line.text).collect())
    }

    #[tokio::test(start_paused = true)]
    async fn reconcile_with_a_cause_is_accepted_once() {
        let (complaint, lines) = judged(&[(1, Wake("foo", "shop/a")), (1, Reconcile("foo", "shop/a"))]);
        assert_eq!(complaint, None);
        assert_eq!(lines, ["operator-0: wake foo shop/a: changed", "operator-0: reconcile foo shop/a"]);
        let again = (1, Reconcile("foo", "shop/a"));
        let (complaint, _) = judged(&[(1, Wake("foo", "shop/a")), again, again]);
        assert_eq!(complaint.as_deref(), Some("operator-0 reconciles foo shop/a without a cause"));
    }

    /// The queues of several operators in one process, and those of several processes, have the same keys.
    #[tokio::test(start_paused = true)]
    async fn cause_is_one_of_the_same_process_and_controller() {
        for (of_another, is_found) in [
            ((1, Wake("foo", "shop/a")), false),
            ((1, Wake("memcached", "shop/a")), true),
            ((2, Wake("foo", "shop/a")), true),
            ((1, Wake("foo", "depot/a")), true),
        ] {
            let (complaint, _) = judged(&[of_another, (1, Reconcile("foo", "shop/a"))]);
            assert_eq!(complaint.is_some(), is_found, "{of_another:?}: {complaint:?}");
        }
    }

    /// A task without the span of its process would hide whose queue it fills.
    #[tokio::test(start_paused = true)]
    async fn wake_up_outside_of_every_process_is_found() {
        let trace = Trace::new();
        let subscriber = tracing_subscriber::registry().with(WakeUps::new(&trace));
        tracing::subscriber::with_default(subscriber, || Wake("foo", "shop/a").write());
        assert_eq!(trace.unexplained().as_deref(), Some("no process reconciles or wakes foo shop/a"));
    }
}
