//! Compaction of the history of a cluster's store.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::cluster::Cluster;

const API_SERVER: &str = "kube-apiserver";
/// How long an API server may take that reads hundreds of thousands of objects at its start.
const READY: Duration = Duration::from_mins(5);
const ANSWER: Duration = Duration::from_mins(1);
/// The key `operators/compaction`, which is outside of what the API server reads, as etcd's gateway wants it.
const KEY: &str = "b3BlcmF0b3JzL2NvbXBhY3Rpb24=";

impl Cluster {
    /// Compacts the whole history of the store, as etcd does for the API server after some minutes, and restarts the API server,
    /// which forgets its own copy of the history. So no watch can continue: the API server refuses each earlier version with 410,
    /// and the clients list again. Waits until the API server is ready.
    ///
    /// Returns the version up to which the history is gone.
    pub fn compact(&self) -> Result<u64> {
        if self.is_shared() {
            bail!("other tests use the cluster {}: compact only clusters of `Cluster::fresh`", self.name());
        }
        let port = self.supervised()?.spec.ports.etcd;
        self.stop_part(API_SERVER)?;
        let compacted = self.in_network(|| compact_at(port));
        self.start_part(API_SERVER)?; // also after a failure
        self.wait_until_ready(READY)?;
        compacted
    }
}

/// Makes one more revision, and compacts all before it. Without it, a client whose last version is the newest one could continue.
fn compact_at(port: u16) -> Result<u64> {
    let answer = ask(port, "/v3/kv/put", &json!({"key": KEY}))?;
    let revision = answer["header"]["revision"].as_str().context("etcd reports no revision")?;
    ask(port, "/v3/kv/compaction", &json!({"revision": revision, "physical": true}))?;
    revision.parse().with_context(|| format!("{revision} is not a number"))
}

/// Sends a request to etcd's gateway for JSON. It uses HTTP/1.0, so that the answer ends with the connection.
fn ask(port: u16, path: &str, request: &Value) -> Result<Value> {
    let mut etcd = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).context("could not reach etcd")?;
    etcd.set_read_timeout(Some(ANSWER))?;
    let body = request.to_string();
    let length = body.len();
    write!(etcd, "POST {path} HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}")?;
    let mut answer = String::new();
    etcd.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("etcd gave no answer")?;
    let first = head.lines().next().unwrap_or_default();
    if first.split(' ').nth(1) != Some("200") {
        bail!("etcd answered {path} with {first}: {body}");
    }
    serde_json::from_str(body).with_context(|| format!("the answer of etcd to {path} is not JSON: {body}"))
}
