//! A cache of review answers with a TTL for each. Concurrent lookups of a key share one review.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::ReviewError;

/// A digest of the question: the cache keeps neither tokens nor names.
pub(crate) type Key = [u8; 32];

type InFlight<V> = Shared<BoxFuture<'static, Result<V, ReviewError>>>;

/// A cache of at most `limit` answers.
pub(crate) struct Cache<V> {
    limit: usize,
    state: Arc<Mutex<State<V>>>,
}

struct State<V> {
    answers: HashMap<Key, (V, Instant)>,
    /// Reviews that have no answer yet.
    in_flight: HashMap<Key, InFlight<V>>,
}

impl<V: Clone + Send + Sync + 'static> Cache<V> {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, state: Arc::new(Mutex::new(State { answers: HashMap::new(), in_flight: HashMap::new() })) }
    }

    /// Returns the cached answer, or else the one of `ask`. Concurrent callers share one call of `ask`, which runs to its end
    /// even if all callers are cancelled. `lasts` gives the TTL of an answer. Errors are not cached.
    pub(crate) async fn get<F>(
        &self,
        key: Key,
        lasts: impl Fn(&V) -> Duration + Send + 'static,
        ask: impl FnOnce() -> F,
    ) -> (Result<V, ReviewError>, Known)
    where
        F: Future<Output = Result<V, ReviewError>> + Send + 'static,
    {
        let (flight, known) = {
            let mut state = lock(&self.state);
            if let Some((answer, until)) = state.answers.get(&key)
                && *until > Instant::now()
            {
                return (Ok(answer.clone()), Known::Remembered);
            }
            if let Some(flight) = state.in_flight.get(&key) {
                (flight.clone(), Known::Shared)
            } else {
                let flight = self.ask(key, lasts, ask());
                state.in_flight.insert(key, flight.clone());
                (flight, Known::Reviewed)
            }
        };
        (flight.await, known)
    }

    fn ask<F>(&self, key: Key, lasts: impl Fn(&V) -> Duration + Send + 'static, answer: F) -> InFlight<V>
    where
        F: Future<Output = Result<V, ReviewError>> + Send + 'static,
    {
        let (state, limit) = (self.state.clone(), self.limit);
        let task = tokio::spawn(async move {
            // Dropped also after an error or a panic, so that the next caller can ask again.
            let _in_flight = EndOfFlight { key, state: &state };
            let answer = answer.await?;
            let until = Instant::now() + lasts(&answer);
            lock(&state).remember(limit, key, answer.clone(), until);
            Ok(answer)
        });
        let ended = task.map(|result| result.unwrap_or_else(|error| Err(ReviewError(error.to_string()))));
        ended.boxed().shared()
    }
}

/// Where an answer came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// From the cache.
    Remembered,
    /// From a review that another caller had started.
    Shared,
    /// From a new review.
    Reviewed,
}

impl<V> State<V> {
    fn remember(&mut self, limit: usize, key: Key, answer: V, until: Instant) {
        if self.answers.len() >= limit {
            let now = Instant::now();
            self.answers.retain(|_, (_, until)| *until > now);
        }
        // Evict what expires first. Refusals have the shorter TTL, so a flood of them does not evict the users with access.
        while self.answers.len() >= limit {
            let first = self.answers.iter().min_by_key(|(_, (_, until))| *until).map(|(key, _)| *key);
            let Some(first) = first else { break };
            self.answers.remove(&first);
        }
        self.answers.insert(key, (answer, until));
    }
}

struct EndOfFlight<'a, V> {
    key: Key,
    state: &'a Mutex<State<V>>,
}

impl<V> Drop for EndOfFlight<'_, V> {
    fn drop(&mut self) {
        lock(self.state).in_flight.remove(&self.key);
    }
}

fn lock<V>(state: &Mutex<State<V>>) -> MutexGuard<'_, State<V>> {
    state.lock()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::sync::Semaphore;

    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    fn key(n: u8) -> Key {
        [n; 32]
    }

    async fn get(cache: &Cache<u8>, n: u8, lasts: Duration) -> Known {
        let (answer, known) = cache.get(key(n), move |_| lasts, move || async move { Ok(n) }).await;
        assert_eq!(answer, Ok(n));
        known
    }

    #[tokio::test(start_paused = true)]
    async fn cached_answer_expires_after_ttl() {
        let cache = Cache::new(10);
        assert_eq!(get(&cache, 1, MINUTE).await, Known::Reviewed);
        tokio::time::advance(Duration::from_millis(59_999)).await;
        assert_eq!(get(&cache, 1, MINUTE).await, Known::Remembered);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(get(&cache, 1, MINUTE).await, Known::Reviewed, "a lookup does not extend the TTL");
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_callers_share_one_review() {
        let cache = Arc::new(Cache::new(10));
        let (count, permits) = (Arc::new(AtomicU32::new(0)), Arc::new(Semaphore::new(0)));
        let crowd: Vec<_> = (0..1000)
            .map(|_| {
                let (cache, count, permits) = (cache.clone(), count.clone(), permits.clone());
                tokio::spawn(async move {
                    let ask = || async move {
                        count.fetch_add(1, Ordering::Relaxed);
                        permits.acquire().await.unwrap().forget();
                        Ok(7)
                    };
                    cache.get(key(1), |_| MINUTE, ask).await.0
                })
            })
            .collect();
        tokio::task::yield_now().await;
        crowd[0].abort(); // Cancel the caller that started the review: the others still get the answer.
        permits.add_permits(1);
        for (n, one) in crowd.into_iter().enumerate() {
            let answer = tokio::time::timeout(MINUTE, one).await.expect("a caller got no answer");
            assert_eq!(answer.ok(), (n > 0).then_some(Ok(7)));
        }
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn errors_and_panics_are_not_cached() {
        let cache = Cache::<u8>::new(10);
        let failed = || Err(ReviewError("away".to_owned()));
        let (answer, _) = cache.get(key(1), |_| MINUTE, || async move { failed() }).await;
        assert_eq!(answer, failed());
        let (answer, _) = cache.get(key(1), |_| MINUTE, || async { panic!("in a review") }).await;
        assert!(answer.is_err());
        assert_eq!(get(&cache, 1, MINUTE).await, Known::Reviewed);
    }

    #[tokio::test(start_paused = true)]
    async fn denials_do_not_evict_allowed_entries() {
        let cache = Cache::new(10);
        get(&cache, 0, 5 * MINUTE).await;
        for n in 1..=200 {
            get(&cache, n, MINUTE / 2).await;
        }
        assert_eq!(lock(&cache.state).answers.len(), 10);
        assert_eq!(get(&cache, 0, MINUTE).await, Known::Remembered);
        tokio::time::advance(MINUTE).await;
        get(&cache, 1, MINUTE).await;
        assert_eq!(lock(&cache.state).answers.len(), 2, "a full cache drops expired answers");
        assert!(lock(&cache.state).in_flight.is_empty());
    }
}
