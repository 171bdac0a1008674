//! Compares the state machine alone with a model. Time is a number here.

mod model;

use proptest::prelude::*;

use super::*;
use crate::tests::Recorder;
use model::Model;

#[derive(Clone, Debug)]
enum Step {
    Add {
        key: u8,
        priority: Priority,
        delay: Duration,
    },
    AddUnlessDue {
        key: u8,
        priority: Priority,
        within: Duration,
    },
    Take,
    TakeKey {
        key: u8,
    },
    /// Gives back the n-th of the running keys, if there is one.
    Done {
        nth: usize,
        priority: Option<Priority>,
        outcome: Outcome,
    },
    Forget {
        key: u8,
    },
    Advance(Duration),
    ShutDown(Shutdown),
}

fn priority() -> impl Strategy<Value = Priority> {
    prop_oneof![Just(Priority::LOW), Just(Priority::LIVE), Just(Priority(5))]
}

fn delay() -> impl Strategy<Value = Duration> {
    prop_oneof![Just(Duration::ZERO), (1..30_u64).prop_map(Duration::from_millis)]
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        2 => Just(Outcome::Success),
        3 => Just(Outcome::FAILURE),
        1 => Just(Outcome::WaitForChange),
        2 => delay().prop_map(Outcome::RequeueAfter),
        2 => delay().prop_map(Outcome::NotBefore),
        3 => (prop::option::of(delay()), prop::option::of(delay())).prop_map(|(base, latest)| Outcome::Failure { base, latest }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0..8_u8;
    let done = (0..3_usize, prop::option::weighted(0.2, priority()), outcome());
    prop_oneof![
        80 => (key.clone(), priority(), delay()).prop_map(|(key, priority, delay)| Step::Add { key, priority, delay }),
        20 => (key.clone(), priority(), delay()).prop_map(|(key, priority, within)| Step::AddUnlessDue { key, priority, within }),
        60 => Just(Step::Take),
        10 => key.clone().prop_map(|key| Step::TakeKey { key }),
        60 => done.prop_map(|(nth, priority, outcome)| Step::Done { nth, priority, outcome }),
        5 => key.prop_map(|key| Step::Forget { key }),
        40 => (0..40_u64).prop_map(|milliseconds| Step::Advance(Duration::from_millis(milliseconds))),
        1 => prop_oneof![Just(Shutdown::Drain), Just(Shutdown::Drop)].prop_map(Step::ShutDown),
    ]
}

const PATIENCE: u32 = 2;

fn core<K: Clone + Eq + Hash>(metrics: &Arc<Recorder>) -> Core<K> {
    core_with_flows(metrics, |_| 0)
}

fn core_with_flows<K: Clone + Eq + Hash>(metrics: &Arc<Recorder>, flow_of: fn(&K) -> u64) -> Core<K> {
    let backoff = Backoff { jitter: 0.0, ..Backoff::default() };
    Core::new(Config { backoff, patience: PATIENCE, metrics: metrics.clone(), ..Config::default() }, flow_of)
}

proptest! {
    #[test]
    fn behaves_like_the_model(steps in prop::collection::vec(step(), 1..150)) {
        let recorder = Arc::new(Recorder::default());
        let mut core = core_with_flows(&recorder, |key| u64::from(model::flow(*key)));
        let mut model = Model::new(PATIENCE);
        let mut now = Moment::START;
        let mut running: Vec<TakenItem<u8>> = Vec::new();
        for step in steps {
            match step {
                Step::Add { key, priority, delay } => {
                    core.add(now, key, priority, delay);
                    model.add(now, key, priority, delay);
                }
                Step::AddUnlessDue { key, priority, within } => {
                    core.add_unless_due(now, key, priority, within);
                    model.add_unless_due(now, key, priority, within);
                }
                Step::Take => {
                    let next = core.take(now);
                    let expected = model.take(now);
                    match next {
                        Next::Work(handed) => {
                            let taken = (handed.key, handed.priority, handed.waited, handed.failures);
                            prop_assert_eq!(Some(taken), expected);
                            running.push(handed);
                        }
                        Next::Wait(due) => prop_assert!(expected.is_none() && !model.is_shut_down() && due == model.next_due()),
                        Next::Closed => prop_assert!(expected.is_none() && model.is_shut_down()),
                    }
                }
                Step::TakeKey { key } => {
                    prop_assert_eq!(core.available_keys().contains(&key), model.is_available(key));
                    let taken = core.take_key(now, &key);
                    let facts = taken.as_ref().map(|it| (it.key, it.priority, it.waited, it.failures));
                    prop_assert_eq!(facts, model.take_key(now, key));
                    running.extend(taken);
                }
                Step::Done { nth, priority, outcome } if nth < running.len() => {
                    let handed = running.remove(nth);
                    let priority = priority.unwrap_or(handed.priority);
                    core.done(now, handed.slot, priority, outcome);
                    model.done(now, handed.key, priority, outcome);
                }
                Step::Done { .. } => {}
                Step::Forget { key } => {
                    core.forget(&key);
                    model.forget(key);
                }
                Step::Advance(duration) => now = now.plus(duration),
                Step::ShutDown(how) => {
                    core.shut_down(now, how);
                    model.shut_down(now, how);
                }
            }
            core.promote(now);
            model.promote(now);
            prop_assert_eq!(core.ready(), model.ready());
            prop_assert_eq!(core.next_due(), model.next_due());
            prop_assert_eq!(core.keys.len(), model.known(), "an idle key has no entry");
            prop_assert_eq!(core.unfinished(now).running, running.len());
            let seen = recorder.lock();
            prop_assert_eq!((seen.adds, seen.retries), (model.adds, model.retries));
            for (&priority, &depth) in &seen.depth {
                prop_assert_eq!(depth, model.depth(Priority(priority)), "depth of {}", priority);
            }
        }
    }

    #[test]
    fn delays_end_in_order(delays in prop::collection::vec(1..1000_u64, 1..60)) {
        let mut core = core(&Arc::default());
        for (key, delay) in delays.iter().enumerate() {
            core.add(Moment::START, key, Priority::LIVE, Duration::from_millis(*delay));
        }
        let mut ends = Vec::new();
        while let Some(due) = core.next_due() {
            ends.push(due);
            core.promote(due);
        }
        let in_order: std::collections::BTreeSet<_> = delays.into_iter().map(|it| Moment::at(Duration::from_millis(it))).collect();
        prop_assert_eq!(ends, in_order.into_iter().collect::<Vec<_>>());
    }

    /// The bound in the documentation of [`ready_queue`] holds under any traffic and with any number of flows.
    #[test]
    fn every_key_is_served_within_the_documented_bound(traffic in prop::collection::vec((any::<u8>(), 0..4_i32), 1..300), older in 0..5_u32) {
        let mut core = core_with_flows(&Arc::default(), |key| u64::from(key % 7));
        let now = Moment::START;
        for key in 0..older {
            core.add(now, 1000 + key, Priority(0), Duration::ZERO);
        }
        core.add(now, 2000, Priority::LOW, Duration::ZERO);
        let mut handed_out = 0;
        'served: loop {
            for &(key, priority) in &traffic {
                core.add(now, u32::from(key), Priority(priority), Duration::ZERO);
                let Next::Work(handed) = core.take(now) else { unreachable!("a key was just added") };
                handed_out += 1;
                if handed.key == 2000 {
                    break 'served;
                }
                core.done(now, handed.slot, handed.priority, Outcome::Success);
                prop_assert!(handed_out < (older + 1) * (PATIENCE + 1));
            }
        }
    }
}

/// The second bound in the documentation of [`ready_queue`]: a crowd in other flows costs a key one hand-out for each of them.
#[test]
fn first_key_of_a_flow_waits_for_one_key_of_each_other_flow() {
    const FLOWS: u32 = 5;
    let mut core = core_with_flows(&Arc::default(), |key: &u32| u64::from(key / 1000));
    let now = Moment::START;
    for key in 0..FLOWS * 1000 {
        core.add(now, key, Priority::LIVE, Duration::ZERO);
    }
    let late = FLOWS * 1000;
    core.add(now, late, Priority::LIVE, Duration::ZERO);
    let before = std::iter::from_fn(|| match core.take(now) {
        Next::Work(taken) => Some(taken.key),
        Next::Wait(_) | Next::Closed => None,
    });
    let before: Vec<_> = before.take_while(|key| *key != late).collect();
    // One hand-out in `PATIENCE + 1` goes to the oldest key, here of the first flow.
    let bound = FLOWS + FLOWS.div_ceil(PATIENCE);
    assert!(before.len() <= bound as usize, "{before:?}");
}

#[test]
fn memory_is_freed_after_a_burst() {
    let mut core = core(&Arc::default());
    let now = Moment::START;
    for key in 0..10_000_u32 {
        core.add(now, key, Priority::LIVE, Duration::ZERO);
    }
    while let Next::Work(handed) = core.take(now) {
        core.done(now, handed.slot, handed.priority, Outcome::Success);
    }
    assert!(core.keys.capacity() <= 64);
}

#[test]
fn memory_for_the_next_keys_stays() {
    let mut core = core(&Arc::default());
    core.add(Moment::START, 1_u8, Priority::LIVE, Duration::ZERO);
    let Next::Work(handed) = core.take(Moment::START) else { panic!("a key was just added") };
    core.done(Moment::START, handed.slot, handed.priority, Outcome::Success);
    assert!(core.keys.capacity() >= slot::CHUNK, "{}", core.keys.capacity());
}

#[test]
fn held_key_is_ready_but_not_available() {
    let mut core = core(&Arc::default());
    core.add(Moment::START, 1_u8, Priority::LIVE, Duration::ZERO);
    assert_eq!((core.ready(), core.available()), (1, 1));
    assert!(matches!(core.take(Moment::START), Next::Work(_)));
    core.add(Moment::START, 1_u8, Priority::LIVE, Duration::ZERO);
    assert_eq!((core.ready(), core.available()), (1, 0));
}

#[test]
fn an_entry_has_48_bytes_beside_the_key() {
    assert_eq!(size_of::<Option<entry::Entry<u64>>>(), 48 + size_of::<u64>());
}

/// When a key leaves the heap, the last key takes its place at the front, and sinks. If a key had another parent while it rises than
/// while it sinks, the key of 13 ms would leave only with that of 14 ms.
#[test]
fn heap_has_the_same_tree_on_the_way_up_and_down() {
    let delays = [18, 5, 8, 10, 15, 17, 13, 14, 17, 20_u64].map(Duration::from_millis);
    let mut core = core(&Arc::default());
    for (key, delay) in delays.iter().enumerate() {
        core.add(Moment::START, key, Priority::LIVE, *delay);
    }
    let mut ends = Vec::new();
    while let Some(due) = core.next_due() {
        ends.push(due);
        core.promote(due);
    }
    let mut in_order = delays.map(Moment::at).to_vec();
    in_order.sort_unstable();
    in_order.dedup();
    assert_eq!(ends, in_order);
}
