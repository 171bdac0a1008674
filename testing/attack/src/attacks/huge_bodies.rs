//! Sends bodies of the largest size.

use super::{Attack, LARGEST, WITH_BODIES};
use crate::aim::Aim;
use anyhow::Result;
use futures::FutureExt as _;
use tokio::io::AsyncWriteExt;

pub(super) const ATTACK: Attack = Attack {
    name: "huge-bodies",
    about: "Sends bodies of the largest size",
    targets: WITH_BODIES,
    attackers: 16,
    once: |aim| once(aim).boxed(),
};

async fn once(aim: Aim) -> Result<()> {
    let mut stream = aim.connect().await?;
    let text = "x".repeat(LARGEST - 2);
    let head = format!("{}connection: close\r\ncontent-length: {LARGEST}\r\n\r\n", aim.requests.any_post());
    stream.write_all(format!("{head}\"{text}\"").as_bytes()).await?;
    aim.hold(stream).await;
    Ok(())
}
