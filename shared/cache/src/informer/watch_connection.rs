//! The connection of one watch to the API server. It adds what `kube`'s client lacks: a signal that a watch has begun, a
//! time-out until the answer begins, a limit of the length of a page, and `Retry-After`.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use api_errors::retry_after_seconds;
use fastrand::Rng;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use kube::{Client, client::Body};
use tokio::time::{Instant, timeout};
use tower::{BoxError, service_fn};

use super::{InformerHealth, page_size::LONGEST};

/// The time-out of a list, and of a watch until its answer begins. The API server itself ends other requests after a minute.
const ANSWER: Duration = Duration::from_mins(1);

/// The API server, or a proxy in front of it, has not answered within [`ANSWER`].
#[derive(Debug, thiserror::Error)]
#[error("no answer within {}s", ANSWER.as_secs())]
struct Silent;

/// The connection of one watch to the API server.
#[derive(Debug)]
pub(super) struct WatchConnection {
    health: Arc<InformerHealth>,
    /// Which of the informer's watches this is.
    pub(super) watch: usize,
    /// `Retry-After` of the last 429 or 503 in seconds; [`take_retry_after`](Self::take_retry_after) resets it to 0.
    retry_after: AtomicU32,
}

impl WatchConnection {
    pub(super) fn new(health: Arc<InformerHealth>, watch: usize) -> Arc<Self> {
        Arc::new(Self { health, watch, retry_after: AtomicU32::new(0) })
    }

    /// Wraps `client`: a client whose requests go over this connection.
    pub(super) fn over(self: &Arc<Self>, client: Client) -> Client {
        self.wrap(client, true)
    }

    /// Does the same for requests about something else than the objects: a watch that begins does not show that these are in sync.
    pub(super) fn beside(self: &Arc<Self>, client: Client) -> Client {
        self.wrap(client, false)
    }

    fn wrap(self: &Arc<Self>, client: Client, reads_objects: bool) -> Client {
        let connection = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let (connection, client) = (connection.clone(), client.clone());
            async move {
                let is_watch = has(&request, "watch=true");
                let longest = if has(&request, "limit=1") { usize::MAX } else { LONGEST };
                let answer = timeout(ANSWER, async {
                    let (head, body) = client.send(request).await?.into_parts();
                    // A list is read to its end here, so that the time-out covers its body too.
                    let body: Body =
                        if is_watch { body } else { Limited::new(body, longest).collect().await?.to_bytes().into() };
                    Ok::<_, BoxError>((head, body))
                });
                let (head, body) = answer.await.map_err(|_| Silent)??;
                connection.health.heard(connection.watch);
                if let StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE = head.status {
                    connection.retry_after.store(retry_after_seconds(&head.headers).unwrap_or(0), Ordering::Relaxed);
                }
                if is_watch && reads_objects && head.status.is_success() {
                    connection.health.synced(connection.watch);
                }
                let body = body.map_frame(move |frame| {
                    connection.health.heard(connection.watch);
                    frame
                });
                Ok::<_, BoxError>(Response::from_parts(head, body))
            }
        });
        Client::new(service, "")
    }

    /// Whether the last answer was that the cluster lacks the kind, and no controller requires it.
    pub(super) fn waits_for_the_kind(&self) -> bool {
        self.health.is_optional_and_missing(self.watch)
    }

    /// `Retry-After` of the last answer, for which the caller is about to wait; zero without one.
    pub(super) fn take_retry_after(&self) -> Duration {
        Duration::from_secs(self.retry_after.swap(0, Ordering::Relaxed).into())
    }

    /// The back-off for retries on this connection, with jitter from `random`.
    pub(super) fn retry_delay(self: &Arc<Self>, random: Rng) -> RetryDelay {
        RetryDelay { connection: self.clone(), random, failures: 0, due: None }
    }
}

/// Whether the query of a request has this parameter with this value.
fn has(request: &Request<Body>, parameter: &str) -> bool {
    request.uri().query().into_iter().flat_map(|it| it.split('&')).any(|it| it == parameter)
}

/// The back-off of one watch: 200 ms, doubling up to 5 s, with jitter. So a new CRD is noticed soon, and an API server that
/// comes back is not stormed. A longer `Retry-After` of the API server wins.
///
/// For a missing kind that no controller requires, each wait is four times as long as the last one, up to 10 min. Where its definition
/// may be watched, this matters only until the watch begins.
#[derive(Debug)]
pub(super) struct RetryDelay {
    connection: Arc<WatchConnection>,
    random: Rng,
    failures: u32,
    /// When the last wait ended.
    due: Option<Instant>,
}

/// The longest wait when the API server fails, or for a missing kind that a controller requires.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// The longest wait for a missing kind that no controller requires. The alert `OperatorWatchSilent` takes 15 min without an answer for
/// an outage.
const LONGEST_WAIT_FOR_MISSING_KIND: Duration = Duration::from_mins(10);
/// When this time has passed since the last wait, the back-off starts again at the shortest wait.
const BACKOFF_RESET: Duration = Duration::from_secs(30);

impl RetryDelay {
    pub(super) fn next_wait(&mut self) -> Duration {
        let ceiling = self.ceiling();
        self.failures += 1;
        let retry_after = self.connection.take_retry_after();
        let wait = ceiling.mul_f64(self.random.f64().mul_add(0.5, 0.5)).max(retry_after);
        self.due = Some(Instant::now() + wait);
        wait
    }

    /// The next wait, if it cannot last longer than `limit`. Otherwise `Retry-After` remains for the next caller.
    pub(super) fn next_wait_within(&mut self, limit: Duration) -> Option<Duration> {
        let retry_after = Duration::from_secs(self.connection.retry_after.load(Ordering::Relaxed).into());
        (self.ceiling().max(retry_after) <= limit).then(|| self.next_wait())
    }

    /// The longest time of the next wait, unless `Retry-After` is longer.
    fn ceiling(&mut self) -> Duration {
        if self.due.is_none_or(|due| due.elapsed() > BACKOFF_RESET) {
            self.failures = 0;
        }
        let (longest, doublings) = if self.connection.waits_for_the_kind() {
            (LONGEST_WAIT_FOR_MISSING_KIND, self.failures.saturating_mul(2))
        } else {
            (LONGEST_WAIT, self.failures)
        };
        Duration::from_millis(200).saturating_mul(1 << doublings.min(12)).min(longest)
    }
}
