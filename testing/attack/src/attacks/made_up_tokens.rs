//! Sends requests with tokens that are made up, each another one.

use super::{Attack, WITH_HTTP2};
use crate::{aim::Aim, frames};
use anyhow::Result;
use futures::FutureExt as _;
use tokio::io::AsyncWriteExt;

pub(super) const ATTACK: Attack = Attack {
    name: "made-up-tokens",
    about: "Sends requests with tokens that are made up, each another one",
    targets: WITH_HTTP2,
    attackers: 32,
    once: |aim| once(aim).boxed(),
};

async fn once(aim: Aim) -> Result<()> {
    let mut stream = aim.connect_http2(&[]).await?;
    for n in 0..100 {
        let token = format!("Bearer {}", fastrand::u64(..));
        stream.write_all(&frames::get_with(2 * n + 1, "authorization", &token)).await?;
    }
    aim.hold(stream).await;
    Ok(())
}
