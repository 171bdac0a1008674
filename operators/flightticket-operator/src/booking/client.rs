//! The client of the provider. It adds credentials, the limits and metrics to each request.

use std::{collections::BTreeSet, path::PathBuf, sync::Arc, time::Duration};

use http::{HeaderValue, StatusCode, Uri, header};
use jiff::Timestamp;
use manager::{MetricRegistry, SharedToken};
use parking_lot::Mutex;
use prometheus::{HistogramVec, IntCounterVec, IntGaugeVec};
use tokio::time::{Instant, sleep_until};

use super::{
    Failure, Outcome, Request, Transport, Unknown, Why,
    admission::{Admission, Waiter},
    wire,
};

/// The address of the provider and the credentials.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The base address, before `/v1/…`.
    pub url: Uri,
    /// The token that authorizes the client.
    pub token: Token,
    /// How many tickets may use the provider at once.
    pub places: usize,
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

/// A client of one provider. Clones share the limits and the connections.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

/// The right of a ticket to use the provider, in the share of its namespace. It ends when this is dropped.
pub struct Place {
    client: Client,
    namespace: String,
}

struct Inner {
    settings: Settings,
    transport: Box<dyn Transport>,
    admission: Mutex<Admission>,
    metrics: Metrics,
}

impl Client {
    /// Creates a client and registers its metrics. It opens no connection.
    pub fn new(settings: Settings, transport: impl Transport, registry: &MetricRegistry) -> Self {
        Self(Arc::new(Inner {
            admission: Mutex::new(Admission::with_places(settings.places)),
            settings,
            transport: Box::new(transport),
            metrics: Metrics::new(registry),
        }))
    }

    /// Registers the metrics of a client, for an operator without a provider. They stay at zero.
    pub(crate) fn register_metrics(registry: &MetricRegistry) {
        Metrics::new(registry);
    }

    /// Lets a ticket of this namespace use the provider.
    ///
    /// # Errors
    ///
    /// If its namespace uses its whole share: the time until the ticket should try again.
    pub fn enter(&self, namespace: &str) -> Result<Place, Duration> {
        self.0.admission.lock().enter(namespace, Instant::now())?;
        Ok(Place { client: self.clone(), namespace: namespace.to_owned() })
    }

    /// Sets the metrics of open circuits and refused credentials. `namespaces` are all that have tickets; the others are forgotten.
    pub(crate) fn report(&self, namespaces: &BTreeSet<Arc<str>>) {
        let Inner { admission, metrics, .. } = &*self.0;
        let mut admission = admission.lock();
        admission.retain(namespaces);
        let show = |gauge: &IntGaugeVec, count: usize| {
            gauge.with_label_values::<&str>(&[]).set(i64::try_from(count).unwrap_or(i64::MAX));
        };
        let now = Instant::now();
        show(&metrics.circuit_open, admission.open_circuits(now));
        show(&metrics.credentials_refused, admission.refused_credentials(now));
    }

    /// Forgets what the provider answered to each namespace. To be called when this process sends no requests any more.
    pub(crate) fn forget(&self) {
        self.0.admission.lock().forget_answers();
    }

    async fn send(
        &self,
        request: &Request,
        authorization: Option<HeaderValue>,
        now: impl Fn() -> Timestamp,
    ) -> Outcome {
        let Inner { settings, transport, metrics, .. } = &*self.0;
        let mut message = match wire::request(&settings.url, request) {
            Ok(message) => message,
            Err(error) => return unknown(format!("cannot build the request: {error}"), None),
        };
        let anonymous = authorization.is_none();
        if let Some(authorization) = authorization {
            message.headers_mut().insert(header::AUTHORIZATION, authorization);
        }
        if let Some(parent) = manager::traceparent().and_then(|parent| HeaderValue::try_from(parent).ok()) {
            message.headers_mut().insert("traceparent", parent);
        }
        match transport.send(message).await {
            Ok(answer) => {
                metrics.count(request, class(answer.status()));
                let mut outcome = wire::outcome(request, &answer, now());
                if let Outcome::Refused(refusal) = &mut outcome {
                    refusal.anonymous = anonymous;
                }
                outcome
            }
            Err(failure) => {
                metrics.count(request, if matches!(failure, Failure::Late { .. }) { "timeout" } else { "error" });
                unknown(super::plain(&failure.to_string()), None)
            }
        }
    }
}

impl Place {
    /// Sends a request, after a wait for its turn. Every error becomes an [`Outcome`]. `now` returns the time of day, from which a
    /// date in `Retry-After` counts.
    pub async fn ask(&self, request: &Request, now: impl Fn() -> Timestamp) -> Outcome {
        let Self { client, namespace } = self;
        let Inner { settings, metrics, admission, .. } = &*client.0;
        let token = settings.token.read().await;
        let credentials = token.and_then(|token| Ok((token.as_deref().map(bearer).transpose()?, token)));
        let (authorization, token) = match credentials {
            Ok(credentials) => credentials,
            Err(why) => {
                // Nothing is sent, so it says nothing about the provider: the circuit stays as it is.
                metrics.count(request, "error");
                return unknown(why, None);
            }
        };
        if let Some(refusal) = admission.lock().refused_before(namespace, token.as_deref(), Instant::now()) {
            return Outcome::Refused(refusal);
        }
        if let Err(open) = admission.lock().pass_circuit(namespace, Instant::now()) {
            return unknown(open.last, Some(open.wait));
        }
        Turn::of(self).await;

        let begun = Instant::now();
        let outcome = client.send(request, authorization, now).await;
        metrics.seconds.with_label_values(&[request.op()]).observe(begun.elapsed().as_secs_f64());
        match &outcome {
            // Without the provider's words: while the circuit is open, all tickets of the namespace show this.
            Outcome::Unknown(Unknown { why, retry_after, answered: false, .. }) => {
                admission.lock().failed(namespace, why, *retry_after, Instant::now());
            }
            _ => admission.lock().succeeded(namespace),
        }
        if let Outcome::Refused(refusal) = &outcome
            && refusal.why == Why::Credentials
        {
            admission.lock().refused(namespace, token, refusal, Instant::now());
        }
        outcome
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.client.0.admission.lock().leave(&self.namespace);
    }
}

/// A request that waits for its turn. When it is cancelled, it waits no longer.
struct Turn<'a> {
    admission: &'a Mutex<Admission>,
    waiter: Waiter,
}

impl<'a> Turn<'a> {
    async fn of(place: &'a Place) {
        let admission = &place.client.0.admission;
        let waiter = admission.lock().wait(&place.namespace);
        let turn = Self { admission, waiter };
        loop {
            let next = turn.admission.lock().turn(turn.waiter, Instant::now());
            let Err(next) = next else { return };
            sleep_until(next).await;
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.admission.lock().forget(self.waiter);
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

/// The header that sends this token.
fn bearer(token: &str) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::try_from(format!("Bearer {token}"))
        .map_err(|_| "the token has characters that are not allowed in an HTTP header".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

fn unknown(why: String, retry_after: Option<Duration>) -> Outcome {
    Outcome::Unknown(Unknown { why, words: String::new(), retry_after, answered: false })
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
    credentials_refused: IntGaugeVec,
}

impl Metrics {
    fn new(registry: &MetricRegistry) -> Self {
        let help = "Requests to the booking provider, by operation (create, get, modify, cancel, adopt, lookup) and class of \
                    the answer (2xx to 5xx, timeout, error).";
        let requests = registry.counters("flightticket_operator_provider_requests_total", help, &["op", "code"]);
        let help = "How long the booking provider took to answer, by operation.";
        let seconds = registry.histograms("flightticket_operator_provider_request_seconds", help, &["op"], &SECONDS);
        let help = "Namespaces whose requests to the booking provider fail, so that it gets only one trial request at a time of \
                    each of them.";
        let circuit_open = registry.gauges("flightticket_operator_provider_circuit_open", help, &[]);
        circuit_open.with_label_values::<&str>(&[]).set(0);
        let help = "Namespaces to which the booking provider has last answered that it refuses the credentials (401).";
        let credentials_refused = registry.gauges("flightticket_operator_provider_credentials_refused", help, &[]);
        credentials_refused.with_label_values::<&str>(&[]).set(0);
        for op in Request::OPS {
            // Creates the series at zero: the rate of a series that begins with its first event does not contain that event.
            requests.with_label_values(&[op, "2xx"]);
            seconds.with_label_values(&[op]);
        }
        Self { requests, seconds, circuit_open, credentials_refused }
    }

    fn count(&self, request: &Request, code: &str) {
        self.requests.with_label_values(&[request.op(), code]).inc();
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::future::{BoxFuture, ready};

    use super::*;

    /// A provider that refuses the credentials of every request.
    struct Refusing;

    impl Transport for Refusing {
        fn send(&self, _: http::Request<Bytes>) -> BoxFuture<'_, Result<http::Response<Bytes>, Failure>> {
            let answer = http::Response::builder().status(401).body(Bytes::new()).expect("an answer");
            Box::pin(ready(Ok(answer)))
        }
    }

    fn client(token: Token) -> Client {
        let url = "http://provider".parse().expect("an address");
        Client::new(Settings { url, token, places: 16 }, Refusing, &MetricRegistry::default())
    }

    async fn ask(client: &Client) -> Outcome {
        let request = Request::Get { id: "BK-1".to_owned() };
        client.enter("shop").expect("a place is free").ask(&request, || Timestamp::UNIX_EPOCH).await
    }

    /// A provider that is down until a date.
    struct Down;

    impl Transport for Down {
        fn send(&self, _: http::Request<Bytes>) -> BoxFuture<'_, Result<http::Response<Bytes>, Failure>> {
            let answer = http::Response::builder().status(503);
            let answer = answer.header(header::RETRY_AFTER, "Sun, 06 Nov 1994 08:49:37 GMT").body(Bytes::new());
            Box::pin(ready(Ok(answer.expect("an answer"))))
        }
    }

    /// In simulated time, the clock of the machine shows another day.
    #[tokio::test(start_paused = true)]
    async fn date_in_retry_after_counts_from_the_given_time() {
        let settings = Settings { url: Uri::from_static("http://provider"), token: Token::None, places: 16 };
        let client = Client::new(settings, Down, &MetricRegistry::default());
        let now = || "1994-11-06T08:49:30Z".parse::<Timestamp>().expect("a time");
        let request = Request::Get { id: "BK-1".to_owned() };
        let outcome = client.enter("shop").expect("a place is free").ask(&request, now).await;
        let Outcome::Unknown(unknown) = outcome else { panic!("the provider is down") };
        assert_eq!(unknown.retry_after, Some(Duration::from_secs(7)));
    }

    #[tokio::test]
    async fn refusal_says_whether_a_token_was_sent() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("token");
        std::fs::write(&file, "secret\n").expect("written");
        for (token, anonymous) in [(Token::None, true), (Token::File(file), false)] {
            let Outcome::Refused(refusal) = ask(&client(token)).await else { panic!("no refusal") };
            assert_eq!((refusal.why, refusal.anonymous), (Why::Credentials, anonymous));
        }
    }

    /// Otherwise no metric would show that the operator can do nothing. The circuit is about the provider, which was not asked.
    #[tokio::test]
    async fn request_whose_token_cannot_be_used_counts_as_an_error_and_opens_no_circuit() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("token");
        let client = client(Token::File(file.clone()));
        let count = |code: &str| client.0.metrics.requests.with_label_values(&["get", code]).get();
        let Outcome::Unknown(unknown) = ask(&client).await else { panic!("there is no token") };
        assert!(unknown.why.contains("--booking-token-file"), "{}", unknown.why);
        assert_eq!((count("error"), count("4xx")), (1, 0));
        std::fs::write(&file, "\u{7f}\n").expect("written");
        for number in 2..=20 {
            let Outcome::Unknown(unknown) = ask(&client).await else { panic!("no header can have this token") };
            assert!(unknown.why.contains("HTTP header"), "{}", unknown.why);
            assert_eq!((count("error"), count("4xx")), (number, 0));
        }
        assert_eq!(client.0.admission.lock().open_circuits(Instant::now()), 0);
    }
}
