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
    Conversion, Webhook, Work,
    brief::brief,
    object::Object,
    review::{Malformed, Outcome, check_uid},
};

/// The version in reports that the webhook does not declare.
const UNKNOWN: &str = "unknown";
/// How many times as long as the objects the answer may be. A minimal Memcached becomes nearly twice as long, and so does text with
/// quotes that a converter keeps as JSON in an annotation.
const GROWTH: usize = 4;
/// Bytes that the answer may have besides: a single short object may grow by more.
const BESIDES: usize = 64 * 1024;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConversionReview<'a> {
    api_version: String,
    kind: String,
    #[serde(borrow)]
    request: Option<Object<ConversionRequest<'a>>>,
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
    converted_objects: &'a RawValue,
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
///
/// Calls `report` for each object that has another version than the requested one.
pub(crate) fn convert(
    webhooks: &[Webhook],
    body: &[u8],
    report: impl Fn(&Conversion<'_>),
) -> Result<(String, Outcome), Malformed> {
    let not_a_review = |error: serde_json::Error| Malformed(brief(format_args!("not a ConversionReview: {error}")));
    let Object::<ConversionReview<'_>>(review) = serde_json::from_slice(body).map_err(not_a_review)?;
    let (version, kind) = (review.api_version.as_str(), review.kind.as_str());
    if (version, kind) != ("apiextensions.k8s.io/v1", "ConversionReview") {
        return Err(Malformed(brief(format_args!(
            "expected apiextensions.k8s.io/v1 ConversionReview, not {version} {kind}"
        ))));
    }
    let Some(Object(ConversionRequest { uid, desired_api_version, objects })) = review.request else {
        return Err(Malformed("the ConversionReview has no request".to_owned()));
    };
    check_uid(&uid)?;
    let mut outcome = Outcome::Answered;
    let mut one = |object: &RawValue| convert_one(webhooks, object, &desired_api_version, &report, &mut outcome);
    let none = || "[]".to_owned();
    let converted = match objects {
        None => Ok(none()),
        Some(objects) => each(objects, &mut one).map_err(not_a_review)?,
    };
    let (list, result) = match converted {
        Ok(list) => (list, json!({"status": "Success"})),
        Err(message) => (none(), json!({"status": "Failure", "message": message})),
    };
    let converted_objects = RawValue::from_string(list).map_err(not_a_review)?;
    let response = Response { uid: &uid, converted_objects: &converted_objects, result };
    let answer = serde_json::to_string(&Answer { api_version: version, kind, response }).map_err(not_a_review)?;
    Ok((answer, outcome))
}

/// The results of `convert` for the elements of a list, as the text of a list; or its first error. Each result is written at once:
/// a list of the results would take many times the memory of the text, if the objects are short.
fn each(
    list: &RawValue,
    convert: impl FnMut(&RawValue) -> Result<Box<RawValue>, String>,
) -> Result<Result<String, String>, serde_json::Error> {
    let longest = list.get().len().saturating_mul(GROWTH).saturating_add(BESIDES);
    let mut each = Each { convert, list: "[".to_owned(), longest, failure: None };
    let read = serde_json::Deserializer::from_str(list.get()).deserialize_seq(&mut each);
    match each.failure {
        // The rest of the list was not read, which is an error for the deserializer.
        Some(failure) => Ok(Err(failure)),
        None => read.map(|()| Ok(each.list + "]")),
    }
}

struct Each<F> {
    convert: F,
    /// The text of the list, without its end.
    list: String,
    /// Bytes that the list may have: the memory for the review was measured by the text of the request.
    longest: usize,
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
                Ok(converted) if self.list.len() + converted.get().len() > self.longest => {
                    // Only a converter of ours can cause it, and its conversions count as successful.
                    tracing::warn!(
                        longest = self.longest,
                        "A conversion makes its objects too long: the list is not readable"
                    );
                    self.failure = Some(format!("the answer would be too long: more than {} bytes", self.longest));
                    return Ok(());
                }
                Ok(converted) => {
                    if self.list.len() > 1 {
                        self.list.push(',');
                    }
                    self.list.push_str(converted.get());
                }
                Err(failure) => {
                    self.failure = Some(failure);
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// Every conversion that these webhooks can carry out, with either result.
pub(crate) fn possible(webhooks: &[Webhook]) -> impl Iterator<Item = Conversion<'_>> {
    webhooks.iter().flat_map(|webhook| {
        let versions = if let Work::Convert(versions, _) = webhook.work { versions } else { &[] };
        let pairs = versions.iter().flat_map(|from| versions.iter().map(move |to| (*from, *to)));
        let kind = webhook.target.kind.as_str();
        pairs
            .filter(|(from, to)| from != to)
            .flat_map(move |(from, to)| [true, false].map(|succeeded| Conversion { kind, from, to, succeeded }))
    })
}

fn convert_one(
    webhooks: &[Webhook],
    raw: &RawValue,
    wanted: &str,
    report: &impl Fn(&Conversion<'_>),
    outcome: &mut Outcome,
) -> Result<Box<RawValue>, String> {
    let broken = |error: serde_json::Error| brief(format_args!("an object cannot become {wanted}: {error}"));
    let Object(Identity { api_version: present, kind, metadata: Name { name } }) =
        serde_json::from_str(raw.get()).map_err(broken)?;
    if present.is_empty() {
        return Err("an object has no apiVersion".to_owned());
    }
    if present == wanted {
        return Ok(raw.to_owned());
    }
    let group = |api_version: &str| api_version.split_once('/').map(|(group, _)| group.to_owned()).unwrap_or_default();
    let version = wanted.split_once('/').map_or(wanted, |(_, version)| version);
    let serves = |webhook: &&Webhook| {
        webhook.target.kind == kind && webhook.target.group == group(&present) && group(&present) == group(wanted)
    };
    let work = webhooks.iter().filter(serves).find_map(|webhook| match &webhook.work {
        Work::Convert(versions, convert) => Some((webhook.target.kind.as_str(), *versions, convert)),
        _ => None,
    });
    let Some((kind, versions, convert)) = work else {
        return Err(brief(format_args!("{present} {kind} \"{name}\" cannot become {wanted}: no webhook converts it")));
    };
    let known = |version: &str| versions.iter().find(|known| **known == version).copied();
    let (from, to) = (known(present.rsplit('/').next().unwrap_or_default()), known(version));
    let mut run = || {
        let (Some(_), Some(_)) = (from, to) else {
            return Err(brief(format_args!(
                "{present} {kind} \"{name}\" cannot become {wanted}: its versions are {}",
                versions.join(", ")
            )));
        };
        let object: Value = serde_json::from_str(raw.get()).map_err(broken)?;
        // The API server refuses a conversion that changes other metadata than labels and annotations.
        let identity = ["name", "namespace", "uid", "generateName"];
        let before = identity.map(|key| object["metadata"][key].clone());
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| convert(object, version)));
        let result = caught.unwrap_or_else(|_| {
            *outcome = Outcome::Panicked;
            Err("the conversion failed, see the log of the controller manager".to_owned())
        });
        let mut converted = result.map_err(|why| brief(format_args!("\"{name}\" cannot become {wanted}: {why}")))?;
        converted["apiVersion"] = json!(wanted);
        if identity.map(|key| converted["metadata"][key].clone()) != before {
            return Err(brief(format_args!("\"{name}\" would change its identity when it becomes {wanted}")));
        }
        to_raw_value(&converted).map_err(broken)
    };
    let result = run();
    let (from, to) = (from.unwrap_or(UNKNOWN), to.unwrap_or(UNKNOWN));
    report(&Conversion { kind, from, to, succeeded: result.is_ok() });
    result
}

#[cfg(test)]
mod tests;
