use super::*;
use crate::samples;

const INTERVAL: Duration = Duration::from_mins(5);

#[test]
fn waits_have_jitter() {
    let (tickets, ticket) = (Polling::every(INTERVAL), samples::seed());
    let seconds = |wait, random| match tickets.rest(&ticket, wait, random) {
        Action::After(wait) => wait.as_secs_f64(),
        other => panic!("{other:?}"),
    };
    for (wait, least, most) in [
        (Wait::Poll, 270.0, 330.0),
        (Wait::Seats, 270.0, 330.0),
        (Wait::Forbidden, 270.0, 330.0),
        (Wait::Credentials, 15.0, 15.0),
        (Wait::Missing, 5.0, 5.0),
        (Wait::Trouble(Some(Duration::from_secs(7))), 7.0, 7.7),
        (Wait::PollNotBefore(Duration::from_secs(7)), 270.0, 330.0),
        (Wait::PollNotBefore(Duration::from_hours(1)), 3_600.0, 3_960.0),
    ] {
        let (low, high) = (seconds(wait, 0.0), seconds(wait, 1.0));
        assert!((low - least).abs() < 1e-6 && (high - most).abs() < 1e-6, "{wait:?}: {low} {high}");
    }
}

#[tokio::test(start_paused = true)]
async fn provider_names_the_time_or_the_queue_backs_off() {
    let (tickets, ticket) = (Polling::every(INTERVAL), samples::seed());
    let named = Duration::from_secs(7);
    for _ in 0..5 {
        assert_eq!(tickets.rest(&ticket, Wait::Trouble(None), 0.5), Action::Retry(TROUBLE));
        assert_eq!(tickets.pause(&ticket), None);
        assert_eq!(tickets.rest(&ticket, Wait::Trouble(Some(named)), 0.0), Action::After(named));
        tokio::time::advance(named / 7).await;
        assert_eq!(tickets.pause(&ticket), Some(named / 7 * 6), "also if a change wakes the ticket earlier");
        tokio::time::advance(named).await;
    }
    assert_eq!(tickets.so_far(&ticket).failures, 10);
    assert_eq!(tickets.rest(&ticket, Wait::Change, 0.5), Action::Done);
    assert_eq!(tickets.so_far(&ticket), SoFar::default());
    assert_eq!(tickets.tickets.lock().len(), 0, "a booked ticket takes no memory, also after failures and pauses");
}

/// Without a hurry, the time that the provider names only delays the next poll, and no failure counts.
#[tokio::test(start_paused = true)]
async fn usual_poll_waits_for_the_time_that_the_provider_names() {
    let (tickets, ticket) = (Polling::every(INTERVAL), samples::seed());
    let named = Duration::from_secs(7);
    assert_eq!(tickets.rest(&ticket, Wait::PollNotBefore(named), 0.5), Action::After(INTERVAL));
    assert_eq!(tickets.so_far(&ticket), SoFar::default());
    assert_eq!(tickets.rest(&ticket, Wait::PollNotBefore(named), 0.0), Action::After(INTERVAL.mul_f64(0.9)));
    assert_eq!(tickets.pause(&ticket), Some(named), "also if a change wakes the ticket earlier");
}

#[test]
fn booked_ticket_takes_no_memory() {
    let (tickets, ticket) = (Polling::every(INTERVAL), samples::seed());
    assert_eq!(tickets.so_far(&ticket), SoFar::default());
    assert_eq!(tickets.pause(&ticket), None);
    tickets.rest(&ticket, Wait::Poll, 0.5);
    assert_eq!(tickets.tickets.lock().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn unconfirmed_booking_is_polled_at_doubled_intervals() {
    let (tickets, ticket) = (Polling::every(INTERVAL), samples::seed());
    for seconds in [2, 4, 8, 16, 32, 60, 60] {
        let wait = Duration::from_secs(seconds);
        assert_eq!(tickets.rest(&ticket, Wait::Unconfirmed, 0.5), Action::After(wait));
        tokio::time::advance(wait).await;
    }
    tickets.rest(&ticket, Wait::Poll, 0.5);
    assert_eq!(tickets.rest(&ticket, Wait::Unconfirmed, 0.5), Action::After(CONFIRMATION[0]));
}

#[tokio::test(start_paused = true)]
async fn missing_duration_counts_from_the_first_miss() {
    let (tickets, ticket) = (Polling::every(INTERVAL), samples::seed());
    tickets.rest(&ticket, Wait::Missing, 0.5);
    tokio::time::advance(Duration::from_secs(30)).await;
    tickets.rest(&ticket, Wait::Missing, 0.5);
    tickets.rest(&ticket, Wait::Trouble(None), 0.5);
    assert_eq!(tickets.so_far(&ticket).missing, Some(Duration::from_secs(30)));
    tickets.rest(&ticket, Wait::Poll, 0.5);
    assert_eq!(tickets.so_far(&ticket), SoFar::default());
}

#[tokio::test(start_paused = true)]
async fn ticket_of_the_same_name_begins_to_count_anew() {
    let (tickets, ticket) = (Polling::every(INTERVAL), samples::seed());
    tickets.rest(&ticket, Wait::Trouble(None), 0.5);
    let namesake = samples::with(&serde_json::json!({"metadata": {"uid": "another"}}));
    assert_eq!(tickets.so_far(&namesake), SoFar::default());
    tickets.rest(&namesake, Wait::Trouble(None), 0.5);
    tickets.forget(&ticket.key());
    assert_eq!(tickets.so_far(&namesake), SoFar::default());
}

#[tokio::test(start_paused = true)]
async fn reminder_repeats_every_ten_minutes() {
    let (tickets, ticket) = (Polling::every(INTERVAL), samples::seed());
    assert!(tickets.remind(&ticket));
    tickets.rest(&ticket, Wait::Trouble(None), 0.5);
    assert!(!tickets.remind(&ticket));
    tokio::time::advance(REMINDER).await;
    assert!(tickets.remind(&ticket));
}
