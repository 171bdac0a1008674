//! Sends bodies of the largest size.

use super::{Attack, LARGEST, WITH_BODIES};
use crate::{aim::Aim, requests::Requests};
use anyhow::Result;
use futures::FutureExt as _;
use tokio::io::AsyncWriteExt;

pub(super) const ATTACK: Attack = Attack {
    name: "huge-bodies",
    about: "Sends bodies of the largest size",
    targets: WITH_BODIES,
    attackers: 16,
    leaves_answers: false,
    other_honest: None,
    once: |aim| once(aim).boxed(),
};

async fn once(aim: Aim) -> Result<()> {
    let mut stream = aim.connect().await?;
    let text = format!("\"{}\"", "x".repeat(LARGEST - 2));
    stream.write_all(Requests::with_body(&aim.requests.any_post(), &text).as_bytes()).await?;
    aim.hold(stream).await;
    Ok(())
}
