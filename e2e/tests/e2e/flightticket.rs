//! Tickets, booked with the booking server that the chart brings.

use chart::helm::succeeded;
use flightticket_operator::FlightTicket;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use manager_testing::World;
use serde_json::json;

use crate::kit::world;

const SAMPLE: &str = include_str!("../../../operators/flightticket-operator/samples/flights_v1_flightticket.yaml");
const NAME: &str = "my-flight-ticket";

/// The id of a booking for so many.
async fn booked(world: &World, number: u64) -> String {
    let id = async || {
        let ticket: FlightTicket = world.get(NAME).await?;
        let status = json!(ticket.status?);
        let current = status["observedGeneration"].as_i64() == ticket.metadata.generation;
        (current && status["phase"] == "Booked" && status["number"] == number).then_some(status["bookingId"].clone())
    };
    let id = world.until(&format!("{number} seats are booked"), id).await;
    id.as_str().expect("an id").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn s1_the_ticket_of_the_course_is_booked_changed_and_given_back() {
    let Some(world) = world().await else { return };
    world.apply(SAMPLE).await;
    let id = booked(&world, 2).await;
    let table = succeeded(&mut world.cluster.kubectl(["get", "ft", "--namespace", &world.namespace])).expect("a table");
    let (head, row) = table.trim_end().split_once('\n').expect("a head and a row");
    let columns = |line: &str| line.split_whitespace().map(ToOwned::to_owned).collect::<Vec<_>>();
    assert_eq!(columns(head), ["NAME", "STATUS", "FROM", "TO", "NUMBER", "BOOKING", "AGE"]);
    assert_eq!(columns(row)[..6], [NAME, "Booked", "Mumbai", "London", "2", id.as_str()]);

    world.patch::<FlightTicket>(NAME, json!({"spec": {"number": 3}})).await;
    assert_eq!(booked(&world, 3).await, id, "the same booking");
    world.until_event(NAME, "Normal", "Modified").await;

    world.delete::<FlightTicket>(NAME).await;
    world.until("it is gone", async || world.get::<FlightTicket>(NAME).await.is_none().then_some(())).await;
    world.until_event(NAME, "Normal", "Cancelled").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_that_is_killed_while_it_books_buys_nothing_twice() {
    let Some(world) = world().await else { return };
    world.apply(SAMPLE).await;
    let managers: Api<Pod> = Api::namespaced(world.client.clone(), e2e::MANAGER_NAMESPACE);
    let selector = ListParams::default().labels("app.kubernetes.io/component=controller-manager");
    let killed = managers.list(&selector).await.expect("pods").items;
    assert!(!killed.is_empty(), "there is a manager");
    for pod in &killed {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        managers.delete(name, &DeleteParams::default().grace_period(0)).await.expect("killed");
    }
    let id = booked(&world, 2).await;
    let bought = world.events(NAME).await.into_iter().filter(|event| event.1 == "Booked").map(|event| event.2);
    // One that was sent by the old manager tells of the same booking.
    let told: std::collections::BTreeSet<String> = bought.collect();
    assert!(told.len() <= 1, "{id}: {told:?}");
}
