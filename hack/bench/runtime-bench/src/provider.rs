//! The reference booking provider, inside this program and slow on purpose.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use booking_server::{BookingServer, Options};
use serde_json::json;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// How long each answer takes, in milliseconds.
const LATENCY: u64 = 200;

pub(crate) struct Provider {
    _folder: TempDir,
    pub(crate) url: String,
    admin: SocketAddr,
}

impl Provider {
    pub(crate) async fn start() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut options = Options::for_tests(folder.path().join("bookings.db"));
        options.default_seats = Some(1_000_000);
        let server = BookingServer::bind(options).await?;
        let provider = Self { _folder: folder, url: server.url(), admin: server.admin_address() };
        tokio::spawn(server.run());
        let slow = json!({"op": "any", "mode": "delay", "delayMs": LATENCY, "times": 0});
        provider.ask("POST", "/admin/faults", &slow.to_string()).await?;
        Ok(provider)
    }

    /// The number of requests that the provider has received, for all operations together.
    pub(crate) async fn requests(&self) -> Result<f64> {
        let text = self.ask("GET", "/metrics", "").await?;
        let lines = text.lines().filter(|line| line.starts_with("booking_server_requests_total"));
        Ok(lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
    }

    async fn ask(&self, method: &str, path: &str, body: &str) -> Result<String> {
        let mut stream = TcpStream::connect(self.admin).await.context("the provider does not listen")?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        ensure!(answer.starts_with("HTTP/1.1 2"), "{method} {path}: {answer:.100}");
        Ok(answer)
    }
}
