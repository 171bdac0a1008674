//! One test for each promise of the README. `l1` and so on are the rows of the project's list of leadership faults.

use std::{sync::atomic::Ordering, time::Duration};

use tokio::time::{Instant, sleep, timeout};

use super::{
    candidate::{Arena, Candidate, Make, TestClock},
    server::{Network, Server},
};
use crate::{Ended, Stuck, lease};

const S: Duration = Duration::from_secs(1);

/// A leader `a` and a standby `b`.
async fn pair(server: &Server, arena: &Arena) -> (Candidate, Candidate) {
    let a = Make::new("a").start(server, arena);
    a.until_leading().await;
    let b = Make { seed: 2, ..Make::new("b") }.start(server, arena);
    sleep(5 * S).await;
    assert_eq!(arena.leaders(), ["a"]);
    (a, b)
}

#[tokio::test(start_paused = true)]
async fn the_first_candidate_leads_at_once() {
    let server = Server::default();
    let a = Make::new("a").start(&server, &Arena::default());
    assert!(a.until_leading().await < S / 10);
    assert_eq!(a.health.describe(), "leading, term 0");
    assert_eq!(server.served().iter().map(|served| served.what).collect::<Vec<_>>(), ["get", "create"]);
}

#[tokio::test(start_paused = true)]
async fn standby_leads_at_once_after_a_clean_release() {
    let (server, arena) = (Server::default(), Arena::default());
    let (a, b) = pair(&server, &arena).await;
    a.stop.cancel();
    assert_eq!(a.task.await.expect("no panic"), Ended::Stopped);
    assert!(b.until_leading().await < S / 10);
    assert_eq!(b.token().expect("a token").epoch().transitions, 1);
    assert_eq!(*a.told.stories.lock().expect("no panic"), ["started 0", "stopped Released"]);
    assert_eq!(server.faults(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn standby_leads_one_lease_duration_after_a_crash() {
    let (server, arena) = (Server::default(), Arena::default());
    let (a, b) = pair(&server, &arena).await;
    a.kill(&server).await;
    let took = b.until_leading().await;
    assert!((12 * S..16 * S).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn leader_sends_one_request_per_period_and_standby_none() {
    let (server, arena) = (Server::default(), Arena::default());
    let (_a, _b) = pair(&server, &arena).await;
    server.served();
    sleep(60 * S).await;
    let requests = server.served();
    let by =
        |name: &str, what: &str| requests.iter().filter(|request| request.by == name && request.what == what).count();
    assert!((29..=31).contains(&by("a", "replace")), "{requests:?}");
    assert_eq!(requests.len(), by("a", "replace"), "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn standby_without_watches_polls_at_a_bounded_rate() {
    let (server, arena) = (Server::default(), Arena::default());
    let (a, b) = pair(&server, &arena).await;
    b.kill(&server).await;
    let b = Make::new("b").start(&server, &arena);
    b.link.set(Network { no_watches: true, ..Network::default() });
    server.served();
    sleep(60 * S).await;
    let asked = server.served().iter().filter(|served| served.by == "b").count();
    assert!((20..=61).contains(&asked), "{asked}");
    a.stop.cancel();
    assert!(b.until_leading().await < 5 * S, "as client-go: by the next poll");
}

#[tokio::test(start_paused = true)]
async fn silent_watch_is_replaced() {
    let (server, arena) = (Server::default(), Arena::default());
    let (a, b) = pair(&server, &arena).await;
    server.forget_watches();
    sleep(20 * S).await;
    assert_eq!(arena.leaders(), ["a"], "the server refuses a write with an old version");
    a.stop.cancel();
    assert!(b.until_leading().await < S / 10, "a new watch has begun");
}

#[tokio::test(start_paused = true)]
async fn l1_token_dies_before_takeover_if_renewals_fail() {
    let (server, arena) = (Server::default(), Arena::default());
    let (a, b) = pair(&server, &arena).await;
    let token = a.token().expect("a token");
    a.link.cut();
    let start = Instant::now();
    token.lost().await;
    assert!(start.elapsed() <= 10 * S, "{:?}", start.elapsed());
    assert!(!token.is_alive());
    assert!(b.until_leading().await > 3 * S);
    assert!(!a.task.is_finished(), "it stands by for ever");
    a.link.heal();
    sleep(20 * S).await;
    assert_eq!(a.health.describe(), "standing by, b leads");
    assert_eq!(*a.told.stories.lock().expect("no panic"), ["started 0", "stopped Expired"]);
    assert_eq!(server.faults(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn l2_paused_leader_resumes_with_a_dead_token() {
    let (server, arena) = (Server::default(), Arena::default());
    let (a, b) = pair(&server, &arena).await;
    let token = a.token().expect("a token");
    a.pause();
    b.until_leading().await;
    assert!(!token.is_alive(), "its own clock is enough");
    assert_eq!(*a.told.stories.lock().expect("no panic"), ["started 0"], "its elector is still paused");
    sleep(20 * S).await;
    a.resume();
    sleep(5 * S).await;
    assert_eq!(arena.leaders(), ["b"]);
    assert!(a.token().is_none());
    assert_eq!(server.faults(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn liveness_fails_for_a_stuck_elector_but_not_an_api_outage() {
    let (server, arena) = (Server::default(), Arena::default());
    let (a, b) = pair(&server, &arena).await;
    b.link.cut();
    a.pause();
    sleep(40 * S).await;
    assert!(matches!(a.health.check(), Err(Stuck::Elector(_))), "{:?}", a.health);
    assert_eq!(b.health.check(), Ok(()));
    assert!(b.health.describe().contains("cannot reach the lease: no answer within 5s"), "{}", b.health.describe());
    a.resume();
    sleep(S).await;
    assert_eq!(a.health.check(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn work_that_outlives_its_leadership_fails_the_liveness_check() {
    let (server, arena) = (Server::default(), Arena::default());
    let a = Make { work_goes_on: 60 * S, ..Make::new("a") }.start(&server, &arena);
    a.until_leading().await;
    a.link.cut();
    sleep(15 * S).await;
    assert_eq!(a.health.check(), Ok(()), "the work may take a moment to end");
    sleep(30 * S).await;
    assert!(matches!(a.health.check(), Err(Stuck::Work(_))));
    let says = a.health.check().expect_err("stuck").to_string();
    assert!(says.starts_with("leadership ended 3") && says.ends_with("s ago and the work has not"), "{says}");
}

#[tokio::test(start_paused = true)]
async fn l4_one_leader_despite_different_clocks_and_clock_rates() {
    let (server, arena) = (Server::default(), Arena::default());
    let a = Make { clock: TestClock::new(Duration::ZERO, 0.84), ..Make::new("a") }.start(&server, &arena);
    a.until_leading().await;
    let b = Make { clock: TestClock::new(5_000 * S, 1.22), seed: 2, ..Make::new("b") }.start(&server, &arena);
    b.clock.wall_offset.store(3_600_000, Ordering::Relaxed);
    for minute in 0..10 {
        a.clock.wall_offset.store(minute % 2 * 7_200_000, Ordering::Relaxed);
        sleep(60 * S).await;
        assert_eq!(arena.leaders(), ["a"], "no early takeover");
    }
    a.link.cut();
    b.until_leading().await;
    assert_eq!(server.faults(), [""; 0]);
    assert_eq!(arena.terms.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn l5_edited_or_deleted_lease_has_at_most_one_leader() {
    type Edit = fn(&Server);
    let edits: [(&str, Edit, bool); 8] = [
        ("annotated", Server::annotate, true),
        ("duration 0", |server| server.edit(|spec| spec.lease_duration_seconds = Some(0)), true),
        ("no renew time", |server| server.edit(|spec| spec.renew_time = None), true),
        ("transitions lowered", |server| server.edit(|spec| spec.lease_transitions = Some(-7)), true),
        ("another holder", |server| server.edit(|spec| spec.holder_identity = Some("garbage".to_owned())), false),
        ("the standby's name", |server| server.edit(|spec| spec.holder_identity = Some("b".to_owned())), false),
        ("no holder", |server| server.edit(|spec| spec.holder_identity = None), false),
        ("deleted", Server::delete, false),
    ];
    for (what, edit, stays) in edits {
        let (server, arena) = (Server::default(), Arena::default());
        let (a, b) = pair(&server, &arena).await;
        let before = a.token().expect("a token");
        edit(&server);
        sleep(3 * S).await;
        assert_eq!(before.is_alive(), stays, "{what}");
        sleep(20 * S).await;
        assert_eq!(arena.leaders().len(), 1, "{what}");
        assert_eq!(before.is_alive(), stays, "{what}");
        assert_eq!(server.faults(), [""; 0], "{what}");
        assert_eq!(a.told.slow_paths.load(Ordering::Relaxed), 1, "{what}");
        if !stays {
            let after = a.token().or_else(|| b.token()).expect("a token");
            let (before, after) = (before.epoch(), after.epoch());
            assert!(before.lease_uid != after.lease_uid || before.transitions < after.transitions, "{what}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn l6_lease_is_renewed_until_the_work_ends_then_released() {
    let (server, arena) = (Server::default(), Arena::default());
    let a = Make { work_goes_on: 25 * S, ..Make::new("a") }.start(&server, &arena);
    a.until_leading().await;
    let b = Make { seed: 2, ..Make::new("b") }.start(&server, &arena);
    sleep(5 * S).await;
    let token = a.token().expect("a token");
    a.stop.cancel();
    sleep(24 * S).await;
    assert!(token.is_alive(), "workers may finish what they began");
    assert_eq!(server.holder(), "a");
    assert!(b.until_leading().await < 2 * S);
    assert!(!token.is_alive());
    assert_eq!(server.faults(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn conflicting_release_is_retried() {
    let (server, arena) = (Server::default(), Arena::default());
    let (a, b) = pair(&server, &arena).await;
    server.annotate();
    a.stop.cancel();
    assert!(b.until_leading().await < S / 10);
}

#[tokio::test(start_paused = true)]
async fn l7_stopped_standby_never_leads() {
    let (server, arena) = (Server::default(), Arena::default());
    let (a, b) = pair(&server, &arena).await;
    b.stop.cancel();
    assert_eq!(timeout(S / 10, b.task).await.expect("at once").expect("no panic"), Ended::Stopped);
    let c = Make { seed: 3, ..Make::new("c") }.start(&server, &arena);
    c.link.cut();
    sleep(S).await;
    c.stop.cancel();
    assert_eq!(timeout(S / 10, c.task).await.expect("nothing to wait for").expect("no panic"), Ended::Stopped);
    a.stop.cancel();
    drop(a.task.await);
    assert_eq!(arena.terms.load(Ordering::Relaxed), 1);
    assert!(lease::is_released(&server.lease().expect("a lease")));
}

#[tokio::test(start_paused = true)]
async fn l8_lease_is_released_when_the_work_ends_by_itself() {
    let (server, arena) = (Server::default(), Arena::default());
    let a = Make { work_fails: Some(30 * S), ..Make::new("a") }.start(&server, &arena);
    a.until_leading().await;
    let b = Make { seed: 2, ..Make::new("b") }.start(&server, &arena);
    assert_eq!(a.task.await.expect("no panic"), Ended::Work);
    assert!(b.until_leading().await < S / 10);
    assert_eq!(server.faults(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn l9_flapping_api_server_rarely_changes_leader_and_ends_none() {
    let (server, arena) = (Server::default(), Arena::default());
    let (a, b) = pair(&server, &arena).await;
    for second in 0..120 {
        let network =
            Network { lost_before: if second / 8 % 2 == 0 { 100 } else { 0 }, refused: true, ..Network::default() };
        a.link.set(network.clone());
        b.link.set(network);
        sleep(S).await;
    }
    a.link.heal();
    b.link.heal();
    sleep(20 * S).await;
    assert_eq!(arena.leaders().len(), 1);
    let terms = arena.terms.load(Ordering::Relaxed);
    assert!(terms <= 8, "{terms} terms in two minutes");
    assert!(!a.task.is_finished() && !b.task.is_finished());
    let asked = server.served().len();
    assert!(asked < 200, "{asked} requests");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_run_kills_the_token() {
    let (server, arena) = (Server::default(), Arena::default());
    let (a, _b) = pair(&server, &arena).await;
    let token = a.token().expect("a token");
    a.task.abort();
    token.lost().await;
    assert!(!token.is_alive());
    sleep(S / 10).await;
    assert_eq!(*a.told.stories.lock().expect("no panic"), ["started 0", "stopped Dropped"]);
}
