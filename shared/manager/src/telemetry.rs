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
    // kube logs every failed attempt of a watch, while the informer logs each change of state once. OpenTelemetry would log each
    // failed export, which a metric counts.
    let filter = EnvFilter::builder()
        .parse(format!(
            "kube_runtime=off,opentelemetry=off,opentelemetry_sdk=off,opentelemetry_otlp=off,{}",
            settings.log_level
        ))
        .map_err(|error| format!("--log-level: {error}"))?;
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
