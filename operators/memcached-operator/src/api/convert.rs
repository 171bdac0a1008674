//! Conversion between the versions. It succeeds for every object that may be stored: an object that does not convert would make
//! every list that contains it unreadable, and would block the deletion of its namespace.
//!
//! Only `apiVersion`, `spec.size` and two annotations change. The annotations exist in `v1` only. They preserve, for the way
//! back, what a number cannot express. Any client can write annotations, so the conversion uses them only if they fit the size.

use serde_json::{Map, Value};

use super::{v1::Memcached, v1alpha1};

/// Preserves the text of a valid size in an unusual notation: `" 3 "`.
pub const RAW_SIZE: &str = "memcached.cache.example.com/v1alpha1-size";

/// Preserves an invalid size, as JSON. While this annotation exists and `size` is 1, the operator keeps the number of pods.
pub const INVALID_SIZE: &str = "memcached.cache.example.com/invalid-size";

/// The size in `v1` that replaces an invalid size.
const PLACEHOLDER_SIZE: i64 = 1;
const LARGEST: u8 = 64;
/// The maximum length of an [`INVALID_SIZE`], in bytes.
const MAX_NOTE_BYTES: usize = 256;
/// The end of a truncated text. It also makes the text an invalid size.
const ELLIPSIS: char = '…';

/// Returns the object in version `wanted`. Fails only for unknown versions, and for JSON that is not an object.
pub fn convert(mut object: Value, wanted: &str) -> Result<Value, String> {
    let api_version = object["apiVersion"].as_str().unwrap_or_default().to_owned();
    let (group, present) = api_version.rsplit_once('/').unwrap_or_default();
    let Value::Object(fields) = &mut object else { return Err("this is not an object".to_owned()) };
    let change = match (present, wanted) {
        ("v1", v1alpha1::VERSION) => to_v1alpha1,
        (v1alpha1::VERSION, "v1") => to_v1,
        ("v1" | v1alpha1::VERSION, same) if same == present => return Ok(object),
        ("v1" | v1alpha1::VERSION, unknown) | (unknown, _) => return Err(format!("there is no version {unknown}")),
    };
    change(fields);
    object["apiVersion"] = format!("{group}/{wanted}").into();
    Ok(object)
}

/// Returns the invalid size that the user wrote, if the object still has the size that replaced it.
pub fn invalid_size(memcached: &Memcached) -> Option<String> {
    let noted = memcached.metadata.annotations.as_ref()?.get(INVALID_SIZE)?;
    let raw = invalid(noted).filter(|_| i64::from(memcached.spec.size) == PLACEHOLDER_SIZE)?;
    Some(raw.as_str().map_or_else(|| raw.to_string(), ToOwned::to_owned))
}

fn to_v1(object: &mut Map<String, Value>) {
    let Some(spec) = child(object, "spec") else { return };
    let given = spec.remove("size").unwrap_or_default();
    let size = given.as_str().and_then(read);
    let note = match (&given, size) {
        (Value::Null, _) => None,
        (Value::String(text), Some(size)) => (*text != size.to_string()).then(|| (RAW_SIZE, text.clone())),
        _ => Some((INVALID_SIZE, encoded(&given))),
    };
    spec.insert("size".to_owned(), size.map_or(PLACEHOLDER_SIZE, i64::from).into());
    annotate(object, note);
}

fn to_v1alpha1(object: &mut Map<String, Value>) {
    let noted = |key: &str| object.get("metadata")?.get("annotations")?.get(key)?.as_str();
    let invalid = noted(INVALID_SIZE).and_then(invalid);
    let raw = noted(RAW_SIZE).map(ToOwned::to_owned);
    let Some(spec) = child(object, "spec") else { return };
    let size = match spec.remove("size").unwrap_or_default() {
        Value::Null => PLACEHOLDER_SIZE.to_string().into(),
        Value::Number(number) => {
            let is = |size: i64| number.as_i64() == Some(size);
            let as_given = raw.filter(|text| read(text).is_some_and(|size| is(size.into()))).map(Value::String);
            let instead = invalid.filter(|_| is(PLACEHOLDER_SIZE));
            instead.or(as_given).unwrap_or_else(|| number.to_string().into())
        }
        // Stored under another definition. A text is what this version needs, as short as the way back would make it.
        Value::String(text) if read(&text).is_some() => text.into(),
        Value::String(text) => truncated(&text).into(),
        other => truncated(&other.to_string()).into(),
    };
    spec.insert("size".to_owned(), size);
    annotate(object, None);
}

/// Returns the object under `key`, created if it is absent. Returns `None` for any other value, and leaves it as it is.
fn child<'a>(object: &'a mut Map<String, Value>, key: &str) -> Option<&'a mut Map<String, Value>> {
    let child = object.entry(key).or_insert(Value::Null);
    if child.is_null() {
        *child = Value::Object(Map::new());
    }
    child.as_object_mut()
}

/// Removes the two annotations, and sets `note` if there is one.
fn annotate(object: &mut Map<String, Value>, note: Option<(&str, String)>) {
    let Some(metadata) = child(object, "metadata") else { return };
    if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
        let before = annotations.len();
        annotations.retain(|key, _| key != RAW_SIZE && key != INVALID_SIZE);
        if annotations.is_empty() && before > 0 {
            metadata.remove("annotations");
        }
    }
    if let Some((key, value)) = note
        && let Some(annotations) = child(metadata, "annotations")
    {
        annotations.insert(key.to_owned(), value.into());
    }
}

/// Returns the number that a text means, if it is a valid size.
fn read(text: &str) -> Option<u8> {
    let text = text.trim();
    let digits = text.strip_prefix('+').unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let significant = digits.trim_start_matches('0');
    let size = if significant.is_empty() { Some(0) } else { significant.parse().ok() };
    size.filter(|size| is_number && *size <= LARGEST)
}

/// Returns the value that an [`INVALID_SIZE`] preserves; `None` if it is a valid size, so that no client can scale with the
/// annotation.
fn invalid(noted: &str) -> Option<Value> {
    let raw: Value = serde_json::from_str(noted).unwrap_or_else(|_| noted.into());
    let is_size = raw.as_str().is_some_and(|text| read(text).is_some());
    Some(raw).filter(|raw| !raw.is_null() && !is_size)
}

/// Returns `raw` as JSON of at most [`MAX_NOTE_BYTES`] bytes. Truncated JSON is not JSON, so a longer value becomes a truncated
/// text.
fn encoded(raw: &Value) -> String {
    let whole = raw.to_string();
    if whole.len() <= MAX_NOTE_BYTES {
        return whole;
    }
    Value::String(truncated(raw.as_str().unwrap_or(&whole))).to_string()
}

/// Returns a text whose JSON has at most [`MAX_NOTE_BYTES`] bytes.
fn truncated(text: &str) -> String {
    let fits = |text: &str| Value::String(text.to_owned()).to_string().len() <= MAX_NOTE_BYTES;
    // No character needs less than a byte, so the texts that are tried are short.
    let mut start: String = text.chars().take(MAX_NOTE_BYTES).collect();
    if start.len() == text.len() && fits(text) {
        return start;
    }
    loop {
        let shorter = format!("{start}{ELLIPSIS}");
        if fits(&shorter) {
            return shorter;
        }
        start.pop();
    }
}

#[cfg(test)]
mod tests;
