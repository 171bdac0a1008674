//! Seeded rounds: two or three candidates with all faults at once.

use std::{sync::atomic::Ordering, time::Duration};

use tokio::time::{sleep, timeout};

use super::{
    candidate::{Arena, Candidate, Make, TestClock},
    server::{Network, Server},
};
use crate::Config;

/// `LEADER_ELECTION_ROUNDS` sets more rounds for a nightly run, `LEADER_ELECTION_SEED` another first seed.
#[test]
fn at_most_one_live_token_and_always_a_next_leader() {
    let number = |name: &str, usual| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual);
    let (rounds, start) = (number("LEADER_ELECTION_ROUNDS", 200), number("LEADER_ELECTION_SEED", 0));
    for seed in start..start + rounds {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(round(seed));
    }
}

async fn round(seed: u64) {
    let (server, arena) = (Server::default(), Arena::default());
    let mut random = fastrand::Rng::with_seed(seed);
    let hands = seed % 4 == 3;
    let mut names = 0;
    let mut start = |random: &mut fastrand::Rng| {
        names += 1;
        let identity = format!("candidate-{names}");
        Make {
            config: Config { identity, ..Config::new("operators", "manager") },
            seed: random.u64(..),
            clock: TestClock::new(Duration::from_secs(random.u64(..100_000)), random.f64().mul_add(0.4, 0.82)),
            work_goes_on: Duration::from_millis(random.u64(..4_000)),
            work_fails: None,
        }
        .start(&server, &arena)
    };
    let mut candidates: Vec<Candidate> = (0..2 + seed % 2).map(|_| start(&mut random)).collect();
    if hands {
        sleep(Duration::from_secs(5)).await; // until all candidates have seen the lease
    }
    for _ in 0..20 {
        sleep(Duration::from_millis(random.u64(..8_000))).await;
        let index = random.usize(..candidates.len());
        let candidate = &candidates[index];
        candidate.clock.wall_offset.store(random.u64(..7_200_000), Ordering::Relaxed);
        match random.u8(..10) {
            0..=3 => candidate.link.set(Network {
                delay: Duration::from_millis(random.u64(..3_000)),
                lost_before: random.u32(..40),
                lost_after: random.u32(..40),
                refused: random.bool(),
                no_watches: random.bool(),
            }),
            4 => candidate.link.cut(),
            5 => candidate.link.heal(),
            6 => candidate.pause(),
            7 => candidates.iter().for_each(Candidate::resume),
            8 if hands => meddle(&server, &mut random, candidate),
            8 => {
                candidates.swap_remove(index).kill(&server).await;
                candidates.push(start(&mut random));
            }
            _ if hands => server.forget_watches(),
            _ => {
                candidate.resume();
                candidate.stop.cancel();
                let next = start(&mut random);
                let stopped = std::mem::replace(&mut candidates[index], next).task;
                let ended = timeout(Duration::from_mins(1), stopped).await;
                assert!(ended.is_ok(), "seed {seed}: the candidate does not stop");
            }
        }
        assert_eq!(server.faults(), [""; 0], "seed {seed}");
    }
    for candidate in &candidates {
        candidate.resume();
        candidate.link.heal();
    }
    sleep(Duration::from_mins(2)).await;
    assert_eq!(server.faults(), [""; 0], "seed {seed}");
    assert_eq!(arena.leaders().len(), 1, "seed {seed}: one candidate leads without faults");
    assert_eq!(candidates.iter().filter(|candidate| candidate.leads()).count(), 1, "seed {seed}");
}

fn meddle(server: &Server, random: &mut fastrand::Rng, candidate: &Candidate) {
    let Some(lease) = server.lease() else { return };
    let held = !crate::lease::holder(&lease).is_empty();
    match random.u8(..5) {
        0 => server.delete(),
        1 if held => server.edit(|spec| spec.holder_identity = Some(candidate.name.clone())),
        2 if held => server.edit(|spec| spec.holder_identity = None),
        3 if held => server.edit(|spec| spec.lease_duration_seconds = Some(0)),
        _ => server.annotate(),
    }
}
