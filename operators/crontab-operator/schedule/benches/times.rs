//! Benchmarks of searching, counting and parsing: `cargo bench -p operators-schedule`.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use jiff::Timestamp;
use schedule::{Schedule, Zone};

/// Expressions from many times to none.
const EXPRESSIONS: [(&str, &str); 7] = [
    ("minute", "* * * * *"),
    ("quarter", "*/15 * * * *"),
    ("office", "0 9-17 * * mon-fri"),
    ("daily", "30 2 * * *"),
    ("yearly", "0 0 1 1 *"),
    ("leap day", "0 0 29 2 *"),
    ("never", "0 0 30 2 *"),
];
const ZONES: [&str; 2] = ["UTC", "Europe/Berlin"];

fn instant(text: &str) -> Timestamp {
    text.parse().expect("an instant")
}

fn times(c: &mut Criterion) {
    let now = instant("2026-11-21T16:25:57Z");
    for (name, text) in EXPRESSIONS {
        let schedule: Schedule = text.parse().expect("valid");
        for zone in ZONES {
            let zone = Zone::named(zone).expect("known");
            let times = schedule.times(&zone, now);
            c.bench_function(&format!("next/{name}/{zone}"), |b| b.iter(|| times.after(black_box(now))));
            c.bench_function(&format!("latest/{name}/{zone}"), |b| b.iter(|| times.until(black_box(now))));
        }
    }
    for (name, text) in [EXPRESSIONS[0], EXPRESSIONS[2]] {
        let schedule: Schedule = text.parse().expect("valid");
        for zone in ZONES {
            let zone = Zone::named(zone).expect("known");
            for (long, from) in [("ten years", "2016-11-21T16:25:57Z"), ("a century", "1926-11-21T16:25:57Z")] {
                let from = instant(from);
                let times = schedule.times(&zone, from);
                c.bench_function(&format!("count in {long}/{name}/{zone}"), |b| {
                    b.iter(|| times.count(black_box(from), now));
                });
            }
        }
    }
    c.bench_function("parse", |b| b.iter(|| black_box("0,30 9-17/2 1,15 jan-jun mon-fri").parse::<Schedule>()));
    c.bench_function("zone", |b| b.iter(|| Zone::named(black_box("Europe/Berlin"))));
}

criterion_group!(benches, times);
criterion_main!(benches);
