//! Answers admission reviews: from the request body to the response body. Pure functions, which handle any input.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};

use super::{
    FieldError, Operation, Review, Reviewed, User, ValidationResult, Webhook, Work, brief::brief, object::Object,
};

/// An admission request for one object.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Admission<'a> {
    uid: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    operation: Option<Operation>,
    #[serde(default)]
    user_info: User,
    #[serde(default)]
    dry_run: bool,
    #[serde(borrow, default)]
    object: Option<&'a RawValue>,
    #[serde(borrow, default)]
    old_object: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AdmissionReview<'a> {
    api_version: String,
    kind: String,
    #[serde(borrow)]
    request: Option<Object<Admission<'a>>>,
}

/// The name of an object, whatever else it has.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Named {
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    name: String,
}

/// The object is allowed.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    warnings: Vec<String>,
    /// Changes to the object before it is stored.
    patch: Option<json_patch::Patch>,
}

/// The object is refused; the API server passes these details to the user.
#[derive(Debug)]
pub(crate) struct Refusal {
    code: u16,
    reason: &'static str,
    message: String,
    causes: Vec<FieldError>,
    warnings: Vec<String>,
}

/// The body is not a review, so there is no request to answer. Holds the reason.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) String);

/// The longest warning in bytes; kubectl shows no more.
const WARNING_BYTES: usize = 256;
/// The longest name in bytes, as in the API. A longer one can only come from a client that is not the API server.
const NAME_BYTES: usize = 253;
/// The most errors and the most warnings of an answer.
const MOST: usize = 64;

/// Answers an admission review. Catches a panic of the operator's function, which refuses the object with code 500.
pub(crate) fn admit(webhook: &Webhook, body: &[u8]) -> Result<(String, Outcome), Malformed> {
    let Object::<AdmissionReview<'_>>(review) = serde_json::from_slice(body)
        .map_err(|error| Malformed(brief(format_args!("not an AdmissionReview: {error}"))))?;
    let (version, kind) = (review.api_version.as_str(), review.kind.as_str());
    if (version, kind) != ("admission.k8s.io/v1", "AdmissionReview") {
        return Err(Malformed(brief(format_args!(
            "expected admission.k8s.io/v1 AdmissionReview, not {version} {kind}"
        ))));
    }
    let Some(Object(mut admission)) = review.request else {
        return Err(Malformed("the AdmissionReview has no request".to_owned()));
    };
    check_uid(&admission.uid)?;
    if admission.name.is_empty() {
        admission.name = admission.name_in_metadata();
    }
    let (Work::Default(work) | Work::Validate(work, _) | Work::Review(work)) = &webhook.work else {
        return Err(Malformed("this path serves no conversions".to_owned()));
    };
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&admission)));
    let (result, outcome) = match caught {
        Ok(result) => (result, Outcome::Answered),
        Err(_) => {
            (Err(Refusal::internal("the webhook failed, see the log of the controller manager")), Outcome::Panicked)
        }
    };
    Ok((admission.answer(&webhook.target.kind, &webhook.target.group, result).to_string(), outcome))
}

/// The answer repeats the UID, so it must not be long. The API server sends 36 characters.
pub(crate) fn check_uid(uid: &str) -> Result<(), Malformed> {
    if uid.len() <= NAME_BYTES { Ok(()) } else { Err(Malformed(format!("the uid has {} bytes", uid.len()))) }
}

/// Whether the operator's function returned or panicked, for the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Answered,
    Panicked,
}

/// Runs a validation, and ignores errors that the stored object has too in fields that do not change (ratcheting).
pub(super) fn validate<K: Reviewed>(
    admission: &Admission<'_>,
    validate: &impl Fn(Option<&K>, &K) -> ValidationResult,
) -> Result<Answer, Refusal> {
    let Some(raw) = admission.object() else { return Ok(Answer::default()) };
    let new: K = decode(raw)?;
    if new.meta().deletion_timestamp.is_some() {
        return Ok(Answer::default());
    }
    // A stored object that does not decode counts as none: nothing is ratcheted.
    let old: Option<(K, &RawValue)> = admission.old_object().and_then(|raw| decode(raw).ok().map(|old| (old, raw)));
    let ValidationResult { mut errors, warnings } = validate(old.as_ref().map(|(old, _)| old), &new);
    if let (false, Some((old, old_raw))) = (errors.is_empty(), old) {
        let before = validate(None, &old).errors;
        let (old, new) = (value(old_raw), value(raw));
        errors.retain(|error| !before.contains(error) || at(&old, &error.field) != at(&new, &error.field));
    }
    if errors.is_empty() {
        return Ok(Answer { warnings, patch: None });
    }
    Err(Refusal { code: 422, reason: "Invalid", message: String::new(), causes: errors, warnings })
}

/// Runs a review of the whole request.
pub(super) fn review<K: Reviewed>(
    admission: &Admission<'_>,
    review: &(impl Fn(&Review<K>) -> ValidationResult + ?Sized),
) -> Result<Answer, Refusal> {
    let object: Option<K> = admission.object().map(decode).transpose()?;
    // An object that was stored under another schema may not decode. It counts as none.
    let old: Option<K> = admission.old_object().and_then(|raw| decode(raw).ok());
    if object.as_ref().is_some_and(|object| object.meta().deletion_timestamp.is_some()) {
        return Ok(Answer::default());
    }
    let operation = admission.operation.unwrap_or(match (&object, &old) {
        (Some(_), None) => Operation::Create,
        (Some(_), Some(_)) => Operation::Update,
        (None, _) => Operation::Delete,
    });
    let request = Review {
        operation,
        namespace: admission.namespace.clone(),
        name: admission.name.clone(),
        object,
        old,
        user: admission.user_info.clone(),
        dry_run: admission.dry_run,
    };
    let ValidationResult { errors, warnings } = review(&request);
    if errors.is_empty() {
        return Ok(Answer { warnings, patch: None });
    }
    Err(Refusal { code: 422, reason: "Invalid", message: String::new(), causes: errors, warnings })
}

pub(super) fn default<K: Reviewed>(admission: &Admission<'_>, default: fn(&mut K)) -> Result<Answer, Refusal> {
    let Some(raw) = admission.object() else { return Ok(Answer::default()) };
    let mut object: K = decode(raw)?;
    if object.meta().deletion_timestamp.is_some() {
        return Ok(Answer::default());
    }
    // Compare with the object's own encoding, not with the raw text: fields that our type does not know must survive.
    let before = encode(&object)?;
    default(&mut object);
    let patch = json_patch::diff(&before, &encode(&object)?);
    Ok(Answer { warnings: Vec::new(), patch: (!patch.0.is_empty()).then_some(patch) })
}

fn decode<K: Reviewed>(raw: &RawValue) -> Result<K, Refusal> {
    serde_json::from_str(raw.get()).map(|Object(object)| object).map_err(|error| Refusal {
        code: 400,
        reason: "BadRequest",
        message: brief(format_args!("the object is not a {}: {error}", K::kind(&()))),
        causes: Vec::new(),
        warnings: Vec::new(),
    })
}

fn encode(object: &impl Serialize) -> Result<Value, Refusal> {
    serde_json::to_value(object).map_err(|error| Refusal::internal(&error.to_string()))
}

fn value(raw: &RawValue) -> Value {
    serde_json::from_str(raw.get()).unwrap_or_default()
}

/// The value of a field. For a list element such as `spec.config.extraArgs[2]`, the whole list, because positions shift.
fn at<'a>(object: &'a Value, field: &str) -> Option<&'a Value> {
    let path = field.split(['[', ']']).next().unwrap_or_default();
    path.split('.').try_fold(object, |value, key| value.get(key))
}

impl Admission<'_> {
    fn object(&self) -> Option<&RawValue> {
        self.object.filter(|raw| raw.get() != "null")
    }

    fn old_object(&self) -> Option<&RawValue> {
        self.old_object.filter(|raw| raw.get() != "null")
    }

    /// Returns the name that the object has; empty if it has none. If a client deletes a collection, the API server asks about each
    /// object without the name in the request.
    fn name_in_metadata(&self) -> String {
        let raw = self.object().or_else(|| self.old_object());
        let named = raw.and_then(|raw| serde_json::from_str::<Object<Named>>(raw.get()).ok());
        named.map(|Object(named)| named.metadata.name).unwrap_or_default()
    }

    fn answer(&self, kind: &str, group: &str, result: Result<Answer, Refusal>) -> Value {
        let mut response = json!({"uid": self.uid, "allowed": result.is_ok()});
        let warnings = match result {
            Ok(Answer { warnings, patch }) => {
                if let Some(patch) = patch.and_then(|patch| serde_json::to_vec(&patch).ok()) {
                    response["patchType"] = json!("JSONPatch");
                    response["patch"] = json!(k8s_openapi::ByteString(patch));
                }
                warnings
            }
            Err(refusal) => {
                response["status"] = refusal.status(kind, group, &self.name);
                refusal.warnings
            }
        };
        if !warnings.is_empty() {
            let cut = |warning: String| warning[..warning.floor_char_boundary(WARNING_BYTES)].to_owned();
            response["warnings"] = warnings.into_iter().take(MOST).map(cut).collect();
        }
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
    }
}

impl Refusal {
    fn internal(message: &str) -> Self {
        let (causes, warnings) = (Vec::new(), Vec::new());
        Self { code: 500, reason: "InternalError", message: message.to_owned(), causes, warnings }
    }

    /// The `Status`, in the format of the API server's own validation errors. It has a limited length, because the answer of a
    /// request stays in memory until the client has read it.
    fn status(&self, kind: &str, group: &str, name: &str) -> Value {
        let name = &name[..name.floor_char_boundary(NAME_BYTES)];
        let shown = &self.causes[..self.causes.len().min(MOST)];
        let mut said: Vec<String> =
            shown.iter().map(|FieldError { field, why }| brief(format_args!("{field}: {why}"))).collect();
        if self.causes.len() > shown.len() {
            said.push(format!("and {} more", self.causes.len() - shown.len()));
        }
        let message = match said.as_slice() {
            [] => self.message.clone(),
            [one] => format!("{kind}.{group} \"{name}\" is invalid: {one}"),
            several => format!("{kind}.{group} \"{name}\" is invalid: [{}]", several.join(", ")),
        };
        let cause = |FieldError { field, why }: &FieldError| {
            let (field, why) = (brief(format_args!("{field}")), brief(format_args!("{why}")));
            json!({"reason": "FieldValueInvalid", "field": field, "message": why})
        };
        let causes: Vec<Value> = shown.iter().map(cause).collect();
        json!({
            "status": "Failure", "code": self.code, "reason": self.reason, "message": message,
            "details": {"group": group, "kind": kind, "name": name, "causes": causes},
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;
