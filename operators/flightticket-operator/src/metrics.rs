//! The metrics about tickets. The client has its own, in `booking::client`.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use manager::{MetricRegistry, Objects};

use crate::{FlightTicket, api::v1::Phase, booking::Client};

/// A deletion that takes longer counts as stuck.
const STUCK: SignedDuration = SignedDuration::from_mins(10);

/// Returns a function that counts the tickets of each phase, the stuck deletions, and the namespaces whose requests fail. The
/// runtime calls it at each scrape.
pub(crate) fn gauges(
    registry: &MetricRegistry,
    client: Option<Client>,
) -> impl Fn(Objects<'_, FlightTicket>, Timestamp) + Send + Sync + use<> {
    let phases = registry.gauges("flightticket_operator_tickets", "FlightTickets, by phase.", &["phase"]);
    let help = "FlightTickets that have been waiting for more than ten minutes to be deleted.";
    let stuck = registry.gauges("flightticket_operator_stuck_deletions", help, &[]);
    move |tickets, now| {
        let (mut counts, mut waiting) = ([0; Phase::ALL.len()], 0);
        let mut namespaces = BTreeSet::new();
        for ticket in tickets {
            namespaces.insert(ticket.key().namespace);
            let phase = ticket.status.as_ref().map_or(Phase::Pending, |status| status.phase);
            counts[phase as usize] += 1;
            waiting += i64::from(is_stuck(&ticket, now));
        }
        for phase in Phase::ALL {
            phases.with_label_values(&[&phase.to_string()]).set(counts[phase as usize]);
        }
        stuck.with_label_values::<&str>(&[]).set(waiting);
        if let Some(client) = &client {
            client.report(&namespaces);
        }
    }
}

fn is_stuck(ticket: &FlightTicket, now: Timestamp) -> bool {
    ticket.metadata.deletion_timestamp.as_ref().is_some_and(|since| now.duration_since(since.0) > STUCK)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::samples;

    #[test]
    fn a_deletion_is_stuck_after_ten_minutes() {
        let ticket = samples::with(&json!({"metadata": {"deletionTimestamp": "2026-11-21T10:00:00Z"}}));
        let at = |time: &str| is_stuck(&ticket, time.parse().expect("a time"));
        assert!(!at("2026-11-21T10:10:00Z") && at("2026-11-21T10:10:01Z"));
        assert!(!is_stuck(&samples::seed(), Timestamp::MAX));
    }

    #[test]
    fn phases_are_indexed_in_order() {
        for (index, phase) in Phase::ALL.into_iter().enumerate() {
            assert_eq!(phase as usize, index);
        }
    }
}
