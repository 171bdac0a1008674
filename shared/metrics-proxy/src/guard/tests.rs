//! Tests of a guard whose reviewer does not answer for unknown tokens.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};

use super::*;

/// Knows `ann`. Never answers for another token.
#[derive(Default)]
struct Slow {
    running: AtomicUsize,
}

struct Running<'a>(&'a AtomicUsize);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Reviewer for Slow {
    fn token<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Option<User>, ReviewError>> {
        if token == "ann" {
            let user = User { name: token.to_owned(), ..User::default() };
            return async { Ok(Some(user)) }.boxed();
        }
        async {
            self.running.fetch_add(1, Ordering::Relaxed);
            let _running = Running(&self.running);
            std::future::pending().await
        }
        .boxed()
    }

    fn access<'a>(&'a self, _: &'a User, _: &'a Attributes) -> BoxFuture<'a, Result<Decision, ReviewError>> {
        async { Ok(Decision { allowed: true, reason: String::new() }) }.boxed()
    }
}

fn guard(reviewer: &Arc<Slow>) -> Guard {
    // Answers are known, but not valid any more.
    let times = CacheTtls {
        token: Duration::ZERO,
        allowed: Duration::ZERO,
        review: Duration::from_hours(1),
        ..CacheTtls::default()
    };
    Guard::new(Rules::default(), reviewer.clone(), times, Arc::new(Metrics::new().unwrap()))
}

fn with(token: &str) -> Parts {
    let request = http::Request::get("/metrics").header("authorization", format!("Bearer {token}")).body(()).unwrap();
    request.into_parts().0
}

/// The same of a client with this address.
fn from(client: &str, token: &str) -> Parts {
    let mut parts = with(token);
    parts.extensions.insert(Peer { address: client.parse().unwrap(), certificate: None });
    parts
}

/// Lets all tasks go on as far as they can.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn review_ends_with_its_last_caller() {
    let reviewer = Arc::new(Slow::default());
    let (guard, parts) = (guard(&reviewer), with("made-up"));
    let (mut one, mut other) = (Box::pin(guard.admit(&parts, false)), Box::pin(guard.admit(&parts, false)));
    assert!(futures::poll!(&mut one).is_pending() && futures::poll!(&mut other).is_pending());
    settle().await;
    assert_eq!(reviewer.running.load(Ordering::Relaxed), 1, "both share one");
    drop(one);
    assert!(futures::poll!(&mut other).is_pending());
    settle().await;
    assert_eq!(reviewer.running.load(Ordering::Relaxed), 1);
    drop(other);
    settle().await;
    assert_eq!(reviewer.running.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn flood_of_unknown_tokens_is_refused_early_and_delays_no_known_user() {
    let reviewer = Arc::new(Slow::default());
    let (guard, ann) = (guard(&reviewer), with("ann"));
    assert!(guard.admit(&ann, false).await.is_ok());
    let parts: Vec<_> = (0..1000).map(|n| with(&format!("made-up-{n}"))).collect();
    let mut flood: FuturesUnordered<_> = parts.iter().map(|parts| guard.admit(parts, false)).collect();
    let mut refused = 0;
    while let Some(Some(answer)) = flood.next().now_or_never() {
        assert_eq!(answer.unwrap_err().status(), 503);
        refused += 1;
    }
    assert!(refused > 800, "only {refused} were refused at once");
    let known = tokio::time::timeout(Duration::from_secs(5), guard.admit(&ann, false)).await;
    assert!(matches!(known, Ok(Ok(_))), "a user who was known before waits behind made-up tokens");
    drop(flood);
}

#[tokio::test(start_paused = true)]
async fn flood_of_unknown_tokens_of_one_address_keeps_out_no_new_client_of_another() {
    let reviewer = Arc::new(Slow::default());
    let guard = guard(&reviewer);
    let parts: Vec<_> = (0..1000).map(|n| from(&format!("10.0.0.1:{n}"), &format!("made-up-{n}"))).collect();
    let mut flood: FuturesUnordered<_> = parts.iter().map(|parts| guard.admit(parts, false)).collect();
    while let Some(Some(answer)) = flood.next().now_or_never() {
        assert!(matches!(answer, Err(Refusal::Crowded)), "{answer:?}");
    }
    assert!(flood.len() > 8, "some wait: {}", flood.len());
    assert_eq!(reviewer.running.load(Ordering::Relaxed), 4, "half of the slots");
    let new = tokio::time::timeout(Duration::from_secs(5), guard.admit(&from("10.0.0.2:1", "ann"), false)).await;
    assert!(matches!(new, Ok(Ok(_))), "a new user waits behind made-up tokens of another address: {new:?}");
    drop(flood);
}

/// The flood has used up the share of its address, so that the new token waits there.
#[tokio::test(start_paused = true)]
async fn client_with_the_token_of_another_address_does_not_wait_in_the_share_of_that_address() {
    let reviewer = Arc::new(Slow::default());
    let guard = guard(&reviewer);
    let parts: Vec<_> = (0..8).map(|n| from("10.0.0.1:1", &format!("made-up-{n}"))).collect();
    let mut flood: FuturesUnordered<_> = parts.iter().map(|parts| guard.admit(parts, false)).collect();
    assert!(flood.next().now_or_never().is_none());
    assert_eq!(reviewer.running.load(Ordering::Relaxed), 4, "half of the slots");
    let (behind, beside) = (from("10.0.0.1:2", "ann"), from("10.0.0.2:1", "ann"));
    let mut behind = Box::pin(guard.admit(&behind, false));
    assert!(futures::poll!(&mut behind).is_pending(), "no slot of its address is left");
    let beside = tokio::time::timeout(Duration::from_secs(5), guard.admit(&beside, false)).await;
    assert!(matches!(beside, Ok(Ok(_))), "{beside:?}");
    assert!(futures::poll!(&mut behind).is_pending(), "the other address lends it no slot");
    drop(flood);
    let behind = tokio::time::timeout(Duration::from_secs(5), behind).await;
    assert!(matches!(behind, Ok(Ok(_))), "{behind:?}");
}

/// Knows every token: that of `ann`, who may read, and any number of tokens of another user, who may not. Once it stalls, it
/// answers only for `ann`.
#[derive(Default)]
struct Issuing {
    stalls: AtomicBool,
    reviews_of_ann: AtomicUsize,
}

impl Reviewer for Issuing {
    fn token<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Option<User>, ReviewError>> {
        let name = if token == "ann" { token } else { "tenant" };
        if token == "ann" {
            self.reviews_of_ann.fetch_add(1, Ordering::Relaxed);
        } else if self.stalls.load(Ordering::Relaxed) {
            return std::future::pending().boxed();
        }
        let user = User { name: name.to_owned(), ..User::default() };
        async { Ok(Some(user)) }.boxed()
    }

    fn access<'a>(&'a self, user: &'a User, _: &'a Attributes) -> BoxFuture<'a, Result<Decision, ReviewError>> {
        if user.name != "ann" && self.stalls.load(Ordering::Relaxed) {
            return std::future::pending().boxed();
        }
        let allowed = user.name == "ann";
        async move { Ok(Decision { allowed, reason: String::new() }) }.boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn valid_tokens_without_access_neither_displace_nor_delay_a_known_user() {
    let (reviewer, metrics) = (Arc::new(Issuing::default()), Arc::new(Metrics::new().unwrap()));
    let guard = Guard::new(Rules::default(), reviewer.clone(), CacheTtls::default(), metrics);
    let ann = with("ann");
    assert!(guard.admit(&ann, false).await.is_ok());
    let issued: Vec<_> = (0..2000).map(|n| with(&format!("issued-{n}"))).collect();
    for parts in &issued {
        let refusal = guard.admit(parts, false).await;
        assert!(matches!(refusal, Err(Refusal::Forbidden(_))), "{refusal:?}");
    }
    assert!(guard.admit(&ann, false).await.is_ok());
    assert_eq!(reviewer.reviews_of_ann.load(Ordering::Relaxed), 1, "valid tokens without access evicted hers");

    // When all are reviewed again, the others wait in queues of their own, also with questions about their access.
    tokio::time::advance(Duration::from_mins(10)).await;
    guard.admit(&issued[0], false).await.unwrap_err();
    reviewer.stalls.store(true, Ordering::Relaxed);
    let path = |n| http::Request::get(format!("/{n}")).header("authorization", "Bearer issued-0").body(()).unwrap();
    let paths: Vec<_> = (0..1000).map(|n| path(n).into_parts().0).collect();
    let mut flood: FuturesUnordered<_> = issued.iter().chain(&paths).map(|parts| guard.admit(parts, false)).collect();
    while let Some(Some(answer)) = flood.next().now_or_never() {
        answer.unwrap_err();
    }
    let known = tokio::time::timeout(Duration::from_secs(5), guard.admit(&ann, false)).await;
    assert!(matches!(known, Ok(Ok(_))), "a user who was known before waits behind tokens without access");
    assert_eq!(reviewer.reviews_of_ann.load(Ordering::Relaxed), 2);
    drop(flood);
}

/// While the token waits for a place of its crowded address, a client of another address brings its answer.
#[tokio::test(start_paused = true)]
async fn token_that_was_reviewed_meanwhile_is_not_reviewed_again_when_its_turn_comes() {
    let (reviewer, metrics) = (Arc::new(Issuing::default()), Arc::new(Metrics::new().unwrap()));
    reviewer.stalls.store(true, Ordering::Relaxed);
    let guard = Guard::new(Rules::default(), reviewer.clone(), CacheTtls::default(), metrics);
    let parts: Vec<_> = (0..8).map(|n| from("10.0.0.1:1", &format!("issued-{n}"))).collect();
    let mut flood: FuturesUnordered<_> = parts.iter().map(|parts| guard.admit(parts, false)).collect();
    assert!(flood.next().now_or_never().is_none());
    let (behind, beside) = (from("10.0.0.1:2", "ann"), from("10.0.0.2:1", "ann"));
    let mut behind = Box::pin(guard.admit(&behind, false));
    assert!(futures::poll!(&mut behind).is_pending(), "no place of its address is left");
    assert!(guard.admit(&beside, false).await.is_ok());
    drop(flood);
    let answer = tokio::time::timeout(Duration::from_secs(5), behind).await;
    assert!(matches!(answer, Ok(Ok(_))), "{answer:?}");
    assert_eq!(reviewer.reviews_of_ann.load(Ordering::Relaxed), 1, "the second review had nothing to find out");
}

/// Fails all reviews, as an API server that refuses them.
struct Broken;

impl Reviewer for Broken {
    fn token<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Option<User>, ReviewError>> {
        async { Err(ReviewError("tokenreviews are forbidden".to_owned())) }.boxed()
    }

    fn access<'a>(&'a self, _: &'a User, _: &'a Attributes) -> BoxFuture<'a, Result<Decision, ReviewError>> {
        async { Err(ReviewError("subjectaccessreviews are forbidden".to_owned())) }.boxed()
    }
}

/// Collects a log.
#[derive(Clone, Default)]
struct Log(Arc<parking_lot::Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn flood_of_made_up_tokens_does_not_fill_the_log_while_reviews_fail() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _set = tracing::subscriber::set_default(subscriber);
    let guard = Guard::new(Rules::default(), Arc::new(Broken), CacheTtls::default(), Arc::new(Metrics::new().unwrap()));
    let flood = async |round: u8| {
        for n in 0..500 {
            let refusal = guard.admit(&with(&format!("made-up-{round}-{n}")), false).await;
            assert!(matches!(refusal, Err(Refusal::Unavailable)), "{refusal:?}");
        }
    };
    flood(0).await;
    let lines = || String::from_utf8(log.0.lock().clone()).unwrap().lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(lines().len(), 1, "{:?}", lines());
    assert!(lines()[0].contains("WARN") && lines()[0].contains("tokenreviews are forbidden"), "{:?}", lines());
    tokio::time::advance(LOGGED).await;
    flood(1).await;
    assert_eq!(lines().len(), 2);
    assert!(lines()[1].contains("more=499"), "{:?}", lines());
}
