//! A cache of review answers with a TTL for each. Concurrent lookups of a key by clients of one origin share one review. Those of
//! another origin do not: the review waits for a place in the share of one origin, which may be used up. It looks at the cache again
//! when it has got its place.

use std::{collections::HashMap, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared, WeakShared},
};
use parking_lot::{Mutex, MutexGuard};
use serving::Origin;
use tokio::time::Instant;

use crate::{ReviewError, lane::Unanswered};

/// A digest of the question: the cache keeps neither tokens nor names.
pub(crate) type Key = [u8; 32];

/// What an answer is worth. Without a free place, the least valuable answer goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// A no: a client can make up any number of questions.
    Refused,
    /// The user of a token, without more: a user who may create tokens of one `ServiceAccount` has any number of them.
    Authenticated,
    /// An answer that has let a request pass.
    Admitted,
}

/// An answer of a review.
pub(crate) trait Verdict {
    /// The rank of the answer by itself.
    fn rank(&self) -> Rank;
}

/// A question, and the origin of those who wait for its answer. Requests without a known client have no origin.
type Asked = (Key, Option<Origin>);

type InFlight<V> = BoxFuture<'static, Result<(V, Known), Unanswered>>;

/// A cache of at most `limit` answers.
pub(crate) struct Cache<V> {
    limit: usize,
    state: Arc<Mutex<State<V>>>,
}

struct State<V> {
    /// Expired answers stay until there is no place: one that has let a request pass tells that its client is known.
    answers: HashMap<Key, Remembered<V>>,
    /// Reviews that have no answer yet, with their numbers. The callers own them.
    in_flight: HashMap<Asked, (u64, WeakShared<InFlight<V>>)>,
    /// The number of the last review.
    last: u64,
}

struct Remembered<V> {
    answer: V,
    until: Instant,
    rank: Rank,
}

impl<V: Verdict + Clone + Send + Sync + 'static> Cache<V> {
    pub(crate) fn new(limit: usize) -> Self {
        let state = State { answers: HashMap::new(), in_flight: HashMap::new(), last: 0 };
        Self { limit, state: Arc::new(Mutex::new(state)) }
    }

    /// Returns the cached answer, or else the one of `ask`, which asks when its [`Turn`] has come. Concurrent callers of one origin
    /// share one call of `ask`, which ends when all of them are cancelled. `lasts` gives the TTL of an answer. Errors are not cached.
    pub(crate) async fn get<F>(
        &self,
        key: Key,
        of: Option<Origin>,
        lasts: impl Fn(&V) -> Duration + Send + 'static,
        ask: impl FnOnce(Turn<V>) -> F,
    ) -> (Result<V, Unanswered>, Known)
    where
        F: Future<Output = Result<(V, Known), Unanswered>> + Send + 'static,
    {
        let (flight, is_shared) = {
            let mut state = lock(&self.state);
            if let Some(answer) = state.valid(&key) {
                return (Ok(answer), Known::Remembered);
            }
            let was_admitted = state.answers.get(&key).is_some_and(|it| it.rank == Rank::Admitted);
            if let Some(flight) = state.in_flight.get(&(key, of)).and_then(|(_, flight)| flight.upgrade()) {
                (flight, true)
            } else {
                state.last += 1;
                let number = state.last;
                let turn = Turn { was_admitted, key, state: self.state.clone() };
                let flight = self.ask((key, of), number, lasts, ask(turn));
                if let Some(weak) = flight.downgrade() {
                    state.in_flight.insert((key, of), (number, weak));
                }
                (flight, false)
            }
        };
        let (answer, known) = match flight.await {
            Ok((answer, known)) => (Ok(answer), known),
            Err(why) => (Err(why), Known::Reviewed),
        };
        (answer, if is_shared { Known::Shared } else { known })
    }

    /// Notes that the answer to `key` has let a request pass. A no lets none pass.
    pub(crate) fn admitted(&self, key: &Key) {
        let mut state = lock(&self.state);
        if let Some(it) = state.answers.get_mut(key)
            && it.rank > Rank::Refused
        {
            it.rank = Rank::Admitted;
        }
    }

    fn ask<F>(
        &self,
        asked: Asked,
        number: u64,
        lasts: impl Fn(&V) -> Duration + Send + 'static,
        answer: F,
    ) -> Shared<InFlight<V>>
    where
        F: Future<Output = Result<(V, Known), Unanswered>> + Send + 'static,
    {
        let (state, limit) = (self.state.clone(), self.limit);
        // Dropped also after an error, a panic or a cancellation, so that the next caller can ask again.
        let end = EndOfFlight { asked, number, state: self.state.clone() };
        let answered = async move {
            let _end = end;
            let panicked = |_| Err(Unanswered::Failed(ReviewError("the review panicked".to_owned())));
            let (answer, known) = AssertUnwindSafe(answer).catch_unwind().await.unwrap_or_else(panicked)?;
            if known == Known::Reviewed {
                let until = Instant::now() + lasts(&answer);
                lock(&state).remember(limit, asked.0, answer.clone(), until);
            }
            Ok((answer, known))
        };
        answered.boxed().shared()
    }
}

/// The turn of a question, which comes when its review has got a place.
pub(crate) struct Turn<V> {
    /// Whether an earlier answer has let a request pass.
    pub(crate) was_admitted: bool,
    key: Key,
    state: Arc<Mutex<State<V>>>,
}

impl<V: Clone> Turn<V> {
    /// The answer that another review has brought while this one waited, or else that of `review`.
    pub(crate) async fn or_review<E>(self, review: impl Future<Output = Result<V, E>>) -> Result<(V, Known), E> {
        let meanwhile = lock(&self.state).valid(&self.key);
        match meanwhile {
            Some(answer) => Ok((answer, Known::Remembered)),
            None => Ok((review.await?, Known::Reviewed)),
        }
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

impl<V: Clone> State<V> {
    /// The answer, unless it has expired.
    fn valid(&self, key: &Key) -> Option<V> {
        self.answers.get(key).filter(|it| it.until > Instant::now()).map(|it| it.answer.clone())
    }
}

impl<V: Verdict> State<V> {
    fn remember(&mut self, limit: usize, key: Key, answer: V, until: Instant) {
        if self.answers.len() >= limit {
            let now = Instant::now();
            self.answers.retain(|_, it| it.rank == Rank::Admitted || it.until > now);
        }
        // Evict by rank first, so that a flood of made-up tokens, or of valid ones without access, evicts no user with access.
        while self.answers.len() >= limit && !self.answers.contains_key(&key) {
            let first = self.answers.iter().min_by_key(|(_, it)| (it.rank, it.until)).map(|(key, _)| *key);
            let Some(first) = first else { break };
            self.answers.remove(&first);
        }
        let rank = match answer.rank() {
            Rank::Refused => Rank::Refused,
            rank => self.answers.get(&key).map_or(rank, |earlier| rank.max(earlier.rank)),
        };
        self.answers.insert(key, Remembered { answer, until, rank });
    }
}

struct EndOfFlight<V> {
    asked: Asked,
    number: u64,
    state: Arc<Mutex<State<V>>>,
}

impl<V> Drop for EndOfFlight<V> {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        // After a cancellation, another review of the same question may have begun.
        if state.in_flight.get(&self.asked).is_some_and(|(number, _)| *number == self.number) {
            state.in_flight.remove(&self.asked);
        }
    }
}

fn lock<V>(state: &Mutex<State<V>>) -> MutexGuard<'_, State<V>> {
    state.lock()
}

#[cfg(test)]
mod tests {
    use std::{
        net::SocketAddr,
        pin::pin,
        sync::atomic::{AtomicU32, Ordering},
    };

    use tokio::sync::Semaphore;

    use super::*;

    /// From here on, a number is the user of a token.
    const TOKENS: u8 = 201;

    impl Verdict for u8 {
        fn rank(&self) -> Rank {
            match *self {
                0 => Rank::Admitted,
                1..TOKENS => Rank::Refused,
                TOKENS.. => Rank::Authenticated,
            }
        }
    }

    const MINUTE: Duration = Duration::from_mins(1);

    fn key(n: u8) -> Key {
        [n; 32]
    }

    async fn get(cache: &Cache<u8>, n: u8, lasts: Duration) -> Known {
        let (answer, known) =
            cache.get(key(n), None, move |_| lasts, move |_| async move { Ok((n, Known::Reviewed)) }).await;
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
                    let ask = |_| async move {
                        count.fetch_add(1, Ordering::Relaxed);
                        permits.acquire().await.unwrap().forget();
                        Ok((7, Known::Reviewed))
                    };
                    cache.get(key(1), None, |_| MINUTE, ask).await.0
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
    async fn answer_that_came_while_a_review_waited_is_used_and_keeps_its_ttl() {
        let cache = Cache::new(10);
        let places = Arc::new(Semaphore::new(0));
        let waits = places.clone();
        let ask = |turn: Turn<u8>| async move {
            waits.acquire().await.unwrap().forget();
            turn.or_review(async { Ok::<_, Unanswered>(2) }).await
        };
        let client = Origin::from("10.0.0.1:1".parse::<SocketAddr>().unwrap());
        let mut behind = pin!(cache.get(key(1), Some(client), |_| MINUTE, ask));
        assert!(futures::poll!(&mut behind).is_pending());
        assert_eq!(get(&cache, 1, MINUTE).await, Known::Reviewed, "a client of another origin waits for no place");
        tokio::time::advance(Duration::from_millis(59_999)).await;
        places.add_permits(1);
        assert_eq!(behind.await, (Ok(1), Known::Remembered));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(get(&cache, 1, MINUTE).await, Known::Reviewed, "the TTL begins with the review");
    }

    #[tokio::test(start_paused = true)]
    async fn errors_and_panics_are_not_cached() {
        let cache = Cache::<u8>::new(10);
        let failed = || Unanswered::Failed(ReviewError("away".to_owned()));
        let (answer, _) = cache.get(key(1), None, |_| MINUTE, |_| async move { Err(failed()) }).await;
        assert_eq!(answer, Err(failed()));
        let (answer, _) = cache.get(key(1), None, |_| MINUTE, |_| async { panic!("in a review") }).await;
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

    #[tokio::test(start_paused = true)]
    async fn tokens_without_access_do_not_evict_admitted_ones() {
        let cache = Cache::new(10);
        get(&cache, TOKENS, MINUTE).await;
        cache.admitted(&key(TOKENS));
        for n in TOKENS + 1..=u8::MAX {
            get(&cache, n, 5 * MINUTE).await;
        }
        assert_eq!(get(&cache, TOKENS, MINUTE).await, Known::Remembered);
        tokio::time::advance(MINUTE).await;
        let mut was_known = false;
        let ask = |turn: Turn<u8>| {
            was_known = turn.was_admitted;
            async { Ok((TOKENS, Known::Reviewed)) }
        };
        let (_, known) = cache.get(key(TOKENS), None, |_| MINUTE, ask).await;
        assert_eq!((known, was_known), (Known::Reviewed, true));
        for n in TOKENS + 1..=u8::MAX {
            get(&cache, n, 5 * MINUTE).await;
        }
        assert_eq!(get(&cache, TOKENS, MINUTE).await, Known::Remembered, "a further review keeps the rank");
    }
}
