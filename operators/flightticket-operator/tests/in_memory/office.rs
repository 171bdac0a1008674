//! The test environment: API server, provider, and the operator's processes. After a crash or an election, a new process follows.

use std::{sync::LazyLock, time::Duration};

use clap::Command;
use flightticket_operator::{
    Config, FlightTicket, FlightTicketOperator,
    booking::{Client, Settings, Token},
    declare,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use manager::{Manager, Operator, harness::Harness, normalize};
use model_apiserver::{Collecting, Model};
use serde_json::{Value, json};
use tokio::{
    sync::mpsc::UnboundedReceiver,
    time::{Instant, sleep_until},
};

use crate::{
    airline::Airline,
    mischief::{Event, Mischief},
};

pub(crate) const TICKETS: &str = "flighttickets.flights.com";
/// The namespaces besides `default`.
const NAMESPACES: [&str; 2] = ["other", "troubled"];
/// Longer than the operator's first back-off waits.
const QUIET: Duration = Duration::from_secs(30);
/// How long a former leader continues without noticing.
const UNAWARE: Duration = Duration::from_secs(5);

/// Created once, because a test creates thousands of offices.
static DEFINITIONS: LazyLock<Vec<CustomResourceDefinition>> =
    LazyLock::new(|| FlightTicketOperator.crds().iter().map(normalize).collect());

/// An API server, a provider, and the operator between them.
pub(crate) struct Office {
    pub(crate) model: Model,
    pub(crate) airline: Airline,
    pub(crate) mischief: Mischief,
    pub(crate) flags: Vec<&'static str>,
    /// Whether the next processes have a provider.
    pub(crate) has_provider: bool,
    events: UnboundedReceiver<Event>,
    processes: Vec<Process>,
    started: u32,
}

struct Process {
    name: String,
    harness: Harness,
    /// If set, the process no longer leads, and ends at this time.
    ends: Option<Instant>,
}

/// The operator, connected to a provider in memory.
struct Clerk {
    airline: Airline,
    mischief: Mischief,
    process: String,
    has_provider: bool,
}

impl Operator for Clerk {
    fn name(&self) -> &'static str {
        FlightTicketOperator.name()
    }

    fn crds(&self) -> Vec<CustomResourceDefinition> {
        FlightTicketOperator.crds()
    }

    fn args(&self, command: Command) -> Command {
        FlightTicketOperator.args(command)
    }

    fn sample(&self) -> &'static str {
        FlightTicketOperator.sample()
    }

    fn setup(&self, manager: &mut Manager) {
        let config: Config = manager.args();
        let line = self.mischief.line(&self.process, self.airline.clone());
        let url = "http://provider".parse().expect("an address");
        let settings = Settings { url, token: Token::None, places: config.concurrency.into() };
        let client = Client::new(settings, line, manager.metrics());
        let declared = declare(manager, &config, Some(client).filter(|_| self.has_provider));
        manager.add(declared);
    }
}

/// Returns an operator with its own provider. It lives until the test program ends.
pub(crate) fn clerk() -> &'static dyn Operator {
    let (mischief, _) = Mischief::new();
    let process = "operator".to_owned();
    mischief.born(&process);
    Box::leak(Box::new(Clerk { airline: Airline::new(), mischief, process, has_provider: true }))
}

impl Office {
    /// Returns an office without an operator process.
    pub(crate) fn new() -> Self {
        let model = Model::new();
        model.set_collecting(Collecting::AtOnce);
        DEFINITIONS.iter().for_each(|definition| model.install(definition));
        for namespace in NAMESPACES {
            model.add_namespace(namespace);
        }
        let (mischief, events) = Mischief::new();
        model.set_faults(mischief.clone());
        Self {
            model,
            airline: Airline::new(),
            mischief,
            flags: Vec::new(),
            has_provider: true,
            events,
            processes: Vec::new(),
            started: 0,
        }
    }

    /// Returns an office with an operator process.
    pub(crate) fn open() -> Self {
        let mut office = Self::new();
        office.start();
        office
    }

    pub(crate) fn start(&mut self) {
        self.started += 1;
        let process = format!("process-{}", self.started);
        let alive = self.mischief.born(&process);
        let client = self.model.client_while(alive, &process);
        let (airline, mischief) = (self.airline.clone(), self.mischief.clone());
        let clerk = Clerk { airline, mischief, process: process.clone(), has_provider: self.has_provider };
        let clock = self.model.clone();
        let harness = Harness::start(&clerk, &self.flags, client, move || clock.now());
        self.processes.push(Process { name: process, harness, ends: None });
    }

    /// Kills all processes.
    pub(crate) async fn stop(&mut self) {
        self.end(|_| true).await;
    }

    /// Kills all processes, and starts a new one.
    pub(crate) async fn restart(&mut self) {
        self.stop().await;
        self.start();
    }

    /// Lets time pass, and handles the events of processes meanwhile.
    pub(crate) async fn pass(&mut self, time: Duration) {
        let until = Instant::now() + time;
        loop {
            let next = self.processes.iter().filter_map(|process| process.ends).chain([until]).min().unwrap_or(until);
            tokio::select! {
                biased;
                Some(event) = self.events.recv() => self.happen(event).await,
                () = sleep_until(next) => {
                    if next == until {
                        return;
                    }
                    self.end(|process| process.ends.is_some_and(|ends| ends <= next)).await;
                }
            }
        }
    }

    async fn happen(&mut self, event: Event) {
        match event {
            Event::Killed(name) => self.end(|process| process.name == name).await,
            Event::Another => {
                let ends = Some(Instant::now() + UNAWARE);
                self.processes.iter_mut().for_each(|process| process.ends = process.ends.or(ends));
            }
        }
        if self.processes.iter().all(|process| process.ends.is_some()) {
            self.start();
        }
    }

    async fn end(&mut self, ends: impl Fn(&Process) -> bool) {
        while let Some(at) = self.processes.iter().position(&ends) {
            self.processes.swap_remove(at).harness.crash().await;
        }
    }

    /// Waits until there has been no request for a while.
    pub(crate) async fn until_quiet(&mut self) {
        for _ in 0..200 {
            let before = self.mischief.requests().len();
            self.pass(QUIET).await;
            if self.mischief.requests().len() == before {
                return;
            }
        }
        panic!("there are always requests: {:#?}", self.mischief.requests().iter().rev().take(30).collect::<Vec<_>>());
    }

    /// Returns how many processes have been started.
    pub(crate) fn processes(&self) -> u32 {
        self.started
    }

    /// Returns the metrics of the process that was started first of those that run.
    pub(crate) fn scrape(&self) -> String {
        self.processes.first().expect("a process").harness.scrape()
    }

    pub(crate) fn writes(&self) -> usize {
        let is_ours = |it: &&model_apiserver::Entry| {
            it.verb.writes() && it.resource == TICKETS && it.client.starts_with("process")
        };
        self.model.requests().iter().filter(is_ours).count()
    }

    /// Returns the client of users for the tickets of a namespace.
    pub(crate) fn api(&self, namespace: &str) -> Api<FlightTicket> {
        Api::namespaced(self.model.client(), namespace)
    }

    pub(crate) async fn apply(&self, name: &str, spec: Value) {
        self.apply_with("default", name, spec, json!({})).await;
    }

    pub(crate) async fn apply_with(&self, namespace: &str, name: &str, spec: Value, annotations: Value) {
        let mut whole = json!({"from": "Mumbai", "to": "London", "number": 2});
        whole.as_object_mut().expect("an object").extend(spec.as_object().expect("an object").clone());
        let metadata = json!({"name": name, "annotations": annotations});
        let ticket =
            json!({"apiVersion": "flights.com/v1", "kind": "FlightTicket", "metadata": metadata, "spec": whole});
        let params = PatchParams::apply("kubectl").force();
        self.api(namespace).patch(name, &params, &Patch::Apply(&ticket)).await.expect("taken");
    }

    pub(crate) async fn annotate(&self, name: &str, annotation: &str, value: &str) {
        let patch = json!({"metadata": {"annotations": {annotation: value}}});
        self.api("default").patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("taken");
    }

    pub(crate) async fn delete(&self, name: &str) {
        drop(self.api("default").delete(name, &DeleteParams::default()).await.expect("deleted"));
    }

    /// Returns the stored ticket; `None` if it does not exist.
    pub(crate) fn ticket(&self, name: &str) -> Option<FlightTicket> {
        self.ticket_in("default", name)
    }

    pub(crate) fn ticket_in(&self, namespace: &str, name: &str) -> Option<FlightTicket> {
        let object = self.model.object(TICKETS, namespace, name)?;
        Some(serde_json::from_value(object).expect("a ticket"))
    }

    pub(crate) fn tickets(&self) -> Vec<FlightTicket> {
        self.model.objects(TICKETS).into_iter().map(|it| serde_json::from_value(it).expect("a ticket")).collect()
    }

    /// Formats phase, `Ready` and `Synced` of a ticket.
    pub(crate) fn said(&self, name: &str) -> String {
        self.said_in("default", name)
    }

    pub(crate) fn said_in(&self, namespace: &str, name: &str) -> String {
        let Some(status) = self.ticket_in(namespace, name).and_then(|ticket| ticket.status) else {
            return "gone".to_owned();
        };
        let reason = |type_: &str| {
            let found = status.conditions.iter().find(|it| it.type_ == type_);
            found.map_or_else(String::new, |it| format!(" {}/{}", it.status, it.reason))
        };
        format!("{}{}{}", status.phase, reason("Ready"), reason("Synced"))
    }
}
