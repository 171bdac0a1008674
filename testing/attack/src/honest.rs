//! The honest client: one small request with a new connection every 50 ms.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::{Instant, timeout},
};

use crate::aim::Aim;

/// The pause between two requests.
const INTERVAL: Duration = Duration::from_millis(50);
/// How long the API server waits for a webhook, and Prometheus for a scrape, by default.
const PATIENCE: Duration = Duration::from_secs(10);

/// The times of the answers, and why requests failed.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    pub(crate) times: Vec<Duration>,
    pub(crate) failures: Vec<String>,
}

/// Sends requests until the end of the round.
pub(crate) async fn measure(aim: &Aim) -> Measured {
    let mut measured = Measured::default();
    while Instant::now() < aim.end {
        let since = Instant::now();
        match timeout(PATIENCE, ask(aim)).await {
            Ok(Ok(())) => measured.times.push(since.elapsed()),
            Ok(Err(error)) => measured.failures.push(format!("{error:#}")),
            Err(_) => measured.failures.push(format!("no answer within {PATIENCE:?}")),
        }
        tokio::time::sleep_until(since + INTERVAL).await;
    }
    measured
}

/// Sends one request, whose answer must be 200.
pub(crate) async fn ask(aim: &Aim) -> Result<()> {
    let mut stream = aim.connect().await.context("no connection")?;
    stream.write_all(aim.requests.honest.as_bytes()).await.context("the request was not taken")?;
    let mut answer = Vec::new();
    // An end without a TLS alert is an end as well.
    let ended = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer);
    let status = answer.lines().next().unwrap_or_default();
    ensure!(status.starts_with("HTTP/1.1 200"), "expected 200, got {status:?} ({ended:?})");
    Ok(())
}
