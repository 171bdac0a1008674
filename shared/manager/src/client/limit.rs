//! Limits the requests to the API server, for `--kube-api-qps` and `--kube-api-burst`.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::{Instant, Sleep, sleep_until};
use tower::{Layer, Service};

/// A limit of requests per second, with a burst after a quiet time. Clones share the limit.
#[derive(Debug, Clone)]
pub(super) struct Limit {
    interval: Duration,
    /// How much earlier than due a request may be sent: the size of the burst.
    ahead: Duration,
    /// When the next request is due, at the plain rate.
    due: Arc<Mutex<Instant>>,
}

impl Limit {
    /// `burst` counts the request that goes first.
    pub(super) fn new(per_second: f64, burst: Option<u32>) -> Self {
        let interval = Duration::from_secs_f64(1.0 / per_second);
        let ahead = match burst {
            Some(burst) => interval * burst.saturating_sub(1),
            None => Duration::from_secs(2).saturating_sub(interval),
        };
        Self { interval, ahead, due: Arc::new(Mutex::new(Instant::now())) }
    }

    /// Reserves a place for a request, and returns when it may be sent.
    fn take(&self) -> Instant {
        let mut due = self.due.lock();
        let now = Instant::now();
        let mine = (*due).max(now);
        *due = mine + self.interval;
        mine.checked_sub(self.ahead).map_or(now, |at| at.max(now))
    }
}

/// A service behind a [`Limit`]: it is ready when the next request may be sent.
#[derive(Debug)]
pub(super) struct Limited<S> {
    inner: S,
    limit: Limit,
    /// Sleeps until the reserved place of the next request.
    place: Option<Pin<Box<Sleep>>>,
}

impl<S> Layer<S> for Limit {
    type Service = Limited<S>;

    fn layer(&self, inner: S) -> Limited<S> {
        Limited { inner, limit: self.clone(), place: None }
    }
}

impl<S: Service<R>, R> Service<R> for Limited<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        let place = self.place.get_or_insert_with(|| Box::pin(sleep_until(self.limit.take())));
        ready!(place.as_mut().poll(context));
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: R) -> S::Future {
        self.place = None;
        self.inner.call(request)
    }
}

#[cfg(test)]
mod tests {
    use tower::ServiceExt;

    use super::*;

    /// Sends this many requests at once, and returns when the limit lets each through, in milliseconds.
    async fn let_through(limit: &Limit, requests: usize) -> Vec<u128> {
        let begun = Instant::now();
        let answers =
            (0..requests).map(|_| limit.layer(tower::service_fn(async |()| Ok::<_, ()>(Instant::now()))).oneshot(()));
        let answers = futures::future::join_all(answers).await;
        answers.into_iter().map(|answer| (answer.expect("an answer") - begun).as_millis()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn limit_enforces_the_rate_and_saves_up_one_burst() {
        let limit = Limit::new(10.0, Some(3));
        assert_eq!(let_through(&limit, 6).await, [0, 0, 0, 100, 200, 300]);
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(let_through(&limit, 3).await, [0, 0, 100], "two have been saved up");
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(let_through(&limit, 4).await, [0, 0, 0, 100], "no more than a burst is saved up");
    }

    #[tokio::test(start_paused = true)]
    async fn default_burst_is_twice_the_rate() {
        assert_eq!(let_through(&Limit::new(2.0, None), 6).await, [0, 0, 0, 0, 500, 1_000]);
        assert_eq!(let_through(&Limit::new(0.5, None), 3).await, [0, 2_000, 4_000]);
    }
}
