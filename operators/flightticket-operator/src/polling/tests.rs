use serde_json::json;

use super::*;
use crate::{samples, ticket::RETRY};

const POLL: Duration = Duration::from_mins(5);

fn after(action: Action) -> Duration {
    match action {
        Action::After(wait) => wait,
        other @ Action::Done => panic!("{other:?}"),
    }
}

#[test]
fn waits_have_jitter_and_back_off() {
    let (tickets, ticket) = (Polling::every(POLL), samples::seed());
    let rest = |wait, random| after(tickets.rest(&ticket, wait, random)).as_secs_f64();
    for (wait, least, most) in [
        (Wait::Poll, 270.0, 330.0),
        (Wait::Seats, 270.0, 330.0),
        (Wait::Credentials, 15.0, 15.0),
        (Wait::Missing, 5.0, 5.0),
        (Wait::Trouble(Some(Duration::from_secs(7))), 7.0, 7.7),
    ] {
        let (low, high) = (rest(wait, 0.0), rest(wait, 1.0));
        assert!((low - least).abs() < 1e-6 && (high - most).abs() < 1e-6, "{wait:?}: {low} {high}");
    }
    tickets.rest(&ticket, Wait::Poll, 0.5);
    let troubles: Vec<f64> = (0..11).map(|_| rest(Wait::Trouble(None), 0.5)).collect();
    assert_eq!(troubles, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 300.0, 300.0]);
    assert_eq!(tickets.so_far(&ticket).failures, 11);
    let unconfirmed: Vec<f64> = (0..7).map(|_| rest(Wait::Unconfirmed, 0.5)).collect();
    assert_eq!(unconfirmed, [2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]);
    assert_eq!(tickets.so_far(&ticket).failures, 0);
    assert_eq!(tickets.rest(&ticket, Wait::Change, 0.5), Action::Done);
    assert_eq!(tickets.wait(&ticket), None);
}

#[tokio::test(start_paused = true)]
async fn change_ends_the_wait_unless_retry_after_is_set() {
    let (tickets, ticket) = (Polling::every(POLL), samples::seed());
    let changed = samples::with(&json!({"metadata": {"annotations": {RETRY: "1"}}}));
    assert_eq!(tickets.wait(&ticket), None);
    tickets.rest(&ticket, Wait::Poll, 0.5);
    assert_eq!((tickets.wait(&ticket), tickets.wait(&changed)), (Some(POLL), None));
    tickets.rest(&ticket, Wait::Trouble(Some(Duration::from_secs(7))), 0.0);
    assert_eq!(tickets.wait(&changed), Some(Duration::from_secs(7)));
    tokio::time::advance(Duration::from_secs(7)).await;
    assert_eq!(tickets.wait(&ticket), None);

    tickets.rest(&ticket, Wait::Poll, 0.5);
    let namesake = samples::with(&json!({"metadata": {"uid": "another"}}));
    assert_eq!(tickets.wait(&namesake), None);
    tickets.forget(&ticket.key());
    assert_eq!(tickets.wait(&ticket), None);
}

#[tokio::test(start_paused = true)]
async fn missing_duration_counts_from_the_first_miss() {
    let (tickets, ticket) = (Polling::every(POLL), samples::seed());
    tickets.rest(&ticket, Wait::Missing, 0.5);
    tokio::time::advance(Duration::from_secs(30)).await;
    tickets.rest(&ticket, Wait::Missing, 0.5);
    tickets.rest(&ticket, Wait::Trouble(None), 0.5);
    assert_eq!(tickets.so_far(&ticket).missing, Some(Duration::from_secs(30)));
    tickets.rest(&ticket, Wait::Poll, 0.5);
    assert_eq!(tickets.so_far(&ticket), SoFar::default());
}

#[tokio::test(start_paused = true)]
async fn reminder_repeats_every_ten_minutes() {
    let (tickets, ticket) = (Polling::every(POLL), samples::seed());
    assert!(tickets.remind(&ticket));
    tickets.rest(&ticket, Wait::Trouble(None), 0.5);
    assert!(!tickets.remind(&ticket));
    tokio::time::advance(REMINDER).await;
    assert!(tickets.remind(&ticket));
}
