//! The client of the provider. It adds credentials, the rate limit and metrics to each request.

use std::{path::PathBuf, sync::Arc, time::Duration};

use http::{HeaderValue, StatusCode, Uri, header};
use jiff::Timestamp;
use manager::{MetricRegistry, SharedToken};
use parking_lot::Mutex;
use prometheus::{HistogramVec, IntCounterVec, IntGaugeVec};
use tokio::time::{Instant, sleep_until};

use super::{Failure, Outcome, Refusal, Request, Transport, Unknown, Why, circuit::Circuit, wire};

/// How long the client does not send refused credentials again, unless they change.
const REFUSED: Duration = Duration::from_secs(55);

/// The address of the provider and the credentials.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The base address, before `/v1/…`.
    pub url: Uri,
    /// The token that authorizes the client.
    pub token: Token,
}

/// Where the token for a provider is.
#[derive(Debug, Clone, Default)]
pub enum Token {
    /// The provider needs no token.
    #[default]
    None,
    /// In a file. The client reads it for each request, so that it uses a new token at once.
    File(PathBuf),
    /// In a Secret that the provider also mounts.
    Shared(SharedToken),
}

/// A client of one provider. Clones share the circuit breaker and the connections.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    settings: Settings,
    transport: Box<dyn Transport>,
    circuit: Mutex<Circuit>,
    refused: Mutex<Option<Refused>>,
    metrics: Metrics,
}

/// Credentials that the provider refused.
struct Refused {
    token: Option<String>,
    until: Instant,
    refusal: Refusal,
}

impl Client {
    /// Creates a client and registers its metrics. It opens no connection.
    pub fn new(settings: Settings, transport: impl Transport, registry: &MetricRegistry) -> Self {
        Self(Arc::new(Inner {
            settings,
            transport: Box::new(transport),
            circuit: Mutex::default(),
            refused: Mutex::default(),
            metrics: Metrics::new(registry),
        }))
    }

    /// Sends a request, after a wait for the rate limit. Every error becomes an [`Outcome`].
    pub async fn ask(&self, request: &Request) -> Outcome {
        let Inner { settings, metrics, .. } = &*self.0;
        let token = match settings.token.read().await {
            Ok(token) => token,
            Err(why) => return unknown(why, None),
        };
        if let Some(refusal) = self.refused_before(token.as_deref()) {
            return Outcome::Refused(refusal);
        }
        let slot = match self.circuit(|circuit| circuit.enter(Instant::now())) {
            Ok(slot) => slot,
            Err(open) => return unknown(open.last, Some(open.wait)),
        };
        sleep_until(slot).await;

        let begun = Instant::now();
        let outcome = self.send(request, token.as_deref()).await;
        metrics.seconds.with_label_values(&[request.op()]).observe(begun.elapsed().as_secs_f64());
        self.circuit(|circuit| match &outcome {
            Outcome::Unknown(Unknown { why, answered: false, .. }) => circuit.failed(why, Instant::now()),
            _ => circuit.succeeded(),
        });
        if let Outcome::Refused(refusal) = &outcome
            && refusal.why == Why::Credentials
        {
            let refused = Refused { token, until: Instant::now() + REFUSED, refusal: refusal.clone() };
            *self.0.refused.lock() = Some(refused);
        }
        outcome
    }

    async fn send(&self, request: &Request, token: Option<&str>) -> Outcome {
        let Inner { settings, transport, metrics, .. } = &*self.0;
        let count = |code: &str| metrics.requests.with_label_values(&[request.op(), code]).inc();
        let mut message = match wire::request(&settings.url, request) {
            Ok(message) => message,
            Err(error) => return unknown(format!("cannot build the request: {error}"), None),
        };
        if let Some(token) = token {
            let Ok(mut value) = HeaderValue::try_from(format!("Bearer {token}")) else {
                return unknown("the token has characters that are not allowed in an HTTP header".to_owned(), None);
            };
            value.set_sensitive(true);
            message.headers_mut().insert(header::AUTHORIZATION, value);
        }
        if let Some(parent) = manager::traceparent().and_then(|parent| HeaderValue::try_from(parent).ok()) {
            message.headers_mut().insert("traceparent", parent);
        }
        match transport.send(message).await {
            Ok(answer) => {
                count(class(answer.status()));
                wire::outcome(request, &answer, Timestamp::now())
            }
            Err(failure) => {
                count(if matches!(failure, Failure::Late { .. }) { "timeout" } else { "error" });
                unknown(super::plain(&failure.to_string()), None)
            }
        }
    }

    /// Returns the refusal if the provider has just refused the same token, so that thousands of tickets do not all send it.
    fn refused_before(&self, token: Option<&str>) -> Option<Refusal> {
        let mut refused = self.0.refused.lock();
        let is_same = |it: &Refused| it.token.as_deref() == token && Instant::now() < it.until;
        if refused.as_ref().is_some_and(|it| !is_same(it)) {
            *refused = None;
        }
        refused.as_ref().map(|it| it.refusal.clone())
    }

    fn circuit<T>(&self, work: impl FnOnce(&mut Circuit) -> T) -> T {
        let mut circuit = self.0.circuit.lock();
        let result = work(&mut circuit);
        self.0.metrics.circuit_open.with_label_values::<&str>(&[]).set(circuit.is_open().into());
        result
    }
}

impl Token {
    async fn read(&self) -> Result<Option<String>, String> {
        let path = match self {
            Self::None => return Ok(None),
            Self::File(path) => path,
            Self::Shared(token) => {
                let failed = |error: manager::Error| format!("--booking-token-secret: {}", error.chain());
                return token.read().await.map(Some).map_err(failed);
            }
        };
        let failed = |what: &str| format!("--booking-token-file {}: {what}", path.display());
        let text = tokio::fs::read_to_string(path).await.map_err(|error| failed(&error.to_string()))?;
        let token = text.lines().map(str::trim).find(|line| !line.is_empty());
        token.map(|token| Some(token.to_owned())).ok_or_else(|| failed("the file contains no token"))
    }
}

fn unknown(why: String, retry_after: Option<Duration>) -> Outcome {
    Outcome::Unknown(Unknown { why, retry_after, answered: false })
}

fn class(status: StatusCode) -> &'static str {
    match status.as_u16() / 100 {
        1 | 2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        _ => "5xx",
    }
}

/// Buckets of the request duration, in seconds.
const SECONDS: [f64; 10] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

struct Metrics {
    requests: IntCounterVec,
    seconds: HistogramVec,
    circuit_open: IntGaugeVec,
}

impl Metrics {
    fn new(registry: &MetricRegistry) -> Self {
        let help = "Requests to the booking provider, by operation (create, get, modify, cancel, adopt, lookup) and class of \
                    the answer (2xx to 5xx, timeout, error).";
        let requests = registry.counters("flightticket_operator_provider_requests_total", help, &["op", "code"]);
        let help = "How long the booking provider took to answer, by operation.";
        let seconds = registry.histograms("flightticket_operator_provider_request_seconds", help, &["op"], &SECONDS);
        let help = "1 while the booking provider is down and gets only one trial request at a time.";
        let circuit_open = registry.gauges("flightticket_operator_provider_circuit_open", help, &[]);
        circuit_open.with_label_values::<&str>(&[]).set(0);
        for op in Request::OPS {
            // Creates the series at zero: the rate of a series that begins with its first event does not contain that event.
            requests.with_label_values(&[op, "2xx"]);
            seconds.with_label_values(&[op]);
        }
        Self { requests, seconds, circuit_open }
    }
}
