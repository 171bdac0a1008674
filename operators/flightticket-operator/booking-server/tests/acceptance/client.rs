//! An HTTP client that checks every answer against the contract.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::contract;

/// Longer than any request takes here.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A client of one server, with its token.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    pub(crate) token: Option<String>,
}

/// An answer.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Its name in the contract, if it was checked.
    pub(crate) name: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// A text field of the body; empty if there is none.
    pub(crate) fn text(&self, field: &str) -> String {
        self.json()[field].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn code(&self) -> String {
        self.text("code")
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }
}

/// One connection.
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    client: Client,
}

/// A request to send.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Bytes,
}

impl Ask {
    pub(crate) fn new(method: &'static str, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), headers: Vec::new(), body: Bytes::new() }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        Self { body: body.to_string().into(), ..self.header("content-type", "application/json") }
    }

    /// A booking of `number` seats from London to `to`.
    pub(crate) fn book(reference: &str, to: &str, number: u64) -> Self {
        let order = json!({"reference": reference, "from": "London", "to": to, "number": number});
        Self::order(reference, &order)
    }

    pub(crate) fn order(key: &str, order: &Value) -> Self {
        Self::new("POST", "/v1/bookings").header("idempotency-key", key).json(order)
    }

    pub(crate) fn patch(id: &str, number: u64, tag: Option<&str>) -> Self {
        let ask = Self::new("PATCH", format!("/v1/bookings/{id}")).json(&json!({"number": number}));
        match tag {
            Some(tag) => ask.header("if-match", tag),
            None => ask,
        }
    }

    pub(crate) fn close(reference: &str) -> Self {
        Self::new("DELETE", format!("/v1/references/{reference}"))
    }
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self { address, token: None }
    }

    pub(crate) fn with_token(&self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self.clone() }
    }

    pub(crate) async fn connect(&self) -> Result<Connection> {
        let stream = TcpStream::connect(self.address).await?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Connection { sender, client: self.clone() })
    }

    /// Sends a request on a new connection, and checks the answer.
    pub(crate) async fn ask(&self, ask: Ask) -> Result<Answer> {
        self.connect().await?.ask(ask).await
    }

    /// As `ask`, but an answer must come.
    pub(crate) async fn must(&self, ask: Ask) -> Answer {
        self.ask(ask).await.expect("an answer")
    }

    /// Sends a request without checking the answer, for paths that are not in the contract.
    pub(crate) async fn raw(&self, ask: Ask) -> Result<Answer> {
        self.connect().await?.raw(ask).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.must(Ask::new("GET", path)).await
    }

    /// All bookings, page by page.
    pub(crate) async fn list(&self, query: &str) -> Vec<Value> {
        let (mut all, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = self.get(&format!("/v1/bookings?{query}{cursor}")).await.json();
            all.extend(page["items"].as_array().unwrap().iter().cloned());
            let Some(next) = page["nextCursor"].as_str() else { return all };
            cursor = format!("&cursor={next}");
        }
    }
}

impl Connection {
    pub(crate) async fn ask(&mut self, ask: Ask) -> Result<Answer> {
        let (method, path) = (ask.method, ask.path.clone());
        let mut answer = self.raw(ask).await?;
        answer.name = contract::check(method, &path, answer.status, &answer.headers, &answer.body);
        Ok(answer)
    }

    pub(crate) async fn raw(&mut self, ask: Ask) -> Result<Answer> {
        let asked = async {
            let mut request =
                Request::builder().method(ask.method).uri(&ask.path).header("host", self.client.address.to_string());
            for (name, value) in &ask.headers {
                request = request.header(name, value);
            }
            if let Some(token) = &self.client.token {
                request = request.header("authorization", format!("Bearer {token}"));
            }
            self.sender.ready().await?;
            let response = self.sender.send_request(request.body(Full::new(ask.body))?).await?;
            let (head, body) = response.into_parts();
            let body = body.collect().await.context("the body")?.to_bytes();
            Ok(Answer { status: head.status.as_u16(), headers: head.headers, body, name: String::new() })
        };
        match tokio::time::timeout(PATIENCE, asked).await {
            Ok(answer) => answer,
            Err(_) => bail!("no answer to {} {} in {PATIENCE:?}", ask.method, ask.path),
        }
    }
}

/// Repeats a request until the answer is right.
pub(crate) async fn until(client: &Client, ask: Ask, is_right: impl Fn(&Answer) -> bool) -> Answer {
    let begun = std::time::Instant::now();
    loop {
        let is_admin = !ask.path.starts_with("/v1");
        let answer =
            if is_admin { client.raw(ask.clone()).await.expect("an answer") } else { client.must(ask.clone()).await };
        if is_right(&answer) {
            return answer;
        }
        assert!(begun.elapsed() < PATIENCE, "still {answer:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
