//! Sends lists in lists in lists.

use super::{Attack, WITH_BODIES};
use crate::{aim::Aim, requests::Requests};
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
    stream.write_all(Requests::with_body(&aim.requests.any_post(), &deep).as_bytes()).await?;
    aim.hold(stream).await;
    Ok(())
}
