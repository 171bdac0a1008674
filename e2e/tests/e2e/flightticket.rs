//! Tests of tickets, with the booking server of the chart as the provider.

use chart::helm::succeeded;
use cluster::Access;
use flightticket_operator::FlightTicket;
use k8s_openapi::api::core::v1::{Pod, Secret, Service};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams},
};
use manager_testing::World;
use serde_json::{Value, json};

use crate::kit::{get_over_tls, world, world_with};

const SAMPLE: &str = include_str!("../../../operators/flightticket-operator/samples/flights_v1_flightticket.yaml");
const NAME: &str = "my-flight-ticket";

/// Waits until the ticket has a booking for this number of seats, and returns the booking's id.
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
async fn s1_sample_ticket_is_booked_modified_and_cancelled() {
    let Some(world) = world().await else { return };
    world.apply(SAMPLE).await;
    let id = booked(&world, 2).await;
    let table = succeeded(&mut world.cluster.kubectl(["get", "ft", "--namespace", &world.namespace])).expect("a table");
    let (head, row) = table.trim_end().split_once('\n').expect("a head and a row");
    let columns = |line: &str| line.split_whitespace().map(ToOwned::to_owned).collect::<Vec<_>>();
    assert_eq!(columns(head), ["NAME", "STATUS", "FROM", "TO", "NUMBER", "BOOKING", "AGE"]);
    assert_eq!(columns(row)[..6], [NAME, "Booked", "Mumbai", "London", "2", id.as_str()]);

    world.patch::<FlightTicket>(NAME, json!({"spec": {"number": 3}})).await;
    assert_eq!(booked(&world, 3).await, id, "the booking was replaced");
    world.until_event(NAME, "Normal", "Modified").await;

    world.delete::<FlightTicket>(NAME).await;
    world.until("the ticket is gone", async || world.get::<FlightTicket>(NAME).await.is_none().then_some(())).await;
    world.until_event(NAME, "Normal", "Cancelled").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_manager_does_not_book_twice() {
    let Some(world) = world_with(Access::Network).await else { return };
    world.apply(SAMPLE).await;
    let managers: Api<Pod> = Api::namespaced(world.client.clone(), installation::MANAGER_NAMESPACE);
    let selector = ListParams::default().labels("app.kubernetes.io/component=controller-manager");
    let killed = managers.list(&selector).await.expect("pods").items;
    assert!(!killed.is_empty(), "no manager runs");
    for pod in &killed {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        managers.delete(name, &DeleteParams::default().grace_period(0)).await.expect("killed");
    }
    let id = booked(&world, 2).await;
    let uid = world.get::<FlightTicket>(NAME).await.and_then(|it| it.metadata.uid).expect("a uid");
    assert_eq!(bookings_for(&world, &uid).await, [id]);
}

/// The ids of all bookings that the provider has ever made for the ticket with this uid.
async fn bookings_for(world: &World, uid: &str) -> Vec<String> {
    let services: Api<Service> = Api::namespaced(world.client.clone(), installation::MANAGER_NAMESPACE);
    let selector = ListParams::default().labels("app.kubernetes.io/component=booking-server");
    let service = services.list(&selector).await.expect("Services").items.pop().expect("a booking server");
    let name = service.name_any();
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), installation::MANAGER_NAMESPACE);
    let value = async |of: &str, key: &str| {
        let secret = secrets.get(&name.replace("booking-server", of)).await.expect("a Secret");
        String::from_utf8(secret.data.expect("with data").remove(key).expect("the key").0).expect("text")
    };
    let (token, authorities) = (value("booking-token", "token").await, value("booking-certificate", "ca.crt").await);
    let address = service.spec.and_then(|it| it.cluster_ip).expect("an address");
    let authorization = format!("Authorization: Bearer {token}\r\n");
    let tls = (&*format!("{name}.{}.svc", installation::MANAGER_NAMESPACE), &*authorities);
    let path = "/v1/bookings?limit=100";
    let answer = get_over_tls(world.cluster.clone(), (&address, 443), tls, path, &authorization);
    let answer = answer.await.expect("an answer");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    let list: Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"));
    let items = list["items"].as_array().expect("bookings").iter();
    let ours = items.filter(|it| it["reference"].as_str().is_some_and(|reference| reference.starts_with(uid)));
    ours.map(|it| it["id"].as_str().expect("an id").to_owned()).collect()
}
