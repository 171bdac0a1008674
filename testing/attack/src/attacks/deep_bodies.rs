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
    leaves_answers: false,
    other_honest: None,
    once: |aim| once(aim).boxed(),
};

/// Lists around each other. The webhooks weigh a body before they read it, and refuse the deepest; the next depth is read as a long
/// review, and the last one as a short review. All are deeper than a decoder permits.
const DEPTHS: [usize; 3] = [60_000, 9_000, 200];

async fn once(aim: Aim) -> Result<()> {
    let mut stream = aim.connect().await?;
    let depth = DEPTHS[fastrand::usize(..DEPTHS.len())];
    let post = aim.requests.any_post();
    let whole = if post.starts_with("POST /convert ") { deep_conversion } else { deep_admission };
    // The bare lists are refused at their first byte, because no server takes a list.
    let body = if fastrand::bool() { "[".repeat(depth) } else { whole(depth) };
    stream.write_all(Requests::with_body(&post, &body).as_bytes()).await?;
    aim.hold(stream).await;
    Ok(())
}

/// The lists are where any JSON may be.
fn deep_admission(depth: usize) -> String {
    let fields = format!("\"managedFields\":[{{\"fieldsV1\":{}}}]", deep(depth));
    admission(&format!("{{\"apiVersion\":\"a/v1\",\"kind\":\"A\",\"metadata\":{{{fields}}},\"spec\":{{}}}}"))
}

fn deep_conversion(depth: usize) -> String {
    conversion(&format!("[{{\"apiVersion\":\"a/v2\",\"kind\":\"A\",\"spec\":{}}}]", deep(depth)))
}

fn deep(depth: usize) -> String {
    "[".repeat(depth) + &"]".repeat(depth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reviews_are_whole_and_too_deep_to_be_parsed() {
        for body in [deep_admission, deep_conversion] {
            let parsed = |depth| serde_json::from_str::<serde_json::Value>(&body(depth));
            parsed(1).expect("JSON");
            for depth in DEPTHS {
                let error = parsed(depth).expect_err("is too deep").to_string();
                assert!(error.contains("recursion limit"), "{error}");
            }
        }
    }
}
