//! Tests of the public interface, on tokio's paused clock.

mod promises;
mod recorder;
mod upstream;

use std::sync::Arc;
use std::time::Duration;

use super::*;
pub(crate) use recorder::Recorder;

/// A queue of names without jitter, and the recorder of its metrics.
fn queue() -> (WorkQueue<&'static str>, Arc<Recorder>) {
    let recorder = Arc::new(Recorder::default());
    let backoff = Backoff { jitter: 0.0, ..Backoff::default() };
    (WorkQueue::new(Config { backoff, metrics: recorder.clone(), ..Config::default() }), recorder)
}

/// Takes the next item, which must be ready now and have this key.
#[track_caller]
fn take(queue: &WorkQueue<&'static str>, key: &str) -> Item<&'static str> {
    let item = queue.try_get().unwrap_or_else(|| panic!("{key} should be ready"));
    assert_eq!(*item.key(), key);
    item
}

#[track_caller]
fn assert_nothing_ready(queue: &WorkQueue<&'static str>) {
    if let Some(item) = queue.try_get() {
        panic!("{item:?} should not be ready");
    }
}

/// Starts a task that calls `get`. It is waiting already when this returns.
async fn waiting(queue: &WorkQueue<&'static str>) -> tokio::task::JoinHandle<Option<Item<&'static str>>> {
    let queue = queue.clone();
    let task = tokio::spawn(async move { queue.get().await });
    settle().await;
    task
}

/// Lets every task run until it waits.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

async fn advance(duration: Duration) {
    tokio::time::advance(duration).await;
    settle().await;
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}
