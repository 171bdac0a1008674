//! The booking server, inside the test process or as a process of its own.

use std::{
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use booking_server::{Audit, BookingServer, Options, audit};
use bytes::Bytes;
use flightticket_operator::booking::{Https, Transport, Trust};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{net::TcpStream, task::JoinHandle, time::sleep};
use tokio_util::sync::CancellationToken;

/// A booking server with its own port and database. It ends with its test.
pub(crate) struct Provider {
    folder: TempDir,
    options: Options,
    pub(crate) url: String,
    admin: SocketAddr,
    token: Option<String>,
    running: Option<(CancellationToken, JoinHandle<()>)>,
    process: Option<Process>,
    transport: Https,
}

/// The booking server as a process of its own. Dropping it kills the process.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The environment variable that passes the database and the addresses to a [`Process`].
const OF_PROCESS: &str = "BOOKING_SERVER_OF_A_TEST";

/// Not a test: it is the [`Process`] of other tests if they set the environment variable.
#[tokio::test(flavor = "multi_thread")]
async fn process() {
    let Ok(text) = std::env::var(OF_PROCESS) else { return skip::unasked("the process that other tests kill") };
    let (database, listen, admin_listen): (PathBuf, _, _) = serde_json::from_str(&text).expect("JSON");
    let options = Options { listen, admin_listen, ..Options::for_tests(database) };
    BookingServer::bind(options).await.expect("a server").run().await;
}

impl Provider {
    pub(crate) async fn start() -> Self {
        Self::with(|_, _| {}).await
    }

    /// Starts a server with changed options. The second argument of `change` is a folder for files.
    pub(crate) async fn with(change: impl FnOnce(&mut Options, &std::path::Path)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut options = Options::for_tests(folder.path().join("bookings.db"));
        change(&mut options, folder.path());
        let server = BookingServer::bind(options.clone()).await.expect("a server");
        let (url, admin) = (server.url(), server.admin_address());
        options.listen = server.address();
        options.admin_listen = admin;
        let running = Some((server.stop_handle(), tokio::spawn(server.run())));
        let transport = Https::new(Trust::System, Duration::from_secs(10));
        Self { folder, options, url, admin, token: None, running, process: None, transport }
    }

    /// Sets the token for the test's own requests.
    pub(crate) fn known_to(mut self, token: &str) -> Self {
        self.token = Some(token.to_owned());
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Stops the server: connections to its address fail.
    pub(crate) async fn stop(&mut self) {
        let Some((stop, running)) = self.running.take() else { return };
        stop.cancel();
        running.await.expect("it ends");
    }

    /// Starts the server again, with the same address and database.
    pub(crate) async fn resume(&mut self) {
        let server = BookingServer::bind(self.options.clone()).await.expect("a server");
        self.running = Some((server.stop_handle(), tokio::spawn(server.run())));
    }

    /// Kills the server, if it is a process.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// Continues as a process, with the same addresses and database.
    pub(crate) async fn be_a_process(&mut self) {
        self.stop().await;
        let place = json!([self.options.database, self.options.listen, self.options.admin_listen]);
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "provider::process"]).env(OF_PROCESS, place.to_string());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        self.process = Some(Process(child));
        for _ in 0..500 {
            if TcpStream::connect(self.options.listen).await.is_ok() {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
        panic!("the booking server does not listen at {}", self.options.listen);
    }

    /// Audits the database, which must be consistent.
    pub(crate) fn audit(&self) -> Audit {
        let audit = audit(&self.options.database).expect("books");
        assert_eq!(audit.violations, Vec::<String>::new());
        audit
    }

    /// Returns the number of bookings in this state.
    pub(crate) fn count(&self, state: &str) -> u64 {
        self.audit().bookings.get(state).copied().unwrap_or_default()
    }

    /// Returns id, reference, state and number of each booking, in the order of their creation.
    pub(crate) async fn bookings(&self) -> Vec<(String, String, String, u64)> {
        let (mut all, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = self.ask("GET", &format!("{}/v1/bookings?limit=500{cursor}", self.url), None).await;
            let text = |item: &Value, field: &str| item[field].as_str().unwrap_or_default().to_owned();
            all.extend(page["items"].as_array().expect("a list").iter().map(|it| {
                (text(it, "id"), text(it, "reference"), text(it, "state"), it["number"].as_u64().unwrap_or_default())
            }));
            let Some(next) = page["nextCursor"].as_str() else { return all };
            cursor = format!("&cursor={next}");
        }
    }

    /// Adds a fault to the server.
    pub(crate) async fn fault(&self, fault: Value) {
        self.ask("POST", &format!("http://{}/admin/faults", self.admin), Some(fault)).await;
    }

    /// Returns how often each fault has occurred, in the order in which they were added.
    pub(crate) async fn hits(&self) -> Vec<u64> {
        let faults = self.ask("GET", &format!("http://{}/admin/faults", self.admin), None).await;
        let items = faults["items"].as_array().expect("a list").iter();
        items.map(|item| item["fired"].as_u64().unwrap_or_default()).collect()
    }

    /// Acts as the airline: `confirm`, `reject`, `cancel` or `depart`.
    pub(crate) async fn airline(&self, act: &str, id: &str) {
        self.ask("POST", &format!("http://{}/admin/bookings/{id}/{act}", self.admin), None).await;
    }

    /// Sets the seats of a route.
    pub(crate) async fn seats(&self, from: &str, to: &str, seats: u32) {
        let body = json!({"from": from, "to": to, "seats": seats});
        self.ask("POST", &format!("http://{}/admin/seats", self.admin), Some(body)).await;
    }

    /// Changes the number of a booking, as another client does.
    pub(crate) async fn change(&self, id: &str, number: u8) {
        let url = format!("{}/v1/bookings/{id}", self.url);
        self.ask("PATCH", &url, Some(json!({"number": number}))).await;
    }

    /// Books under this reference, as the operator of another cluster does for a ticket of this namespace. Returns the id.
    pub(crate) async fn book(&self, reference: &str, namespace: &str) -> String {
        let order = json!({
            "reference": reference, "from": "Mumbai", "to": "London", "number": 1,
            "contact": {"namespace": namespace, "name": "theirs"},
        });
        let booking = self.ask("POST", &format!("{}/v1/bookings", self.url), Some(order)).await;
        booking["id"].as_str().expect("an id").to_owned()
    }

    /// Returns how many requests of this operation the server has received.
    pub(crate) async fn requests(&self, op: &str) -> u64 {
        let text = self.text("GET", &format!("http://{}/metrics", self.admin), None).await;
        let label = format!("op=\"{op}\"");
        let lines =
            text.lines().filter(|line| line.starts_with("booking_server_requests_total") && line.contains(&label));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }

    async fn ask(&self, method: &str, url: &str, body: Option<Value>) -> Value {
        let text = self.text(method, url, body).await;
        if text.is_empty() { Value::Null } else { serde_json::from_str(&text).expect("JSON") }
    }

    async fn text(&self, method: &str, url: &str, body: Option<Value>) -> String {
        let mut request = http::Request::builder().method(method).uri(url).header("if-match", "*");
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if let Some(reference) = body.as_ref().and_then(|body| body["reference"].as_str()) {
            request = request.header("idempotency-key", reference);
        }
        let bytes = body.map(|body| Bytes::from(body.to_string()));
        if bytes.is_some() {
            request = request.header("content-type", "application/json");
        }
        let request = request.body(bytes.unwrap_or_default()).expect("a request");
        let answer = self.transport.send(request).await.unwrap_or_else(|error| panic!("{method} {url}: {error}"));
        let text = String::from_utf8_lossy(answer.body()).into_owned();
        assert!(answer.status().is_success(), "{method} {url}: {} {text}", answer.status());
        text
    }
}
