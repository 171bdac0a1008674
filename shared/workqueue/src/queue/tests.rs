//! Explores wake-ups poll by poll.
//!
//! Each poll of a worker has one critical section, so a schedule is an order of polls, adds, cancellations and timers. The test
//! chooses random ones. Its wakers only set a flag, so a wake-up may arrive arbitrarily late, as with threads.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};

use proptest::prelude::*;

use super::*;
use crate::tests::Recorder;
use crate::{Backoff, Outcome};

#[derive(Default)]
struct Note(AtomicBool);

impl Wake for Note {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

type Get = Pin<Box<dyn Future<Output = Option<Item<u8>>>>>;

enum Worker {
    Idle,
    Waiting(Get, Arc<Note>),
    Working(Item<u8>),
}

#[derive(Clone, Debug)]
enum Step {
    Add {
        key: u8,
        delay: u64,
    },
    /// Continues what this worker does: calls `get`, polls, or gives its key back.
    Go {
        worker: usize,
        outcome: Outcome,
    },
    Cancel {
        worker: usize,
    },
    Advance {
        milliseconds: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let outcome = prop_oneof![
        2 => Just(Outcome::Success),
        1 => Just(Outcome::FAILURE),
        1 => (0..20_u64).prop_map(|delay| Outcome::RequeueAfter(Duration::from_millis(delay))),
    ];
    prop_oneof![
        3 => (0..6_u8, prop_oneof![Just(0), 1..30_u64]).prop_map(|(key, delay)| Step::Add { key, delay }),
        5 => (0..4_usize, outcome).prop_map(|(worker, outcome)| Step::Go { worker, outcome }),
        1 => (0..4_usize).prop_map(|worker| Step::Cancel { worker }),
        2 => (0..20_u64).prop_map(|milliseconds| Step::Advance { milliseconds }),
    ]
}

struct Explorer {
    queue: WorkQueue<u8>,
    workers: Vec<Worker>,
}

impl Explorer {
    fn new() -> Self {
        let backoff = Backoff { jitter: 0.0, ..Backoff::default() };
        let config = Config { backoff, metrics: Arc::new(Recorder::default()), ..Config::default() };
        Self { queue: WorkQueue::new(config), workers: (0..4).map(|_| Worker::Idle).collect() }
    }

    async fn step(&mut self, step: Step) {
        let woken = self.woken();
        match step {
            Step::Add { key, delay } => {
                self.queue.add_after(key, Priority::LIVE, Duration::from_millis(delay));
                let timekeeper = usize::from(delay > 0);
                assert!(self.woken() <= woken + 1 + timekeeper, "an add wakes more than one worker and the timekeeper");
            }
            Step::Go { worker, outcome } => self.go(worker, outcome),
            Step::Cancel { worker } => {
                if matches!(self.workers[worker], Worker::Waiting(..)) {
                    self.workers[worker] = Worker::Idle;
                }
            }
            Step::Advance { milliseconds } => {
                tokio::time::advance(Duration::from_millis(milliseconds)).await;
            }
        }
        self.assert_no_lost_wake_up();
    }

    fn go(&mut self, worker: usize, outcome: Outcome) {
        let next = match std::mem::replace(&mut self.workers[worker], Worker::Idle) {
            Worker::Idle => {
                let queue = self.queue.clone();
                Self::poll(Box::pin(async move { queue.get().await }), Arc::default())
            }
            Worker::Waiting(get, note) => Self::poll(get, note),
            Worker::Working(item) => {
                item.done(outcome);
                Worker::Idle
            }
        };
        self.workers[worker] = next;
    }

    fn poll(mut get: Get, note: Arc<Note>) -> Worker {
        note.0.store(false, SeqCst);
        let waker = Waker::from(Arc::clone(&note));
        match get.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(item) => Worker::Working(item.expect("the queue is open")),
            Poll::Pending => Worker::Waiting(get, note),
        }
    }

    fn woken(&self) -> usize {
        self.workers.iter().filter(|worker| matches!(worker, Worker::Waiting(_, note) if note.0.load(SeqCst))).count()
    }

    fn assert_no_lost_wake_up(&self) {
        let waiting = self.workers.iter().any(|worker| matches!(worker, Worker::Waiting(..)));
        assert!(
            !(self.queue.shared.has_work() && waiting) || self.woken() > 0,
            "a key is available, but every worker sleeps"
        );
    }
}

proptest! {
    #[test]
    fn no_schedule_loses_a_wake_up(steps in prop::collection::vec(step(), 1..80)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let mut explorer = Explorer::new();
            for step in steps {
                explorer.step(step).await;
            }
        });
    }
}

#[tokio::test(start_paused = true)]
async fn one_add_wakes_the_worker_that_was_parked_last() {
    let mut explorer = Explorer::new();
    for worker in 0..4 {
        explorer.go(worker, Outcome::Success);
    }
    explorer.queue.add(1, Priority::LIVE);
    assert_eq!(explorer.woken(), 1);
    explorer.go(3, Outcome::Success);
    assert!(matches!(&explorer.workers[3], Worker::Working(item) if *item.key() == 1));
    assert_eq!(explorer.woken(), 0);
}

#[tokio::test(start_paused = true)]
async fn two_adds_wake_two_workers() {
    let mut explorer = Explorer::new();
    for worker in 0..4 {
        explorer.go(worker, Outcome::Success);
    }
    for key in [1, 2] {
        explorer.queue.add(key, Priority::LIVE);
    }
    assert_eq!(explorer.woken(), 2, "the second wake-up must not wait for the first worker's look");
}

#[tokio::test(start_paused = true)]
async fn expired_delay_wakes_one_worker() {
    let mut explorer = Explorer::new();
    for worker in 0..4 {
        explorer.go(worker, Outcome::Success);
    }
    explorer.queue.add_after(1, Priority::LIVE, Duration::from_millis(10));
    assert_eq!(explorer.woken(), 1, "the timekeeper sets its timer");
    explorer.go(0, Outcome::Success);
    tokio::time::advance(Duration::from_millis(10)).await;
    assert_eq!(explorer.woken(), 1);
    explorer.go(0, Outcome::Success);
    assert!(matches!(&explorer.workers[0], Worker::Working(item) if *item.key() == 1));
}

#[tokio::test(start_paused = true)]
async fn cancelled_timekeeper_is_replaced_by_another_worker() {
    let mut explorer = Explorer::new();
    explorer.queue.add_after(1, Priority::LIVE, Duration::from_millis(10));
    for worker in 0..2 {
        explorer.go(worker, Outcome::Success);
    }
    explorer.workers[0] = Worker::Idle;
    assert_eq!(explorer.woken(), 1);
    explorer.go(1, Outcome::Success);
    tokio::time::advance(Duration::from_millis(10)).await;
    assert_eq!(explorer.woken(), 1);
}

#[tokio::test(start_paused = true)]
async fn first_worker_sets_the_timer_without_another_look() {
    let mut explorer = Explorer::new();
    explorer.queue.add_after(1, Priority::LIVE, Duration::from_millis(10));
    explorer.go(0, Outcome::Success);
    assert_eq!(explorer.woken(), 0);
    tokio::time::advance(Duration::from_millis(10)).await;
    assert_eq!(explorer.woken(), 1);
}
