//! Answers conversion reviews: from the request body to the response body. Pure functions, which handle any input.

use std::fmt;

use serde::{
    Deserialize, Deserializer as _, Serialize,
    de::{SeqAccess, Visitor},
};
use serde_json::{
    Value, json,
    value::{RawValue, to_raw_value},
};

use super::{
    Webhook, Work,
    review::{Malformed, Outcome},
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConversionReview<'a> {
    api_version: String,
    kind: String,
    #[serde(borrow)]
    request: Option<ConversionRequest<'a>>,
}

#[derive(Deserialize)]
struct ConversionRequest<'a> {
    uid: String,
    #[serde(rename = "desiredAPIVersion")]
    desired_api_version: String,
    /// A list. It may have millions of elements, so it is never in memory as a whole.
    #[serde(borrow, default)]
    objects: Option<&'a RawValue>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    api_version: &'a str,
    kind: &'a str,
    response: Response<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    converted_objects: Vec<Box<RawValue>>,
    result: Value,
}

/// What decides whether an object has to be converted.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Identity {
    api_version: String,
    kind: String,
    metadata: Name,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Name {
    name: String,
}

/// Answers a conversion review: with all objects or, when one of them cannot be converted, with none.
pub(crate) fn convert(webhooks: &[Webhook], body: &[u8]) -> Result<(String, Outcome), Malformed> {
    let not_a_review = |error: serde_json::Error| Malformed(format!("not a ConversionReview: {error}"));
    let review: ConversionReview<'_> = serde_json::from_slice(body).map_err(not_a_review)?;
    let (version, kind) = (review.api_version.as_str(), review.kind.as_str());
    if (version, kind) != ("apiextensions.k8s.io/v1", "ConversionReview") {
        return Err(Malformed(format!("expected apiextensions.k8s.io/v1 ConversionReview, not {version} {kind}")));
    }
    let Some(ConversionRequest { uid, desired_api_version, objects }) = review.request else {
        return Err(Malformed("the ConversionReview has no request".to_owned()));
    };
    let all = || match objects {
        None => Ok(Ok(Vec::new())),
        Some(objects) => each(objects, |object| convert_one(webhooks, object, &desired_api_version)),
    };
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(all));
    let (converted, outcome) = match caught {
        Ok(result) => (result.map_err(not_a_review)?, Outcome::Answered),
        Err(_) => (Err("the conversion failed, see the log of the controller manager".to_owned()), Outcome::Panicked),
    };
    let (converted_objects, result) = match converted {
        Ok(objects) => (objects, json!({"status": "Success"})),
        Err(message) => (Vec::new(), json!({"status": "Failure", "message": message})),
    };
    let response = Response { uid: &uid, converted_objects, result };
    let answer = serde_json::to_string(&Answer { api_version: version, kind, response }).map_err(not_a_review)?;
    Ok((answer, outcome))
}

/// The results of `convert` for the elements of a list, one after the other, up to its first error.
fn each(
    list: &RawValue,
    convert: impl FnMut(&RawValue) -> Result<Box<RawValue>, String>,
) -> Result<Result<Vec<Box<RawValue>>, String>, serde_json::Error> {
    let mut each = Each { convert, converted: Vec::new(), failure: None };
    let read = serde_json::Deserializer::from_str(list.get()).deserialize_seq(&mut each);
    match each.failure {
        // The rest of the list was not read, which is an error for the deserializer.
        Some(failure) => Ok(Err(failure)),
        None => read.map(|()| Ok(each.converted)),
    }
}

struct Each<F> {
    convert: F,
    converted: Vec<Box<RawValue>>,
    failure: Option<String>,
}

impl<'de, F: FnMut(&RawValue) -> Result<Box<RawValue>, String>> Visitor<'de> for &mut Each<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while let Some(object) = list.next_element::<&RawValue>()? {
            match (self.convert)(object) {
                Ok(converted) => self.converted.push(converted),
                Err(failure) => {
                    self.failure = Some(failure);
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

fn convert_one(webhooks: &[Webhook], raw: &RawValue, wanted: &str) -> Result<Box<RawValue>, String> {
    let broken = |error: serde_json::Error| format!("an object cannot become {wanted}: {error}");
    let Identity { api_version: present, kind, metadata: Name { name } } =
        serde_json::from_str(raw.get()).map_err(broken)?;
    if present == wanted {
        return Ok(raw.to_owned());
    }
    let group = |api_version: &str| api_version.split_once('/').map(|(group, _)| group.to_owned()).unwrap_or_default();
    let version = wanted.split_once('/').map_or(wanted, |(_, version)| version);
    let serves = |webhook: &&Webhook| {
        webhook.target.kind == kind && webhook.target.group == group(&present) && group(&present) == group(wanted)
    };
    let convert = webhooks.iter().filter(serves).find_map(|webhook| match &webhook.work {
        Work::Convert(convert) => Some(convert),
        _ => None,
    });
    let Some(convert) = convert else {
        return Err(format!("{present} {kind} \"{name}\" cannot become {wanted}: no webhook converts it"));
    };
    let object: Value = serde_json::from_str(raw.get()).map_err(broken)?;
    let metadata = object["metadata"].clone();
    let mut converted = convert(object, version).map_err(|why| format!("\"{name}\" cannot become {wanted}: {why}"))?;
    converted["apiVersion"] = json!(wanted);
    // The API server refuses a conversion that changes other metadata than labels and annotations.
    let identity = ["name", "namespace", "uid", "generateName"];
    if identity.iter().any(|key| converted["metadata"][key] != metadata[key]) {
        return Err(format!("\"{name}\" would change its identity when it becomes {wanted}"));
    }
    to_raw_value(&converted).map_err(broken)
}

#[cfg(test)]
mod tests;
