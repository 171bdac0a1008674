//! Helpers of the acceptance tests: an API server with the operator, and a provider.

use std::time::Duration;

use flightticket_operator::{FlightTicket, FlightTicketOperator, api::v1::FlightTicketStatus};
use kube::api::ListParams;
use manager_testing::World;
use serde_json::{Value, json};

use crate::provider::Provider;

pub(crate) const NAME: &str = "my-flight-ticket";
pub(crate) const SAMPLE: &str = include_str!("../../samples/flights_v1_flightticket.yaml");
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_flightticket-operator");

/// A world with the operator, and the provider of its tickets.
pub(crate) struct Desk {
    pub(crate) world: World,
    pub(crate) provider: Provider,
}

/// Returns a world without a provider, in which the operator does not run.
pub(crate) async fn quiet_world() -> Option<World> {
    let shared = || cluster::Cluster::shared(cluster::Nodes::None);
    World::prepare(&FlightTicketOperator, BINARY, shared).await
}

/// Returns a ticket from Mumbai to London with two seats, and with these changes of its spec.
pub(crate) fn ticket(name: &str, spec: &Value) -> String {
    let mut whole = json!({"from": "Mumbai", "to": "London", "number": 2});
    whole.as_object_mut().expect("an object").extend(spec.as_object().expect("an object").clone());
    json!({"apiVersion": "flights.com/v1", "kind": "FlightTicket", "metadata": {"name": name}, "spec": whole})
        .to_string()
}

impl Desk {
    /// Returns a desk with a running operator.
    pub(crate) async fn open() -> Option<Self> {
        let mut desk = Self::closed().await?;
        desk.run("1s");
        Some(desk)
    }

    /// Returns a desk without a running operator.
    pub(crate) async fn closed() -> Option<Self> {
        let world = quiet_world().await?;
        Some(Self { world, provider: Provider::start().await })
    }

    /// Returns a desk with a running operator, its own API server and a provider process, all of which the test may kill.
    pub(crate) async fn fresh() -> Option<Self> {
        let fresh = || cluster::Cluster::fresh(cluster::Nodes::None);
        let world = World::prepare(&FlightTicketOperator, BINARY, fresh).await?;
        let mut desk = Self { world, provider: Provider::start().await };
        desk.provider.be_a_process().await;
        desk.run("1s");
        Some(desk)
    }

    /// Kills the API server and starts it again.
    pub(crate) async fn kill_the_api_server(&self) {
        let cluster = self.world.cluster.clone();
        let again = move || {
            cluster.restart_part("kube-apiserver")?;
            cluster.wait_until_ready(Duration::from_mins(1))
        };
        tokio::task::spawn_blocking(again).await.expect("no panic").expect("it is back");
        // The first requests may fail on connections to the old process.
        let answers = async || self.world.api::<FlightTicket>().list(&ListParams::default()).await.ok().map(drop);
        self.world.until("it answers", answers).await;
    }

    /// Starts or restarts (SIGKILL) the operator with this poll interval.
    pub(crate) fn run(&mut self, poll: &str) {
        self.world.run(&["--booking-url", &self.provider.url, "--booking-poll-interval", poll]);
    }

    /// Applies a ticket with this name and spec.
    pub(crate) async fn apply(&self, name: &str, spec: &Value) {
        self.world.apply(&ticket(name, spec)).await;
    }

    /// Applies the sample, and waits for its booking.
    pub(crate) async fn booked(&self) -> FlightTicketStatus {
        self.world.apply(SAMPLE).await;
        self.until_booked(NAME).await
    }

    pub(crate) async fn until_booked(&self, name: &str) -> FlightTicketStatus {
        self.until(name, "True", "Booked").await
    }

    /// Waits until `Ready` has this status and reason.
    pub(crate) async fn until(&self, name: &str, status: &str, reason: &str) -> FlightTicketStatus {
        let ticket = self.world.until_condition::<FlightTicket>(name, "Ready", status, reason).await;
        ticket.status.expect("a status")
    }

    /// Waits until the status reports this number of booked seats, and `Synced`.
    pub(crate) async fn until_synced(&self, name: &str, number: i64) {
        self.world.until_condition::<FlightTicket>(name, "Synced", "True", "UpToDate").await;
        let is_so = async || (self.get(name).await.status?.number == Some(number)).then_some(());
        self.world.until(&format!("{number} seats"), is_so).await;
    }

    pub(crate) async fn get(&self, name: &str) -> FlightTicket {
        self.world.get(name).await.expect("a ticket")
    }

    pub(crate) async fn annotate(&self, name: &str, annotation: &str, value: Option<&str>) {
        let patch = json!({"metadata": {"annotations": {annotation: value}}});
        self.world.patch::<FlightTicket>(name, patch).await;
    }

    pub(crate) async fn delete(&self, name: &str) {
        self.world.delete::<FlightTicket>(name).await;
        self.until_gone(name).await;
    }

    pub(crate) async fn until_gone(&self, name: &str) {
        let is_gone = async || self.world.get::<FlightTicket>(name).await.is_none().then_some(());
        self.world.until(&format!("{name} is gone"), is_gone).await;
    }

    /// Waits until the operator has sent this many more requests of one kind.
    pub(crate) async fn until_asked(&self, op: &str, more: u64) {
        let before = self.provider.requests(op).await;
        let has_asked = async || (self.provider.requests(op).await >= before + more).then_some(());
        self.world.until(&format!("{more} times {op}"), has_asked).await;
    }
}
