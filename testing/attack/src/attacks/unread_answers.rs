//! Asks for the longest answers, and never reads them.

use super::{Attack, LARGEST};
use crate::{aim::Aim, target::Target};
use anyhow::Result;
use futures::FutureExt as _;
use tokio::io::AsyncWriteExt;

pub(super) const ATTACK: Attack = Attack {
    name: "unread-answers",
    about: "Asks for answers of megabytes, and never reads them",
    targets: &[Target::Webhooks],
    attackers: 64,
    once: |aim| once(aim).boxed(),
};

async fn once(aim: Aim) -> Result<()> {
    let mut stream = aim.connect().await?;
    // The object has the wanted version already, so the answer is as long as the request.
    let (before, after) = (
        "{\"apiVersion\":\"apiextensions.k8s.io/v1\",\"kind\":\"ConversionReview\",\"request\":{\"uid\":\"a\",\
         \"desiredAPIVersion\":\"a/v1\",\"objects\":[{\"apiVersion\":\"a/v1\",\"a\":\"",
        "\"}]}}",
    );
    let body = format!("{before}{}{after}", "x".repeat(LARGEST - 1024));
    let post = aim.requests.post("/convert");
    let head = format!("{post}content-length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).await?;
    aim.ignore(stream).await;
    Ok(())
}
