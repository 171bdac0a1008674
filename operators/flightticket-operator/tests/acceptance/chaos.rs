//! The test kills and restarts operator, provider and API server at random, while users create, change and delete tickets.
//! `FLIGHTTICKET_CHAOS` sets the duration in seconds.

use std::time::{Duration, Instant};

use fastrand::Rng;
use flightticket_operator::FlightTicket;
use serde_json::json;

use crate::desk::Desk;

#[tokio::test(flavor = "multi_thread")]
async fn random_kills_leave_bookings_consistent() {
    let Some(mut desk) = Desk::fresh().await else { return };
    let seconds = std::env::var("FLIGHTTICKET_CHAOS").map_or(15, |text| text.parse().expect("seconds"));
    let (mut chance, begun) = (Rng::with_seed(7), Instant::now());
    let (mut made, mut deleted, mut changed) = (0, 0, 0);
    let (mut of_operator, mut of_provider, mut of_api_server) = (0, 0, 0);
    while begun.elapsed() < Duration::from_secs(seconds) {
        let tickets = desk.world.list::<FlightTicket>().await;
        let names: Vec<String> = tickets
            .into_iter()
            .filter(|it| it.metadata.deletion_timestamp.is_none())
            .filter_map(|it| it.metadata.name)
            .collect();
        let one = if names.is_empty() { None } else { Some(&names[chance.usize(..names.len())]) };
        match (chance.u32(..10), one) {
            (0..=3, _) if names.len() < 12 => {
                desk.apply(&format!("ticket-{made}"), &json!({"number": chance.u32(1..=3)})).await;
                made += 1;
            }
            (0..=5, Some(name)) if names.len() > 3 => {
                desk.world.delete::<FlightTicket>(name).await;
                deleted += 1;
            }
            (6, Some(name)) => {
                desk.apply(name, &json!({"number": chance.u32(1..=3)})).await;
                changed += 1;
            }
            (7, _) => {
                desk.run("1s"); // SIGKILL, then a new process
                of_operator += 1;
            }
            (8, _) => {
                desk.provider.kill();
                tokio::time::sleep(Duration::from_millis(chance.u64(..1_500))).await;
                desk.provider.be_a_process().await;
                of_provider += 1;
            }
            (9, _) => {
                desk.kill_the_api_server().await;
                of_api_server += 1;
            }
            _ => {}
        }
        tokio::time::sleep(Duration::from_millis(chance.u64(..400))).await;
    }
    desk.run("1s");
    let is_in_order = async || {
        let tickets = desk.world.list::<FlightTicket>().await;
        let mut seats = 0;
        for ticket in &tickets {
            let status = ticket.status.as_ref()?;
            let is_booked = manager_testing::condition(ticket, "Synced").is_some_and(|it| it.status == "True");
            let is_so = is_booked && status.number == Some(ticket.spec.number.into());
            if ticket.metadata.deletion_timestamp.is_some() || !is_so {
                return None;
            }
            seats += u64::try_from(ticket.spec.number).ok()?;
        }
        let audit = desk.provider.audit();
        let live = audit.bookings.get("CONFIRMED").copied().unwrap_or_default();
        (live == tickets.len() as u64 && audit.seats_taken == seats).then_some(audit)
    };
    let audit = desk.world.until("objects and bookings agree", is_in_order).await;
    eprintln!(
        "{seconds} s: {made} tickets created, {deleted} deleted, {changed} changed; kills: operator {of_operator}, \
         provider {of_provider}, API server {of_api_server}; {audit:?}"
    );
    let tickets = desk.world.list::<FlightTicket>().await;
    let of = |ticket: &FlightTicket| ticket.metadata.uid.clone().expect("a uid");
    let mut uids: Vec<String> = tickets.iter().map(of).collect();
    uids.sort();
    let bookings = desk.provider.bookings().await;
    let mut live: Vec<String> = bookings.into_iter().filter(|it| it.2 == "CONFIRMED").map(|it| it.1).collect();
    live.sort();
    assert_eq!(live, uids, "each ticket has its own booking");
}
