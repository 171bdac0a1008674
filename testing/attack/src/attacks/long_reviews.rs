//! Sends reviews that take as long as the limits allow, on as many connections as the server accepts.

use super::Attack;
use crate::{aim::Aim, target::Target};
use anyhow::Result;
use futures::FutureExt as _;
use serde_json::{Map, Value, json};
use std::sync::LazyLock;
use tokio::io::AsyncWriteExt;

pub(super) const ATTACK: Attack = Attack {
    name: "long-reviews",
    about: "Sends changes of the largest objects, and leaves half of them before the answer",
    targets: &[Target::Webhooks],
    attackers: 256,
    leaves_answers: false,
    // Of medium size: the largest needs the memory of all others together.
    other_honest: Some(|requests| requests.honest_post(&BODIES[1])),
    once: |aim| once(aim).boxed(),
};

/// Annotations of an object. The server has memory for one review at a time of the first number, and for more of the last number than
/// one address may have at work. All are long reviews.
const ANNOTATIONS: [usize; 3] = [14_000, 3_000, 500];

/// The bodies. They are made once, so that the attackers use their processor for requests.
static BODIES: LazyLock<[String; 3]> = LazyLock::new(|| ANNOTATIONS.map(review));

async fn once(aim: Aim) -> Result<()> {
    let mut stream = aim.connect().await?;
    let body = &BODIES[fastrand::usize(..BODIES.len())];
    let head = format!("{}connection: close\r\ncontent-length: {}\r\n\r\n", aim.requests.any_admission(), body.len());
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.flush().await?;
    // Half of the clients leave while their reviews wait or are at work.
    if fastrand::bool() {
        aim.hold(stream).await;
    }
    Ok(())
}

/// A review of a change of an object with this number of annotations.
fn review(annotations: usize) -> String {
    let object = object(annotations);
    let request = json!({"uid": "a", "operation": "UPDATE", "object": object, "oldObject": object});
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).to_string()
}

/// An object of any of our kinds, as the API server stores it: it also records the owner of each annotation.
fn object(annotations: usize) -> Value {
    let name = |n: usize| format!("example.com/key-{n}");
    let values: Map<String, Value> = (0..annotations).map(|n| (name(n), json!("value"))).collect();
    let owned: Map<String, Value> = (0..annotations).map(|n| (format!("f:{}", name(n)), json!({}))).collect();
    json!({
        "apiVersion": "a/v1",
        "kind": "A",
        "metadata": {
            "name": "a",
            "annotations": values,
            "managedFields": [{
                "apiVersion": "a/v1", "fieldsType": "FieldsV1", "manager": "a", "operation": "Update",
                "fieldsV1": {"f:metadata": {"f:annotations": owned}},
            }],
        },
        // What a kind requires; the others skip it.
        "spec": {"image": "a:1", "cronSpec": "0 0 * * *", "deploymentName": "a", "from": "a", "to": "b"},
    })
}

#[cfg(test)]
mod tests {
    use webhooks::{Webhook, answer};

    use super::*;
    use crate::{attacks::schemas, target::hooks};

    /// A larger object would be refused before its review.
    #[test]
    fn objects_are_reviewed_to_the_end_and_slightly_larger_ones_are_refused() {
        let hooks = hooks();
        for path in hooks.iter().map(Webhook::path).filter(|path| path != "/convert") {
            let answered = |annotations| answer(&hooks, &path, review(annotations).as_bytes());
            for annotations in ANNOTATIONS {
                let reply = answered(annotations).expect("it is reviewed").review;
                let reply: Value = serde_json::from_str(&reply).expect("JSON");
                assert_eq!(reply["response"]["allowed"], true, "{path} {annotations}");
            }
            let why = answered(ANNOTATIONS[0] / 10 * 11).expect_err("it needs too much memory");
            assert!(why.contains("bytes of memory"), "{why}");
        }
    }

    /// The review of an object without such a field would end early.
    #[test]
    fn object_has_what_each_kind_requires() {
        let object = object(0);
        for schema in schemas() {
            for field in schema["properties"]["spec"]["required"].as_array().into_iter().flatten() {
                assert!(object["spec"][field.as_str().expect("a name")].is_string(), "{field}");
            }
        }
    }
}
