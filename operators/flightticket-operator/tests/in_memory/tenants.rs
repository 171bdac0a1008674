//! Tenants of one cluster, each in its own namespace: what the provider answers to one does not slow another.

use std::time::Duration;

use kube::api::{DeleteParams, Patch, PatchParams};
use model_apiserver::{Entry, Planned, Verb};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    airline::Trouble,
    office::{Office, TICKETS},
};

const BOOKED: &str = "Booked True/Booked True/UpToDate";
/// The namespace whose requests fail.
const TROUBLED: &str = "troubled";
const OTHER: &str = "other";
/// How many tickets the troubled namespace has.
const CROWD: usize = 100;
/// How many tickets of one tenant use the provider at once.
const PLACES: u64 = 8;
/// The operator sends one request each 50 ms.
const SPACING: Duration = Duration::from_millis(50);
/// The requests for one ticket of the other tenant: create, get, modify, and two that cancel. One is for the reference that the ticket
/// knows, the other for the next one, because an edit may have changed the policy.
const REQUESTS: u32 = 5;
/// How far apart the checks of a state are.
const STEP: Duration = Duration::from_millis(10);

/// Waits until the ticket of the other tenant is in this state.
async fn until(office: &mut Office, name: &str, said: &str, number: Option<i64>) {
    let begun = Instant::now();
    let is_there = |office: &Office| {
        let status = office.ticket_in(OTHER, name).and_then(|ticket| ticket.status);
        office.said_in(OTHER, name) == said && number.is_none_or(|it| status.and_then(|it| it.number) == Some(it))
    };
    while !is_there(office) {
        let said = office.said_in(OTHER, name);
        assert!(begun.elapsed() < Duration::from_mins(3), "the other tenant waits: {said}");
        office.pass(STEP).await;
    }
}

/// Books, changes and cancels a ticket of the other tenant. Returns how long that took.
async fn serve(office: &mut Office, name: &str) -> Duration {
    let begun = Instant::now();
    office.apply_with(OTHER, name, json!({}), json!({})).await;
    until(office, name, BOOKED, Some(2)).await;
    let change = Patch::Merge(json!({"spec": {"number": 3}}));
    office.api(OTHER).patch(name, &PatchParams::default(), &change).await.expect("taken");
    until(office, name, BOOKED, Some(3)).await;
    drop(office.api(OTHER).delete(name, &DeleteParams::default()).await.expect("deleted"));
    until(office, name, "gone", None).await;
    begun.elapsed()
}

/// Returns how long the other tenant is served with this trouble of a crowd: at its beginning and later.
async fn served(trouble: Option<Trouble>, crowd: usize) -> Vec<Duration> {
    let mut office = Office::open();
    office.airline.books().troubles.extend(trouble.map(|trouble| (format!("{TROUBLED}/"), trouble)));
    for number in 0..crowd {
        office.apply_with(TROUBLED, &format!("ticket-{number}"), json!({}), json!({})).await;
    }
    let mut took = Vec::new();
    for seconds in [0, 1, 30, 90] {
        office.pass(Duration::from_secs(seconds)).await;
        took.push(serve(&mut office, &format!("after-{seconds}")).await);
    }
    took
}

#[tokio::test(start_paused = true)]
async fn one_tenants_answers_do_not_slow_another_tenant() {
    let alone = served(None, 0).await;
    for trouble in [
        None,
        Some(Trouble::Status(400, None)),
        Some(Trouble::Status(401, None)),
        Some(Trouble::Status(403, None)),
        Some(Trouble::Status(409, None)),
        Some(Trouble::Status(429, None)),
        Some(Trouble::Status(429, Some(3_600))),
        Some(Trouble::Status(500, None)),
        Some(Trouble::Status(503, Some(3_600))),
        Some(Trouble::Garbage),
        Some(Trouble::Silence),
    ] {
        let beside = served(trouble, CROWD).await;
        for (beside, alone) in beside.iter().zip(&alone) {
            let longest = *alone + (SPACING + STEP) * REQUESTS;
            assert!(*beside <= longest, "{trouble:?}: {beside:?} beside the crowd, {alone:?} alone");
        }
    }
}

/// The token is that of all tenants, but the provider may refuse it for one booking only. The crowd sends it once a minute.
#[tokio::test(start_paused = true)]
async fn refused_credentials_stop_only_their_tenant_until_they_are_accepted() {
    let mut office = Office::open();
    office.airline.books().troubles.push((format!("{TROUBLED}/"), Trouble::Status(401, None)));
    for number in 0..CROWD {
        office.apply_with(TROUBLED, &format!("ticket-{number}"), json!({}), json!({})).await;
    }
    office.pass(Duration::from_secs(1)).await;
    let of_the_crowd = office.airline.requests();
    office.apply_with(OTHER, "ours", json!({}), json!({})).await;
    office.pass(Duration::from_secs(10)).await;
    let said = "Pending False/AuthenticationFailed Unknown/ProviderUnavailable";
    assert_eq!((office.said_in(TROUBLED, "ticket-0").as_str(), office.said_in(OTHER, "ours").as_str()), (said, BOOKED));
    // Those that had a place before the first answer came have sent it too.
    assert!((1..=PLACES).contains(&of_the_crowd), "{of_the_crowd} requests");
    let reports = |office: &Office, namespaces: u32| {
        let line = format!("flightticket_operator_provider_credentials_refused {namespaces}");
        office.scrape().lines().any(|it| it == line)
    };
    assert!(reports(&office, 1), "{}", office.scrape());
    office.airline.books().troubles.clear();
    office.pass(Duration::from_mins(2)).await;
    assert_eq!(office.said_in(TROUBLED, "ticket-0"), BOOKED);
    assert!(reports(&office, 0), "{}", office.scrape());
}

fn reports_open_circuits(office: &Office, circuits: u32) -> bool {
    let line = format!("flightticket_operator_provider_circuit_open {circuits}");
    office.scrape().lines().any(|it| it == line)
}

/// A standby sends no request that could close a circuit again, and another process leads.
#[tokio::test(start_paused = true)]
async fn former_leader_reports_no_open_circuit() {
    let mut office = Office::new();
    office.flags = vec!["--leader-elect", "--leader-election-namespace", "default"];
    office.start();
    office.airline.books().troubles.push((format!("{TROUBLED}/"), Trouble::Status(500, None)));
    for number in 0..CROWD {
        office.apply_with(TROUBLED, &format!("ticket-{number}"), json!({}), json!({})).await;
    }
    office.pass(Duration::from_mins(1)).await;
    assert!(reports_open_circuits(&office, 1), "{}", office.scrape());
    // Only requests for the lease fail.
    let plan = "before * leases.coordination.k8s.io -> drop".parse().expect("a plan");
    office.model.set_faults(Planned::new(&plan));
    office.pass(Duration::from_mins(1)).await;
    assert!(reports_open_circuits(&office, 0), "{}", office.scrape());
}

/// Otherwise the alerts about the provider would fire until the operator restarts.
#[tokio::test(start_paused = true)]
async fn circuit_counts_as_open_only_as_long_as_a_ticket_will_try_again() {
    let mut office = Office::open();
    office.airline.books().troubles.push((format!("{TROUBLED}/"), Trouble::Status(503, Some(3_600))));
    let names: Vec<String> = (0..15).map(|number| format!("ticket-{number}")).collect();
    for name in &names {
        office.apply_with(TROUBLED, name, json!({}), json!({})).await;
    }
    office.pass(Duration::from_mins(30)).await;
    assert!(reports_open_circuits(&office, 1), "each ticket waits for the hour to end: {}", office.scrape());
    let pause = Patch::Merge(json!({"metadata": {"annotations": {"flights.com/paused": "true"}}}));
    for name in &names {
        office.api(TROUBLED).patch(name, &PatchParams::default(), &pause).await.expect("taken");
    }
    office.pass(Duration::from_mins(90)).await;
    assert!(reports_open_circuits(&office, 0), "{}", office.scrape());
}

#[tokio::test(start_paused = true)]
async fn forbidden_request_stops_only_its_ticket() {
    let mut office = Office::open();
    office.airline.books().troubles.push(("default/bad".to_owned(), Trouble::Status(403, None)));
    office.apply("bad", json!({})).await;
    office.apply("good", json!({})).await;
    office.pass(Duration::from_secs(1)).await;
    assert_eq!(office.said("bad"), "Pending False/BookingForbidden Unknown/ProviderUnavailable");
    assert_eq!(office.said("good"), BOOKED);
    let posted = |office: &Office| office.airline.books().handled["POST v1/bookings"];
    let before = posted(&office);
    office.pass(Duration::from_hours(1)).await;
    let asked = posted(&office) - before;
    assert!((10..=14).contains(&asked), "every five minutes: {asked}");
    office.airline.books().troubles.clear();
    office.pass(Duration::from_mins(6)).await;
    assert_eq!(office.said("bad"), BOOKED);
}

/// The crowd is served too, at the full rate.
#[tokio::test(start_paused = true)]
async fn crowd_of_one_tenant_is_booked_at_the_full_rate() {
    let mut office = Office::open();
    for number in 0..400 {
        office.apply_with(TROUBLED, &format!("ticket-{number}"), json!({}), json!({})).await;
    }
    office.pass(SPACING * 400 + Duration::from_secs(6)).await;
    assert_eq!(office.airline.live().len(), 400, "twenty in a second");
}

/// A new leader reads the status of each ticket before it decides. Deleted tickets whose namespace has no place left wait for it
/// without reads, and without workers.
#[tokio::test(start_paused = true)]
async fn crowd_of_deletions_waits_for_the_provider_without_reads() {
    const DELETED: u32 = 200;
    /// How many tickets of one namespace use the provider at once, and some more after the first have failed.
    const WITH_PLACE: usize = 8 + 4;
    let alone = served(None, 0).await.into_iter().max().unwrap_or_default();
    let mut office = Office::new();
    office.flags = vec!["--leader-elect", "--leader-election-namespace", "default"];
    office.start();
    for number in 0..DELETED {
        office.apply_with(TROUBLED, &format!("ticket-{number}"), json!({}), json!({})).await;
    }
    office.apply_with(TROUBLED, "kept", json!({"deletionPolicy": "Retain"}), json!({})).await;
    office.pass(SPACING * DELETED + Duration::from_secs(20)).await;
    assert_eq!(office.airline.live().len(), 201);

    office.airline.books().troubles.push((format!("{TROUBLED}/"), Trouble::Silence));
    office.restart().await;
    let delete = async |office: &Office, name: &str| {
        drop(office.api(TROUBLED).delete(name, &DeleteParams::default()).await.expect("deleted"));
    };
    for number in 0..DELETED {
        delete(&office, &format!("ticket-{number}")).await;
    }
    office.model.clear_requests();
    office.pass(Duration::from_secs(25)).await; // the lease of the former leader ends
    let took = serve(&mut office, "ours").await;
    let longest = alone + (SPACING + STEP) * REQUESTS;
    assert!(took <= longest, "{took:?} beside the crowd, {alone:?} alone");
    office.pass(Duration::from_secs(30)).await;
    let is_read = |it: &&Entry| {
        it.verb == Verb::Get && it.resource == TICKETS && it.namespace == TROUBLED && it.client.starts_with("process")
    };
    let reads = office.model.requests().iter().filter(is_read).count();
    assert!((1..=WITH_PLACE).contains(&reads), "{reads} reads");

    // Who needs no provider waits for no place, only for the time that it was given last: at most five seconds.
    delete(&office, "kept").await;
    let force = Patch::Merge(json!({"metadata": {"annotations": {"flights.com/force-delete": "true"}}}));
    office.api(TROUBLED).patch("ticket-199", &PatchParams::default(), &force).await.expect("taken");
    office.pass(Duration::from_secs(8)).await;
    let said = ["kept", "ticket-199"].map(|name| office.said_in(TROUBLED, name));
    assert_eq!(said, ["gone", "gone"]);
    assert_eq!(office.airline.live().len(), 201, "no booking is cancelled yet");
}
