//! Guarantees of this queue beyond controller-runtime's cases.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use super::*;

fn failure_or_after(latest: Duration) -> Outcome {
    Outcome::Failure { base: None, latest: Some(latest) }
}

// Ageing.

#[test]
fn a_low_priority_cannot_starve() {
    let queue = WorkQueue::new(Config { patience: 3, ..Config::default() });
    for number in 0..3 {
        queue.add(("low", number), Priority::LOW);
    }
    // A flood: for each live key handed out, two more are added.
    let mut order = Vec::new();
    for number in 0..12 {
        queue.add(("live", 2 * number), Priority::LIVE);
        queue.add(("live", 2 * number + 1), Priority::LIVE);
        let item = queue.try_get().unwrap();
        order.push(item.key().0);
        item.done(Outcome::Success);
    }
    let four = ["live", "live", "live", "low"];
    assert_eq!(order, [four, four, four].concat());
}

#[test]
fn live_changes_are_not_stuck_behind_an_old_backlog() {
    let queue = WorkQueue::new(Config::default());
    for number in 0..10_000 {
        queue.add(number, Priority::LOW);
    }
    queue.add(-1, Priority::LIVE);
    assert_eq!(*queue.try_get().unwrap().key(), -1);
}

#[test]
fn raised_key_keeps_its_age() {
    let queue = WorkQueue::new(Config { patience: 1, ..Config::default() });
    queue.add("old", Priority(0));
    queue.add("urgent", Priority(2));
    queue.add("more urgent", Priority(2));
    queue.add("old", Priority(1));
    let items = [(); 3].map(|()| queue.try_get().unwrap());
    assert_eq!(items.each_ref().map(|item| *item.key()), ["urgent", "old", "more urgent"]);
}

#[test]
fn key_that_is_taken_out_of_turn_comes_back_if_it_is_added_meanwhile() {
    let (queue, _) = queue();
    queue.add("foo", Priority::LIVE);
    queue.add("bar", Priority::LIVE);
    queue.add_after("later", Priority::LIVE, Duration::from_hours(1));
    let mut keys = queue.ready_keys();
    keys.sort_unstable();
    assert_eq!(keys, ["bar", "foo"]);
    let bar = queue.try_get_key(&"bar").expect("it is ready");
    assert_eq!(*bar.key(), "bar");
    queue.add("bar", Priority::LIVE);
    for (key, why) in [("bar", "a worker has it"), ("later", "it is delayed"), ("other", "it is unknown")] {
        assert!(queue.try_get_key(&key).is_none(), "{why}");
    }
    assert_eq!(queue.ready_keys(), ["foo"]);
    bar.done(Outcome::Success);
    take(&queue, "foo").done(Outcome::Success);
    take(&queue, "bar").done(Outcome::Success);
    assert_nothing_ready(&queue);
}

// Delays and priorities.

#[test]
fn a_delayed_add_of_a_running_key_takes_effect_when_it_is_done() {
    let (queue, _) = queue();
    queue.add("foo", Priority::LIVE);
    let foo = take(&queue, "foo");
    queue.add_after("foo", Priority::LIVE, ms(5000));
    queue.add_after("foo", Priority::LIVE, ms(1000));
    queue.add_after("foo", Priority::LIVE, ms(3000));
    foo.done(Outcome::RequeueAfter(ms(2000)));
    assert_nothing_ready(&queue);
    assert!(queue.next_ready().unwrap() <= ms(1000));
}

#[tokio::test(start_paused = true)]
async fn delay_expired_while_running_requeues_the_key_at_once() {
    let (queue, metrics) = queue();
    queue.add("foo", Priority::LIVE);
    let foo = take(&queue, "foo");
    queue.add_after("foo", Priority::LIVE, ms(10));
    advance(ms(30)).await;
    assert_eq!(queue.len(), 1);
    metrics.assert_depth([(0, 1)]);
    assert_nothing_ready(&queue);
    foo.done(Outcome::Success);
    assert_eq!(take(&queue, "foo").waited(), ms(20));
}

#[tokio::test(start_paused = true)]
async fn every_requeue_outcome_keeps_the_priority() {
    let (queue, _) = queue();
    let timed = [Outcome::RequeueAfter, Outcome::NotBefore, failure_or_after].map(|outcome| outcome(ms(1)));
    for outcome in timed.into_iter().chain([Outcome::FAILURE]) {
        queue.add("foo", Priority(7));
        take(&queue, "foo").done(outcome);
        let foo = queue.get().await.unwrap();
        assert_eq!(foo.priority(), Priority(7), "{outcome:?}");
        foo.with_requeue_priority(Priority(-3)).done(outcome);
        let foo = queue.get().await.unwrap();
        assert_eq!(foo.priority(), Priority(-3), "{outcome:?}");
        foo.done(Outcome::Success);
    }
}

#[test]
fn key_added_while_running_returns_with_the_new_priority() {
    let (queue, _) = queue();
    queue.add("foo", Priority::LIVE);
    let foo = take(&queue, "foo");
    queue.add("foo", Priority::LOW);
    foo.done(Outcome::Success);
    assert_eq!(take(&queue, "foo").priority(), Priority::LOW);
}

#[tokio::test(start_paused = true)]
async fn maximum_delay_does_not_panic() {
    let (queue, _) = queue();
    queue.add_after("foo", Priority::LIVE, Duration::MAX);
    let waiting = waiting(&queue).await;
    advance(Duration::from_hours(100)).await;
    assert!(!waiting.is_finished());
    queue.add("foo", Priority::LIVE);
    assert!(waiting.await.unwrap().is_some());
}

// Back-off.

#[tokio::test(start_paused = true)]
async fn back_off_grows_from_5_ms_to_5_min_and_resets_on_success() {
    let (queue, _) = queue();
    queue.add("foo", Priority::LIVE);
    let mut expected = ms(5);
    for failures in 0..25 {
        let foo = queue.get().await.unwrap();
        assert_eq!(foo.failures(), failures);
        foo.done(Outcome::FAILURE);
        assert_eq!(queue.next_ready(), Some(expected));
        expected = (2 * expected).min(Duration::from_mins(5));
    }
    queue.get().await.unwrap().done(Outcome::Success);
    queue.add("foo", Priority::LIVE);
    take(&queue, "foo").done(Outcome::FAILURE);
    assert_eq!(queue.next_ready(), Some(ms(5)));
}

/// kubernetes #132805: in client-go, each of these triggers would double the wait.
#[tokio::test(start_paused = true)]
async fn triggers_neither_inflate_nor_reset_the_back_off() {
    let (queue, _) = queue();
    queue.add("foo", Priority::LIVE);
    for _ in 0..8 {
        queue.get().await.unwrap().done(Outcome::FAILURE);
    }
    assert_eq!(queue.next_ready(), Some(ms(640)));
    for left in (10..=630).rev().step_by(10) {
        advance(ms(10)).await;
        queue.add("foo", Priority::LIVE);
        take(&queue, "foo").done(Outcome::FAILURE);
        assert_eq!((queue.failures(&"foo"), queue.next_ready()), (8, Some(ms(left))));
    }
    queue.get().await.unwrap().done(Outcome::FAILURE);
    assert_eq!((queue.failures(&"foo"), queue.next_ready()), (9, Some(ms(1280))));
}

#[tokio::test(start_paused = true)]
async fn not_before_holds_the_key_until_its_time() {
    let (queue, metrics) = queue();
    queue.add("foo", Priority::LOW);
    take(&queue, "foo").done(Outcome::FAILURE);
    let foo = queue.get().await.unwrap();
    queue.add("foo", Priority(3));
    foo.done(Outcome::NotBefore(ms(30_000)));
    assert_eq!((queue.failures(&"foo"), queue.next_ready()), (1, Some(ms(30_000))), "added while it ran");
    metrics.assert_depth([(Priority::LOW.0, 0), (3, 0)]);
    queue.add("foo", Priority(5));
    queue.add_after("foo", Priority::LOW, ms(7));
    assert_nothing_ready(&queue);
    assert_eq!(queue.next_ready(), Some(ms(30_000)), "added while it waits");
    let foo = queue.get().await.unwrap();
    assert_eq!((foo.priority(), foo.failures(), foo.waited()), (Priority(5), 1, ms(0)));
    foo.done(Outcome::FAILURE);
    assert_eq!((queue.failures(&"foo"), queue.next_ready()), (2, Some(ms(10))));
    queue.add("foo", Priority::LIVE);
    take(&queue, "foo").done(Outcome::Success);
}

#[tokio::test(start_paused = true)]
async fn blocked_key_can_be_forgotten_and_is_dropped_at_shutdown() {
    let (queue, _) = queue();
    queue.add("foo", Priority::LIVE);
    take(&queue, "foo").done(Outcome::NotBefore(ms(30_000)));
    queue.forget(&"foo");
    queue.add("foo", Priority::LIVE);
    take(&queue, "foo").done(Outcome::NotBefore(ms(30_000)));
    queue.shutdown(Shutdown::Drain);
    assert!(queue.get().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn failure_with_a_latest_time_requeues_at_the_earlier_one() {
    let (queue, _) = queue();
    queue.add("foo", Priority::LIVE);
    for _ in 0..9 {
        queue.get().await.unwrap().done(failure_or_after(ms(10_000)));
    }
    assert_eq!((queue.failures(&"foo"), queue.next_ready()), (9, Some(ms(1280))), "the back-off is earlier");
    queue.get().await.unwrap().done(failure_or_after(ms(400)));
    assert_eq!((queue.failures(&"foo"), queue.next_ready()), (10, Some(ms(400))), "the fixed time is earlier");
    // The key comes back before the back-off is over: the back-off neither grows nor starts again.
    queue.get().await.unwrap().done(failure_or_after(ms(2000)));
    assert_eq!((queue.failures(&"foo"), queue.next_ready()), (10, Some(ms(2000))));
    queue.get().await.unwrap().done(failure_or_after(ms(2000)));
    assert_eq!((queue.failures(&"foo"), queue.next_ready()), (10, Some(ms(160))), "the rest of 2560 ms");
    queue.get().await.unwrap().done(Outcome::FAILURE);
    assert_eq!((queue.failures(&"foo"), queue.next_ready()), (11, Some(ms(5120))));
}

#[tokio::test(start_paused = true)]
async fn back_off_begins_with_the_base_of_the_outcome() {
    let (queue, _) = queue();
    queue.add("foo", Priority::LIVE);
    for wait in [1_000, 2_000, 4_000] {
        queue.get().await.unwrap().done(Outcome::Failure { base: Some(ms(1_000)), latest: None });
        assert_eq!(queue.next_ready(), Some(ms(wait)));
    }
    queue.get().await.unwrap().done(Outcome::FAILURE);
    assert_eq!(
        (queue.failures(&"foo"), queue.next_ready()),
        (4, Some(ms(40))),
        "all failures count, whatever their base"
    );
}

#[tokio::test(start_paused = true)]
async fn requeue_after_and_wait_for_change_reset_the_back_off() {
    let (queue, _) = queue();
    for outcome in [Outcome::RequeueAfter(ms(1)), Outcome::WaitForChange] {
        queue.add("foo", Priority::LIVE);
        queue.get().await.unwrap().done(Outcome::FAILURE);
        queue.get().await.unwrap().done(outcome);
        assert_eq!(queue.failures(&"foo"), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn forget_resets_back_off_but_keeps_the_current_wait() {
    let (queue, _) = queue();
    queue.add("foo", Priority::LIVE);
    for _ in 0..5 {
        queue.get().await.unwrap().done(Outcome::FAILURE);
    }
    queue.forget(&"foo");
    assert_eq!((queue.failures(&"foo"), queue.next_ready()), (0, Some(ms(80))));
    queue.get().await.unwrap().done(Outcome::FAILURE);
    assert_eq!((queue.failures(&"foo"), queue.next_ready()), (1, Some(ms(5))));
}

#[tokio::test(start_paused = true)]
async fn jitter_spreads_by_a_fifth_and_repeats_with_the_seed() {
    let waits = |seed| -> Vec<Duration> {
        let base = Duration::from_hours(1);
        let backoff = Backoff { base, max: base, ..Backoff::default() };
        let queue = WorkQueue::new(Config { backoff, seed, ..Config::default() });
        let wait = |key: u32| {
            queue.add(key, Priority::LIVE);
            queue.try_get().unwrap().done(Outcome::FAILURE);
            let wait = queue.next_ready().unwrap();
            queue.add(key, Priority::LIVE);
            queue.try_get().unwrap().done(Outcome::Success);
            wait
        };
        (0..200).map(wait).collect()
    };
    let repeatable = waits(Some(1));
    assert!(repeatable.iter().all(|wait| (48 * 60..=72 * 60).contains(&wait.as_secs())));
    assert!(repeatable.iter().any(|wait| wait.as_secs() < 50 * 60));
    assert!(repeatable.iter().any(|wait| wait.as_secs() > 70 * 60));
    assert_eq!(repeatable, waits(Some(1)));
    assert_ne!(waits(None), waits(None));
}

// Items.

#[tokio::test(start_paused = true)]
async fn a_dropped_item_counts_as_a_failure() {
    let (queue, _) = queue();
    queue.add("foo", Priority::LIVE);
    drop(take(&queue, "foo"));
    assert_eq!((queue.failures(&"foo"), queue.unfinished().running), (1, 0));

    let panicking = tokio::spawn({
        let queue = queue.clone();
        async move {
            let _foo = queue.get().await;
            panic!("a reconciler's bug, intended by this test");
        }
    });
    assert!(panicking.await.unwrap_err().is_panic());
    assert_eq!((queue.failures(&"foo"), queue.unfinished().running), (2, 0));

    let cancelled = tokio::spawn({
        let queue = queue.clone();
        async move {
            let _foo = queue.get().await;
            std::future::pending::<()>().await;
        }
    });
    tokio::time::sleep(ms(100)).await;
    assert_eq!(queue.unfinished().running, 1);
    cancelled.abort();
    assert!(cancelled.await.unwrap_err().is_cancelled());
    assert_eq!((queue.failures(&"foo"), queue.unfinished().running), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn reports_waiting_and_working_times() {
    let (queue, metrics) = queue();
    queue.add("foo", Priority::LIVE);
    queue.add_after("bar", Priority::LIVE, ms(100));
    advance(ms(150)).await;
    let foo = take(&queue, "foo");
    advance(ms(50)).await;
    let bar = take(&queue, "bar");
    assert_eq!((foo.waited(), bar.waited()), (ms(150), ms(100)));
    advance(ms(10)).await;
    assert_eq!(queue.unfinished(), Unfinished { running: 2, total: ms(70), longest: ms(60) });
    foo.done(Outcome::Success);
    advance(ms(10)).await;
    bar.done(Outcome::FAILURE);
    assert_eq!(queue.unfinished(), Unfinished::default());
    assert_eq!(metrics.seen().waited, [ms(150), ms(100)]);
    assert_eq!(metrics.seen().worked, [ms(60), ms(20)]);
}

// Shutdown.

#[tokio::test(start_paused = true)]
async fn drain_hands_out_only_ready_keys() {
    let (queue, metrics) = queue();
    for key in ["running", "again", "ready"] {
        queue.add(key, Priority::LIVE);
    }
    let (running, again) = (take(&queue, "running"), take(&queue, "again"));
    queue.add("again", Priority::LIVE);
    queue.add_after("again", Priority::LIVE, ms(1));
    queue.add_after("delayed", Priority::LIVE, ms(1));
    queue.add_after("running", Priority::LIVE, ms(1));

    queue.shutdown(Shutdown::Drain);
    queue.add("late", Priority::LIVE);
    assert!(queue.is_shut_down());
    queue.get().await.unwrap().done(Outcome::FAILURE);
    assert!(queue.get().await.is_none());
    again.done(Outcome::RequeueAfter(Duration::ZERO));
    assert_eq!(*queue.get().await.unwrap().key(), "again");
    running.done(Outcome::RequeueAfter(ms(1)));
    advance(ms(10)).await;
    assert!(queue.get().await.is_none());
    metrics.assert_depth([(0, 0)]);
}

#[tokio::test(start_paused = true)]
async fn drop_hands_out_nothing_and_may_follow_drain() {
    let (queue, metrics) = queue();
    for key in ["running", "ready", "low"] {
        queue.add(key, if key == "low" { Priority::LOW } else { Priority::LIVE });
    }
    let running = take(&queue, "running");
    queue.add("running", Priority::LIVE);
    queue.shutdown(Shutdown::Drain);
    queue.shutdown(Shutdown::Drop);
    queue.shutdown(Shutdown::Drain);
    assert!(queue.get().await.is_none());
    metrics.assert_depth([(-100, 0), (0, 0)]);
    running.done(Outcome::FAILURE);
    assert!(queue.get().await.is_none());
    assert_eq!(queue.unfinished(), Unfinished::default());
}

// Threads.

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_key_is_served_under_load_and_never_twice_at_once() {
    const KEYS: usize = 2000;
    let queue = WorkQueue::new(Config::default());
    let running = Arc::new(Mutex::new(HashSet::<usize>::new()));
    let served = Arc::new((0..KEYS).map(|_| AtomicUsize::new(0)).collect::<Vec<_>>());
    let workers = (0..16).map(|worker| {
        let (queue, running, served) = (queue.clone(), running.clone(), served.clone());
        tokio::spawn(async move {
            loop {
                // Half of the workers keep cancelling `get`, as `select!` does.
                let get = queue.get();
                let item = if worker % 2 == 0 {
                    get.await
                } else {
                    match tokio::time::timeout(Duration::from_micros(worker * 50), get).await {
                        Ok(item) => item,
                        Err(_) => continue,
                    }
                };
                let Some(item) = item else { return };
                let key: usize = *item.key();
                assert!(running.lock().unwrap().insert(key), "{key} was handed out twice");
                tokio::task::yield_now().await;
                let times = served[key].fetch_add(1, SeqCst);
                assert!(running.lock().unwrap().remove(&key));
                item.done(if times == 0 { Outcome::FAILURE } else { Outcome::Success });
            }
        })
    });
    let workers: Vec<_> = workers.collect();
    let adders = (0..4).map(|adder| {
        let queue = queue.clone();
        tokio::spawn(async move {
            for key in (0..KEYS).skip(adder).step_by(4) {
                queue.add_after(key, Priority::LOW, ms(u64::try_from(key).unwrap() % 7));
                queue.add((key * 31) % KEYS, Priority::LIVE);
                if key % 50 == 0 {
                    tokio::time::sleep(ms(1)).await;
                }
            }
        })
    });
    for adder in adders.collect::<Vec<_>>() {
        adder.await.unwrap();
    }
    let all_served = async {
        while served.iter().any(|times| times.load(SeqCst) < 2) {
            tokio::time::sleep(ms(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), all_served).await.unwrap();
    queue.shutdown(Shutdown::Drain);
    for worker in workers {
        worker.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn add_unless_due_leaves_only_a_key_that_is_due_in_time() {
    let (queue, _) = queue();
    queue.add_after("soon", Priority::LIVE, ms(10));
    queue.add_after("later", Priority::LIVE, ms(11));
    for key in ["soon", "later", "new"] {
        queue.add_unless_due(key, Priority::LIVE, ms(10));
    }
    drop((take(&queue, "later"), take(&queue, "new")));
    assert_nothing_ready(&queue);
}

#[tokio::test(start_paused = true)]
async fn depth_of_an_expired_delay_is_reported_on_demand() {
    let (queue, recorder) = queue();
    queue.add_after("a", Priority::LIVE, ms(10));
    advance(ms(10)).await;
    queue.update_depth();
    recorder.assert_depth([(Priority::LIVE.0, 1)]);
}

#[test]
fn handle_says_whether_the_queue_is_empty_and_whether_it_is_closed() {
    let (queue, _) = queue();
    assert!(queue.is_empty() && !queue.is_shut_down());
    queue.add("a", Priority::LIVE);
    assert!(!queue.is_empty());
    queue.shutdown(Shutdown::Drop);
    assert!(queue.is_empty() && queue.is_shut_down());
}
