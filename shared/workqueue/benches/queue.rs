//! Measures operations per second, and bytes per waiting key: `cargo bench -p operators-workqueue`.
//!
//! Each adds a thousand keys. `add, get, done`, `re-add` and `among 100,000 delayed` are controller-runtime's `BenchmarkAddGetDone` and
//! its neighbours.

use std::alloc::System;
use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use workqueue::{Config, Outcome, Priority, WorkQueue};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const KEYS: u64 = 1000;
const HOUR: Duration = Duration::from_hours(1);

fn operations(c: &mut Criterion) {
    let mut group = c.benchmark_group("queue");
    group.throughput(Throughput::Elements(KEYS));
    group.bench_function("add, get, done", |b| {
        let queue = WorkQueue::new(Config::default());
        b.iter(|| {
            fill(&queue, KEYS);
            work_off(&queue, Outcome::Success);
        });
    });
    group.bench_function("add, get, done in 100 flows", |b| {
        let queue = WorkQueue::with_flows(Config::default(), |key| key % 100);
        b.iter(|| {
            fill(&queue, KEYS);
            work_off(&queue, Outcome::Success);
        });
    });
    group.bench_function("re-add", |b| {
        let queue = WorkQueue::new(Config::default());
        fill(&queue, KEYS);
        b.iter(|| fill(&queue, KEYS));
    });
    group.bench_function("add, get, done among 100,000 delayed", |b| {
        let queue = WorkQueue::new(Config::default());
        (KEYS..100_000).for_each(|key| queue.add_after(key, Priority::LIVE, HOUR));
        b.iter(|| {
            fill(&queue, KEYS);
            work_off(&queue, Outcome::RequeueAfter(HOUR));
        });
    });
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime");
    group.bench_function("add, get, done by 8 waiting workers", |b| {
        b.iter_batched(
            || {
                let queue = WorkQueue::new(Config::default());
                let workers: Vec<_> = (0..8).map(|_| runtime.spawn(worker(queue.clone()))).collect();
                (queue, workers)
            },
            |(queue, workers)| {
                fill(&queue, KEYS);
                queue.shutdown(workqueue::Shutdown::Drain);
                runtime.block_on(async {
                    for worker in workers {
                        worker.await.expect("the worker does not panic");
                    }
                });
            },
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

async fn worker(queue: WorkQueue<u64>) {
    while let Some(item) = queue.get().await {
        item.done(Outcome::Success);
    }
}

fn fill(queue: &WorkQueue<u64>, keys: u64) {
    (0..keys).for_each(|key| queue.add(black_box(key), Priority::LIVE));
}

fn work_off(queue: &WorkQueue<u64>, outcome: Outcome) {
    while let Some(item) = queue.try_get() {
        item.done(outcome);
    }
}

/// Prints the bytes per key once, instead of a time. The key's own 8 bytes are subtracted. Tables grow by doubling, which makes
/// the figure swing, so two sizes are measured.
#[expect(clippy::print_stdout, clippy::cast_precision_loss, reason = "a printed report")]
fn bytes(_: &mut Criterion) {
    for keys in [10_000, 14_000_u64] {
        for (state, delay) in [("ready", Duration::ZERO), ("delayed", HOUR)] {
            let region = Region::new(ALLOCATOR);
            let queue = WorkQueue::new(Config::default());
            (0..keys).for_each(|key| queue.add_after(key, Priority::LIVE, delay));
            let change = region.change();
            let held = change.bytes_allocated as f64 - change.bytes_deallocated as f64;
            println!("{keys} {state} keys: {:.0} bytes each in addition to the key", held / keys as f64 - 8.0);
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2)).sample_size(20);
    targets = operations, bytes
}
criterion_main!(benches);
