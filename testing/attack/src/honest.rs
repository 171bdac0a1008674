//! The honest client: one request with a new connection every 50 ms, a small one as a rule.

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
/// Every so many requests, one is of another kind, if the attack has such a kind.
const OTHER: usize = 10;

/// The times of the answers, and why requests failed.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    pub(crate) times: Vec<Duration>,
    pub(crate) failures: Vec<String>,
}

/// Sends requests until the end of the round. If there is another request than the usual one, every tenth is of this kind.
pub(crate) async fn measure(aim: &Aim, other: Option<&str>) -> Measured {
    let mut measured = Measured::default();
    for request in requests(&aim.requests.honest, other) {
        if Instant::now() >= aim.end {
            break;
        }
        let since = Instant::now();
        match timeout(PATIENCE, ask(aim, request)).await {
            Ok(Ok(())) => measured.times.push(since.elapsed()),
            Ok(Err(error)) => measured.failures.push(format!("{error:#}")),
            Err(_) => measured.failures.push(format!("no answer within {PATIENCE:?}")),
        }
        tokio::time::sleep_until(since + INTERVAL).await;
    }
    measured
}

/// The requests in their order, without end.
fn requests<'a>(usual: &'a str, other: Option<&'a str>) -> impl Iterator<Item = &'a str> {
    (1..).map(move |number: usize| other.filter(|_| number.is_multiple_of(OTHER)).unwrap_or(usual))
}

/// Sends this request, whose answer must be 200 and end the connection.
pub(crate) async fn ask(aim: &Aim, request: &str) -> Result<()> {
    let mut stream = aim.connect().await.context("no connection")?;
    stream.write_all(request.as_bytes()).await.context("the request was not taken")?;
    let mut answer = Vec::new();
    // An end without a TLS alert is an end as well.
    let ended = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8_lossy(&answer);
    let status = answer.lines().next().unwrap_or_default();
    ensure!(status.starts_with("HTTP/1.1 200"), "expected 200, got {status:?} ({ended:?})");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tenth_request_is_the_other_one() {
        let numbers = |other| -> Vec<_> {
            let sent = requests("usual", other).take(20).enumerate();
            sent.filter(|(_, request)| *request == "other").map(|(place, _)| place + 1).collect()
        };
        assert_eq!(numbers(Some("other")), [10, 20]);
        assert!(numbers(None).is_empty());
    }
}
