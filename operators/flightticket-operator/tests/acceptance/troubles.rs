//! Acceptance tests with a provider that is down, is slow to confirm, or refuses the credentials.

use std::time::Duration;

use booking_server::Access;
use flightticket_operator::{FlightTicket, api::v1::Phase};
use serde_json::json;

use crate::{
    desk::{Desk, NAME, SAMPLE, quiet_world},
    provider::Provider,
};

#[tokio::test(flavor = "multi_thread")]
async fn t08_deletion_waits_for_cancellation_or_force_delete() {
    let Some(mut desk) = Desk::open().await else { return };
    desk.booked().await;
    desk.apply("given-up", &json!({})).await;
    let id = desk.until_booked("given-up").await.booking_id.expect("an id");
    desk.provider.stop().await;
    for name in [NAME, "given-up"] {
        desk.world.delete::<FlightTicket>(name).await;
        let is_reported = async || {
            let ticket: FlightTicket = desk.world.get(name).await.expect("it stays");
            let ready = manager_testing::condition(&ticket, "Ready")?;
            let is_unavailable = ready.reason == "ProviderUnavailable" && ready.status == "Unknown";
            // A poll of the booked ticket may report the outage before the operator sees the deletion.
            (is_unavailable && ticket.status?.phase == Phase::Cancelling).then_some(())
        };
        desk.world.until("the cancellation waits for the provider", is_reported).await;
    }
    desk.world.until_event(NAME, "Warning", "ProviderUnavailable").await;
    desk.annotate("given-up", "flights.com/force-delete", Some("true")).await;
    desk.until_gone("given-up").await;
    let note = desk.world.until_event("given-up", "Warning", "BookingAbandoned").await;
    assert_eq!(note, format!("Booking {id} was left at the provider by force-delete"));
    desk.provider.resume().await;
    desk.until_gone(NAME).await;
    assert_eq!((desk.provider.count("CANCELLED"), desk.provider.count("CONFIRMED")), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn provider_outage_keeps_the_known_status() {
    let Some(mut desk) = Desk::open().await else { return };
    let before = desk.booked().await;
    desk.provider.stop().await;
    let down = desk.until(NAME, "Unknown", "ProviderUnavailable").await;
    assert_eq!((down.phase, down.booking_id, down.number), (Phase::Booked, before.booking_id, before.number));
    desk.provider.resume().await;
    desk.until_booked(NAME).await;
    assert_eq!(desk.provider.count("CONFIRMED"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn t11_new_token_is_used_without_a_restart() {
    let Some(mut world) = quiet_world().await else { return };
    let provider = Provider::with(|options, folder| {
        let file = folder.join("tokens");
        std::fs::write(&file, "right-token\n").expect("written");
        options.access = Access::Tokens(file);
    })
    .await
    .known_to("right-token");
    let token = provider.path("token");
    std::fs::write(&token, "wrong-token\n").expect("written");
    let file = token.display().to_string();
    world.run(&["--booking-url", &provider.url, "--booking-token-file", &file]);
    world.apply(SAMPLE).await;
    world.until_condition::<FlightTicket>(NAME, "Ready", "False", "AuthenticationFailed").await;
    let note = world.until_event(NAME, "Warning", "AuthenticationFailed").await;
    let cure = "an administrator of the operator has to replace it";
    assert_eq!(note, format!("The provider refused the token of the operator (401); {cure}"));
    std::fs::write(&token, "right-token\n").expect("written");
    world.until_condition::<FlightTicket>(NAME, "Ready", "True", "Booked").await;
    let log = world.operator.as_ref().expect("it runs").log();
    assert!(!log.contains("-token\\n") && !log.contains("right-token") && !log.contains("wrong-token"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_booking_is_polled_until_it_is_confirmed() {
    let Some(mut world) = quiet_world().await else { return };
    let provider = Provider::with(|options, _| options.confirm_delay = Duration::from_hours(1)).await;
    world.run(&["--booking-url", &provider.url]);
    world.apply(SAMPLE).await;
    let pending = world.until_condition::<FlightTicket>(NAME, "Ready", "False", "BookingPending").await;
    let id = async || world.get::<FlightTicket>(NAME).await?.status?.booking_id;
    let id = world.until("an id", id).await;
    assert_eq!(pending.status.map(|it| it.phase), Some(Phase::Pending));
    provider.airline("confirm", &id).await;
    world.until_condition::<FlightTicket>(NAME, "Ready", "True", "Booked").await;
    assert_eq!(provider.count("CONFIRMED"), 1);
}
