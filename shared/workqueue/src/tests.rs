//! The queue as its users see it, on tokio's paused clock.

use std::time::Duration;

use super::*;

#[tokio::test(start_paused = true)]
async fn smoke() {
    let queue = WorkQueue::new(Config::default());
    queue.add("low", Priority::LOW);
    queue.add_after("later", Priority::LIVE, Duration::from_secs(3600));
    queue.add("live", Priority::LIVE);
    for expected in ["live", "low", "later"] {
        let item = queue.get().await.unwrap();
        assert_eq!(*item.key(), expected);
        item.done(Outcome::Success);
    }
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { queue.get().await.is_none() }
    });
    tokio::task::yield_now().await;
    queue.shutdown(Shutdown::Drain);
    assert!(waiting.await.unwrap());
}
