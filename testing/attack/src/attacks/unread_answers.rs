//! Asks for the longest answers, and never reads them.

use super::{Attack, LARGEST, conversion};
use crate::{aim::Aim, requests::Requests, target::Target};
use anyhow::Result;
use futures::FutureExt as _;
use tokio::io::AsyncWriteExt;

pub(super) const ATTACK: Attack = Attack {
    name: "unread-answers",
    about: "Asks for answers of megabytes, and never reads them",
    targets: &[Target::Webhooks],
    attackers: 64,
    leaves_answers: true,
    other_honest: None,
    once: |aim| once(aim).boxed(),
};

async fn once(aim: Aim) -> Result<()> {
    let mut stream = aim.connect().await?;
    let object = format!("{{\"apiVersion\":\"a/v1\",\"a\":\"{}\"}}", "x".repeat(LARGEST - 1024));
    let request = Requests::with_body(&aim.requests.post("/convert"), &conversion(&format!("[{object}]")));
    stream.write_all(request.as_bytes()).await?;
    aim.ignore(stream).await;
    Ok(())
}
