//! Tests of a guard whose reviewer does not answer for unknown tokens.

use std::sync::atomic::{AtomicUsize, Ordering};

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
