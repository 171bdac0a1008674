//! Sends requests of HTTP/1.1 without waiting for the answers, each with another token that is made up.

use super::Attack;
use crate::{aim::Aim, target::Target};
use anyhow::Result;
use futures::FutureExt as _;
use tokio::io::AsyncWriteExt;

pub(super) const ATTACK: Attack = Attack {
    name: "pipelined-tokens",
    about: "Sends requests of HTTP/1.1 without waiting for the answers, each with another token that is made up",
    targets: &[Target::MetricsProxy, Target::BuiltinMetrics],
    attackers: 256,
    leaves_answers: false,
    other_honest: None,
    once: |aim| once(aim).boxed(),
};

/// Requests on one connection.
const REQUESTS: u32 = 10_000;

async fn once(aim: Aim) -> Result<()> {
    let (answers, mut requests) = tokio::io::split(aim.connect().await?);
    let asking = async {
        for _ in 0..REQUESTS {
            let token = fastrand::u64(..);
            let request = format!("GET /metrics HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {token}\r\n\r\n");
            requests.write_all(request.as_bytes()).await?;
        }
        anyhow::Ok(())
    };
    tokio::select! {
        asked = asking => asked,
        () = aim.hold(answers) => Ok(()),
    }
}
