//! Logging to stderr: one JSON object per line with controller-runtime's keys, or plain text. Traces are in `traces`.

use std::{
    fmt,
    io::{self, IsTerminal},
};

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    EnvFilter, Layer,
    fmt::{
        FmtContext, FormatEvent, FormattedFields,
        format::{JsonFields, Writer},
    },
    layer::SubscriberExt,
    registry::LookupSpan,
    util::SubscriberInitExt,
};

use crate::settings::{LogFormat, Settings};

mod traces;

pub use traces::traceparent;
pub(crate) use traces::{TARGET, Traces};

/// Sets up logging to stderr, and traces if they are configured, for the whole process.
pub(crate) fn start(settings: &Settings) -> Result<Traces, String> {
    let filter = filter(&settings.log_level)?;
    let traces = Traces::start(settings.otlp_endpoint.as_deref())?;
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    let lines = match settings.log_format {
        LogFormat::Json => lines.fmt_fields(JsonFields::new()).event_format(JsonLines).boxed(),
        LogFormat::Text => lines.with_ansi(io::stderr().is_terminal()).boxed(),
    };
    let started = tracing_subscriber::registry().with(lines.with_filter(filter)).with(traces.layer()).try_init();
    started.map_err(|error| format!("cannot start logging: {error}"))?;
    Ok(traces)
}

/// What is logged: `level`, except for libraries that would log too much.
fn filter(level: &str) -> Result<EnvFilter, String> {
    // kube logs every failed attempt of a watch, while the informer logs each change of state once. OpenTelemetry would log each
    // failed export, which a metric counts.
    let each_request = metrics_proxy::EACH_FAILED_REQUEST;
    let silent = ["kube_runtime", each_request, "opentelemetry", "opentelemetry_sdk", "opentelemetry_otlp"];
    let silent = silent.map(|it| format!("{it}=off"));
    let of_clients = serving::WARN_OF_CLIENTS.map(|it| format!("{it}=error"));
    let directives = [&silent[..], &of_clients, &[level.to_owned()]].concat().join(",");
    EnvFilter::builder().parse(directives).map_err(|error| format!("--log-level: {error}"))
}

/// Formats an event as `{"ts":…,"level":…,"logger":…,"msg":…,"error":…}` with the fields of its spans. Every value goes
/// through the JSON encoder, so that no message can forge a log line.
struct JsonLines;

impl<S> FormatEvent<S, JsonFields> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = Map::new();
        line.insert("ts".to_owned(), json!(Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()));
        line.insert("level".to_owned(), json!(event.metadata().level().as_str().to_lowercase()));
        line.insert("logger".to_owned(), json!(event.metadata().target()));
        for span in context.event_scope().into_iter().flatten() {
            let extensions = span.extensions();
            let fields = extensions.get::<FormattedFields<JsonFields>>();
            if let Some(Ok(Value::Object(fields))) = fields.map(|fields| serde_json::from_str(fields)) {
                line.extend(fields);
            }
        }
        event.record(&mut Collect(&mut line));
        writeln!(writer, "{}", Value::Object(line))
    }
}

struct Collect<'a>(&'a mut Map<String, Value>);

impl Visit for Collect<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, json!(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, json!(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, json!(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, json!(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, json!(format!("{value:?}")));
    }
}

impl Collect<'_> {
    fn put(&mut self, field: &Field, value: Value) {
        let name = if field.name() == "message" { "msg" } else { field.name() };
        self.0.insert(name.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tracing_subscriber::layer::Context;

    use super::*;

    static LOGGED: AtomicUsize = AtomicUsize::new(0);

    struct Count;

    impl<S: Subscriber> Layer<S> for Count {
        fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
            LOGGED.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn clients_cannot_fill_the_log_with_warnings_of_libraries() {
        let logged = |level: &str, event: fn()| {
            LOGGED.store(0, Ordering::Relaxed);
            let subscriber = tracing_subscriber::registry().with(Count.with_filter(filter(level).expect("a level")));
            tracing::subscriber::with_default(subscriber, event);
            LOGGED.load(Ordering::Relaxed)
        };
        for level in ["info", "debug", "info,manager=debug"] {
            assert_eq!(logged(level, || tracing::warn!(target: "h2::proto::streams::recv", "a client")), 0, "{level}");
            assert_eq!(logged(level, || tracing::warn!(target: "rustls::msgs::handshake", "a client")), 0, "{level}");
            let each = || tracing::error!(target: "kube_client::client::builder", "a request failed");
            assert_eq!(logged(level, each), 0, "{level}");
            assert_eq!(logged(level, || tracing::error!(target: "rustls::common_state", "broken")), 1, "{level}");
            assert_eq!(logged(level, || tracing::warn!(target: "serving::listener", "ours")), 1, "{level}");
        }
        assert_eq!(logged("rustls=debug", || tracing::debug!(target: "rustls::server", "asked for")), 1);
    }
}
