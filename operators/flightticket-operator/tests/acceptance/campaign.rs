//! The same scenario of two tickets, on a real API server and with a real booking server, repeated with a different fault between
//! operator and API server each time.
//!
//! `FAULT_PLANS=all` runs every plan; with a plan's text as value, it runs only that one.

use flightticket_operator::FlightTicketOperator;
use manager_testing::{Campaign, Subject, World};
use serde_json::{Value, json};

use crate::{
    desk::{BINARY, NAME, SAMPLE, ticket},
    provider::Provider,
};

#[derive(Debug, Clone, Copy)]
struct Tickets {
    flags: &'static [&'static str],
}

impl Subject for Tickets {
    fn operator(&self) -> &'static dyn manager::Operator {
        &FlightTicketOperator
    }

    fn binary(&self) -> &'static str {
        BINARY
    }

    fn flags(&self) -> &'static [&'static str] {
        self.flags
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["flights.com/v1/FlightTicket"]
    }

    async fn live(&self, world: &World) {
        use flightticket_operator::FlightTicket;
        world.apply(SAMPLE).await;
        world.until_condition::<FlightTicket>(NAME, "Ready", "True", "Booked").await;
        world.apply(&ticket("other", &json!({"number": 1}))).await;
        world.until_condition::<FlightTicket>("other", "Ready", "True", "Booked").await;
        world.apply(&ticket(NAME, &json!({"number": 5}))).await;
        let is_five = async || (world.get::<FlightTicket>(NAME).await?.status?.number == Some(5)).then_some(());
        world.until("five seats", is_five).await;
        world.delete::<FlightTicket>("other").await;
        let is_gone = async || world.get::<FlightTicket>("other").await.is_none().then_some(());
        world.until("it is gone", is_gone).await;
    }

    fn mask(&self, object: &mut Value) {
        object["metadata"]["annotations"]["flights.com/booking-id"] = Value::Null;
        for field in ["bookingId", "confirmationCode", "reference", "bookedAt"] {
            object["status"][field] = Value::Null;
        }
        for condition in object["status"]["conditions"].as_array_mut().into_iter().flatten() {
            condition["message"] = Value::Null; // contains the confirmation code
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t04_each_ticket_has_one_booking_under_any_fault() {
    let provider = Provider::with(|options, _| options.default_seats = Some(10_000)).await;
    let flags = vec!["--booking-url", provider.url.clone().leak()].leak();
    let Some(campaign) = Campaign::begin(Tickets { flags }).await else { return };
    campaign.run("crashes", campaign.crashes(), 8).await;
    campaign.run("errors", campaign.errors(), 4).await;
    // Each repetition leaves one booking of five seats, and has cancelled one booking of one seat.
    let audit = provider.audit();
    let (held, given_back) = (provider.count("CONFIRMED"), provider.count("CANCELLED"));
    eprintln!("the provider's data: {audit:?}");
    assert_eq!((held, audit.seats_taken), (given_back, 5 * held));
}
