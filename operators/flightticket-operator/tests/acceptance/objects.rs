//! Acceptance tests of the schema, of the sample, and of a ticket without a provider.

use flightticket_operator::FlightTicket;
use manager_testing::{Process, World};
use serde_json::json;

use crate::desk::{Desk, NAME, SAMPLE, quiet_world, ticket};

/// Returns the lines of `kubectl get ft -o <output>`, split at blanks.
pub(crate) fn table(world: &World, output: &str) -> Vec<Vec<String>> {
    let args = ["get", "ft", "--namespace", &world.namespace, "--output", output];
    let answer = world.cluster.kubectl(args).output().expect("kubectl");
    let lines = String::from_utf8_lossy(&answer.stdout).into_owned();
    lines.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn t01_sample_is_pending_and_then_booked() {
    let Some(mut desk) = Desk::closed().await else { return };
    desk.world.apply(SAMPLE).await;
    assert_eq!(serde_json::to_value(desk.get(NAME).await.status).expect("JSON")["phase"], "Pending");
    desk.run("1s");
    let status = desk.until_booked(NAME).await;
    assert!(status.booking_id.as_ref().is_some_and(|id| id.starts_with("BK-")), "{status:?}");
    assert_eq!((status.number, status.attempt, desk.provider.count("CONFIRMED")), (Some(2), 0, 1));
    let note = desk.world.until_event(NAME, "Normal", "Booked").await;
    let (code, id) = (status.confirmation_code.expect("a code"), status.booking_id.expect("an id"));
    assert_eq!(note, format!("Booked 2 seat(s) Mumbai -> London: {code} ({id})"));
    let lines = table(&desk.world, "");
    assert_eq!(lines[0], ["NAME", "STATUS", "FROM", "TO", "NUMBER", "BOOKING", "AGE"]);
    assert_eq!(lines[1][..6], [NAME, "Booked", "Mumbai", "London", "2", id.as_str()]);
    let wide = table(&desk.world, "wide");
    assert_eq!(wide[0], ["NAME", "STATUS", "FROM", "TO", "NUMBER", "BOOKING", "REASON", "SYNCED", "AGE", "MESSAGE"]);
    assert_eq!(wide[1][..8], [NAME, "Booked", "Mumbai", "London", "2", id.as_str(), "Booked", "UpToDate"]);
    assert_eq!(wide[1].len(), 9, "the message of a ticket that is well is empty: {wide:?}");
    let metrics = desk.world.operator.as_ref().and_then(Process::metrics).expect("metrics");
    for line in [
        "flightticket_operator_tickets{phase=\"Booked\"} 1",
        "flightticket_operator_provider_requests_total{code=\"2xx\",op=\"create\"} 1",
        "flightticket_operator_provider_circuit_open 0",
        "flightticket_operator_provider_credentials_refused 0",
        "flightticket_operator_stuck_deletions 0",
    ] {
        assert!(metrics.lines().any(|it| it == line), "{line}\n{metrics}");
    }
    assert_eq!(desk.world.requests().forbidden(), Vec::<&str>::new());
    let log = desk.world.operator.as_ref().expect("it runs").log();
    assert!(!log.contains("\"level\":\"error\""), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn t02_ticket_without_provider_waits_and_is_deletable() {
    let Some(mut world) = quiet_world().await else { return };
    world.run(&[]);
    world.apply(SAMPLE).await;
    let ticket = world.until_condition::<FlightTicket>(NAME, "Ready", "False", "ProviderNotConfigured").await;
    assert_eq!(ticket.metadata.finalizers, None);
    let wide = table(&world, "wide").remove(1);
    let reason = wide.iter().position(|it| it == "ProviderNotConfigured").unwrap_or_else(|| panic!("{wide:?}"));
    assert_eq!(wide[reason + 1], "NotBooked", "{wide:?}");
    let conditions = ticket.status.map(|status| status.conditions).unwrap_or_default();
    let ready = conditions.iter().find(|it| it.type_ == "Ready").expect("Ready");
    let message: Vec<&str> = ready.message.split_whitespace().collect();
    assert!(!message.is_empty() && wide[reason + 3..] == message[..], "after the age: {wide:?}");
    let writes = world.requests().writes();
    world.reconcile_again::<FlightTicket>(NAME).await;
    assert_eq!(world.requests().writes(), writes + 1, "only the write that handles the test's reconcile request");
    world.delete::<FlightTicket>(NAME).await;
    assert!(world.get::<FlightTicket>(NAME).await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn t03_schema_rejects_invalid_specs() {
    let Some(world) = quiet_world().await else { return };
    let long = "x".repeat(65);
    for (spec, words) in [
        (json!({"number": 0}), "number"),
        (json!({"number": 11}), "number"),
        (json!({"number": 1.5}), "number"),
        (json!({"from": "London", "to": "london"}), "from and to must differ"),
        (json!({"from": " London"}), "from must be one line that does not begin or end with a blank"),
        (json!({"to": "Paris "}), "to must be one line that does not begin or end with a blank"),
        (json!({"to": "New\nYork"}), "to must be one line"),
        (json!({"to": ""}), "spec.to"),
        (json!({"to": long}), "spec.to"),
        (json!({"departureDate": "tomorrow"}), "departureDate"),
        (json!({"cabin": "Hold"}), "cabin"),
        (json!({"hoge": "fuga"}), "hoge"),
    ] {
        let error = world.try_apply(&ticket(NAME, &spec)).await.expect_err(words).to_string();
        assert!(error.contains(words), "{spec}: {error}");
    }
    for number in [1, 10] {
        world.apply(&ticket(&format!("number-{number}"), &json!({"number": number}))).await;
    }
    world.apply(&ticket("東京".len().to_string().as_str(), &json!({"from": "東京", "to": "São Paulo"}))).await;

    world.apply(&ticket(NAME, &json!({"departureDate": "2037-01-31"}))).await;
    for (spec, field) in [
        (json!({"departureDate": "2037-01-31", "to": "Lisbon"}), "to"),
        (json!({"departureDate": "2037-01-31", "from": "Lisbon"}), "from"),
        (json!({"departureDate": "2037-01-31", "cabin": "First"}), "cabin"),
        (json!({"departureDate": "2037-02-01"}), "departureDate"),
        (json!({}), "departureDate"),
    ] {
        let error = world.try_apply(&ticket(NAME, &spec)).await.expect_err(field).to_string();
        let words = format!("{field} cannot be changed; delete this FlightTicket and create another");
        assert!(error.contains(&words), "{spec}: {error}");
    }
    world.apply(&ticket(NAME, &json!({"departureDate": "2037-01-31", "number": 3, "deletionPolicy": "Retain"}))).await;
    let unknown = json!({"apiVersion": "flights.com/v1", "kind": "FlightTicket", "metadata": {"name": "pruned"},
                         "spec": {"from": "a", "to": "b", "hoge": "fuga"}});
    world.create::<FlightTicket>(unknown.clone()).await;
    let stored: FlightTicket = world.get("pruned").await.expect("a ticket");
    assert_eq!((stored.spec.number, stored.spec.cabin.to_string()), (1, "Economy".to_owned()));
}
