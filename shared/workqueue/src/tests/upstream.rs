//! The cases of controller-runtime's `priorityqueue_test.go`, under their names: first the sixteen of its suite, then the
//! single tests. `TestFuzzPriorityQueue` is `core::tests::behaves_like_the_model`. Tests of Go internals are left out.

use super::*;

const HOUR: Duration = Duration::from_hours(1);

#[test]
fn returns_an_item() {
    let (queue, metrics) = queue();
    queue.add("foo", Priority(0));
    let _foo = take(&queue, "foo");
    metrics.assert_depth([(0, 0)]);
    assert_eq!((metrics.seen().adds, metrics.seen().retries), (1, 0));
}

#[test]
fn returns_items_in_order() {
    let (queue, metrics) = queue();
    queue.add("foo", Priority(0));
    queue.add("bar", Priority(0));
    let _items = (take(&queue, "foo"), take(&queue, "bar"));
    metrics.assert_depth([(0, 0)]);
    assert_eq!(metrics.seen().adds, 2);
}

#[test]
fn does_not_return_an_item_that_is_currently_locked() {
    let (queue, metrics) = queue();
    queue.add("foo", Priority(0));
    let _foo = take(&queue, "foo");
    queue.add("foo", Priority(0));
    queue.add("bar", Priority(0));
    let _bar = take(&queue, "bar");
    assert_nothing_ready(&queue);
    metrics.assert_depth([(0, 1)]);
    assert_eq!(metrics.seen().adds, 3);
}

#[test]
fn returns_an_item_as_soon_as_its_unlocked() {
    let (queue, metrics) = queue();
    queue.add("foo", Priority(0));
    let foo = take(&queue, "foo");
    queue.add("foo", Priority(0));
    queue.add("bar", Priority(0));
    let _bar = take(&queue, "bar");
    queue.add("baz", Priority(0));
    foo.done(Outcome::Success);
    let _foo = take(&queue, "foo");
    metrics.assert_depth([(0, 1)]);
    assert_eq!(metrics.seen().adds, 4);
}

#[test]
fn de_duplicates_items() {
    let (queue, metrics) = queue();
    queue.add("foo", Priority(0));
    queue.add("foo", Priority(0));
    assert_eq!(queue.len(), 1);
    metrics.assert_depth([(0, 1)]);
    assert_eq!(metrics.seen().adds, 1);
}

#[test]
fn enqueues_a_locked_item() {
    let (queue, metrics) = queue();
    queue.add("foo", Priority(0));
    assert_eq!(queue.len(), 1);
    let foo = take(&queue, "foo");
    queue.add("foo", Priority(0));
    assert_eq!(queue.len(), 1);
    foo.done(Outcome::Success);
    let foo = take(&queue, "foo");
    assert_eq!(foo.priority(), Priority(0));
    metrics.assert_depth([(0, 0)]);
    assert_eq!(metrics.seen().adds, 2);
}

#[test]
fn retains_the_highest_priority() {
    let (queue, metrics) = queue();
    queue.add("foo", Priority(1));
    queue.add("foo", Priority(2));
    assert_eq!(take(&queue, "foo").priority(), Priority(2));
    assert_eq!(queue.len(), 0);
    metrics.assert_depth([(1, 0), (2, 0)]);
    assert_eq!(metrics.seen().adds, 1);
}

#[test]
fn will_not_decrease_the_priority() {
    let (queue, metrics) = queue();
    queue.add("foo", Priority(2));
    queue.add("foo", Priority(1));
    assert_eq!(take(&queue, "foo").priority(), Priority(2));
    assert_eq!(queue.len(), 0);
    metrics.assert_depth([(2, 0)]);
    assert_eq!(metrics.seen().adds, 1);
}

#[test]
fn gets_pushed_to_the_front_if_the_priority_increases() {
    let (queue, metrics) = queue();
    for key in ["foo", "bar", "baz"] {
        queue.add(key, Priority(0));
    }
    queue.add("baz", Priority(1));
    assert_eq!(take(&queue, "baz").priority(), Priority(1));
    assert_eq!(queue.len(), 2);
    metrics.assert_depth([(0, 2), (1, 0)]);
    assert_eq!(metrics.seen().adds, 3);
}

#[test]
fn retains_the_lowest_after_duration() {
    let (queue, metrics) = queue();
    queue.add("foo", Priority(0));
    queue.add_after("foo", Priority(0), HOUR);
    let _foo = take(&queue, "foo");
    assert_eq!(queue.len(), 0);
    metrics.assert_depth([(0, 0)]);
    assert_eq!(metrics.seen().adds, 1);
}

#[test]
fn does_not_include_non_ready_items_in_len() {
    let (queue, metrics) = queue();
    queue.add_after("foo", Priority(0), HOUR);
    queue.add("baz", Priority(0));
    queue.add_after("bar", Priority(0), HOUR);
    queue.add("bal", Priority(0));
    assert_eq!(queue.len(), 2);
    metrics.assert_depth([(0, 2)]);
}

/// Upstream drops ready keys; that is [`Shutdown::Drop`] here.
#[tokio::test(start_paused = true)]
async fn get_might_get_stuck_when_the_priority_queue_is_shut_down() {
    let (queue, _) = queue();
    queue.add("baz", Priority(0));
    queue.shutdown(Shutdown::Drop);
    queue.add_after("foo", Priority(0), ms(1000));
    assert!(queue.get().await.is_none());
    assert!(queue.get().await.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn returns_many_items() {
    let queue = WorkQueue::new(Config::default());
    for _ in 0..5 {
        for key in 0..1000_u64 {
            match key * 7919 % 100 {
                delay @ 0..10 => queue.add_after(key, Priority(0), ms(delay)),
                priority => queue.add(key, Priority(i32::try_from(priority).unwrap())),
            }
        }
        let workers = (0..100).map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move {
                for _ in 0..10 {
                    queue.get().await.unwrap().done(Outcome::Success);
                }
            })
        });
        for worker in workers.collect::<Vec<_>>() {
            worker.await.unwrap();
        }
        assert!(queue.is_empty());
    }
}

#[test]
fn updates_metrics_correctly_for_an_item_that_gets_initially_added_with_after_and_then_without() {
    let (queue, metrics) = queue();
    queue.add_after("foo", Priority(0), HOUR);
    assert_eq!(queue.len(), 0);
    metrics.assert_depth([]);
    queue.add("foo", Priority(0));
    assert_eq!(queue.len(), 1);
    metrics.assert_depth([(0, 1)]);
    let _foo = take(&queue, "foo");
    assert_eq!(queue.len(), 0);
    metrics.assert_depth([(0, 0)]);
}

#[test]
fn updates_metrics_correctly_when_an_item_with_after_is_re_added_with_higher_priority_and_no_after() {
    let (queue, metrics) = queue();
    queue.add_after("foo", Priority(0), HOUR);
    assert_eq!(queue.len(), 0);
    metrics.assert_depth([]);
    queue.add("foo", Priority(1));
    assert_eq!(queue.len(), 1);
    metrics.assert_depth([(1, 1)]);
    assert_eq!(take(&queue, "foo").priority(), Priority(1));
    assert_eq!(queue.len(), 0);
    metrics.assert_depth([(1, 0)]);
}

#[test]
fn follows_fifo_order_in_the_new_priority_queue_when_item_priority_changes() {
    let (queue, _) = queue();
    queue.add("foo", Priority(0));
    queue.add("bar", Priority(1));
    queue.add("foo", Priority(1));
    assert_eq!(queue.len(), 2);
    let bar = take(&queue, "bar");
    assert_eq!((bar.priority(), queue.len()), (Priority(1), 1));
    let foo = take(&queue, "foo");
    assert_eq!((foo.priority(), queue.len()), (Priority(1), 0));
}

/// Holds only without ageing: `patience` has to exceed the number of ready keys.
#[tokio::test(start_paused = true)]
async fn high_priority_items_are_returned_before_low_priority_items_multiple_times() {
    for after in [Duration::ZERO, ms(1000)] {
        let recorder = Arc::new(Recorder::default());
        let config = Config { patience: u32::MAX, metrics: recorder.clone(), ..Config::default() };
        let queue = WorkQueue::new(config);
        let priorities = [10, 5, 0, -5, -10];
        for number in 0..1000 {
            for priority in priorities {
                queue.add_after((priority, number), Priority(priority), after);
            }
        }
        advance(after).await;
        for priority in priorities {
            for number in 0..1000 {
                let item = queue.try_get().unwrap();
                assert_eq!((*item.key(), item.priority()), ((priority, number), Priority(priority)));
                item.done(Outcome::Success);
            }
        }
        recorder.assert_depth(priorities.map(|priority| (priority, 0)));
        assert_eq!(recorder.seen().adds, 5000);
        assert_eq!(recorder.seen().retries, if after.is_zero() { 0 } else { 5000 });
    }
}

#[tokio::test(start_paused = true)]
async fn item_is_only_returned_after_after_has_passed() {
    let (queue, metrics) = queue();
    let waiting = waiting(&queue).await;
    queue.add_after("foo", Priority(0), ms(1000));
    advance(ms(999)).await;
    assert!(!waiting.is_finished());
    advance(ms(1)).await;
    assert!(waiting.is_finished());
    metrics.assert_depth([(0, 0)]);
    assert_eq!((metrics.seen().adds, metrics.seen().retries), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn high_priority_item_that_became_ready_is_returned_before_low_priority_item() {
    let (queue, metrics) = queue();
    queue.add("foo", Priority(-100));
    queue.add_after("prio", Priority(0), ms(1000));
    advance(ms(1000)).await;
    assert_eq!(take(&queue, "prio").priority(), Priority(0));
    metrics.assert_depth([(-100, 1), (0, 0)]);
    assert_eq!(metrics.seen().adds, 2);
}

#[tokio::test(start_paused = true)]
async fn item_is_returned_as_soon_as_possible() {
    let (queue, metrics) = queue();
    let waiting = waiting(&queue).await;
    queue.add("foo", Priority(0));
    settle().await;
    assert!(waiting.is_finished());
    metrics.assert_depth([(0, 0)]);
}

#[tokio::test(start_paused = true)]
async fn waiting_item_is_returned_right_after_readd_without_after() {
    let (queue, metrics) = queue();
    let waiting = waiting(&queue).await;
    queue.add_after("foo", Priority(0), ms(60_000));
    settle().await;
    assert!(!waiting.is_finished());
    queue.add("foo", Priority(0));
    settle().await;
    assert!(waiting.is_finished());
    metrics.assert_depth([(0, 0)]);
    assert_eq!(metrics.seen().adds, 1);
}

#[tokio::test(start_paused = true)]
async fn multiple_items_with_after_are_returned_in_correct_order() {
    let (queue, metrics) = queue();
    queue.add_after("foo", Priority(0), ms(1000));
    queue.add_after("bar", Priority(0), ms(200));
    let bar = queue.get().await.unwrap();
    let foo = queue.get().await.unwrap();
    assert_eq!((*bar.key(), *foo.key()), ("bar", "foo"));
    metrics.assert_depth([(0, 0)]);
}

#[tokio::test(start_paused = true)]
async fn get_from_priority_queue_is_unblocked_on_shutdown() {
    for how in [Shutdown::Drain, Shutdown::Drop] {
        let (queue, _) = queue();
        let waiting = waiting(&queue).await;
        queue.shutdown(how);
        assert!(waiting.await.unwrap().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn items_are_included_in_len_and_metrics_once_they_are_ready() {
    let (queue, metrics) = queue();
    for _ in 0..2 {
        queue.add_after("foo", Priority(0), ms(500));
        queue.add("baz", Priority(0));
        queue.add_after("bar", Priority(0), ms(500));
        queue.add("bal", Priority(0));
        assert_eq!(queue.len(), 2);
        metrics.assert_depth([(0, 2)]);
        advance(ms(1000)).await;
        assert_eq!(queue.len(), 4);
        metrics.assert_depth([(0, 4)]);
        for key in ["baz", "bal", "foo", "bar"] {
            take(&queue, key).done(Outcome::Success);
        }
        metrics.assert_depth([(0, 0)]);
    }
}

#[tokio::test(start_paused = true)]
async fn metrics_are_updated_for_item_whose_requeue_after_expired_that_gets_added_again_without_requeue_after() {
    let (queue, metrics) = queue();
    queue.add_after("foo", Priority(0), ms(50));
    advance(ms(50)).await;
    assert_eq!(queue.len(), 1);
    metrics.assert_depth([(0, 1)]);
    queue.add("foo", Priority(0));
    assert_eq!(queue.len(), 1);
    metrics.assert_depth([(0, 1)]);
    let _foo = take(&queue, "foo");
    metrics.assert_depth([(0, 0)]);
}

#[tokio::test(start_paused = true)]
async fn when_adding_multiple_items_with_ratelimit_true_they_dont_affect_each_other() {
    let (queue, metrics) = queue();
    queue.add("bar", Priority(0));
    for _ in 0..7 {
        queue.get().await.unwrap().done(Outcome::FAILURE);
    }
    queue.add("foo", Priority(0));
    take(&queue, "foo").done(Outcome::FAILURE);
    queue.get().await.unwrap().done(Outcome::Success);
    assert_eq!((queue.failures(&"foo"), queue.failures(&"bar")), (0, 7));
    take_at(&queue, "bar", ms(320 - 5)).await.done(Outcome::FAILURE);
    take_at(&queue, "bar", ms(640)).await.done(Outcome::Success);
    assert_eq!(metrics.seen().retries, 9);
}

async fn take_at(queue: &WorkQueue<&'static str>, key: &str, after: Duration) -> Item<&'static str> {
    assert_eq!(queue.next_ready(), Some(after));
    let item = queue.get().await.unwrap();
    assert_eq!(*item.key(), key);
    item
}

/// Upstream #3538.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn priority_queue_does_not_deadlock_on_shutdown_while_handing_out_items() {
    for round in 0..50_u32 {
        let queue = WorkQueue::new(Config::default());
        let workers = (0..20_u32).map(|worker| {
            let queue = queue.clone();
            tokio::spawn(async move {
                for number in worker.. {
                    let random = (number + round).wrapping_mul(2_654_435_761) >> 22;
                    queue.add(random, Priority(i32::try_from(random % 100).unwrap()));
                    if queue.get().await.is_none() {
                        return;
                    }
                }
            })
        });
        let workers: Vec<_> = workers.collect();
        tokio::time::sleep(ms(1)).await;
        queue.shutdown(Shutdown::Drop);
        for worker in workers {
            tokio::time::timeout(Duration::from_secs(10), worker).await.unwrap().unwrap();
        }
    }
}
