//! Changes documents of JSON: most stay documents, with other values at some places.

use fastrand::Rng;
use serde_json::{Map, Value, json};

/// The most places of a document that change.
const CHANGES: usize = 5;

/// An example with some changes, as text. Every eighth is damaged as text too.
pub fn json(random: &mut Rng, examples: &[Value]) -> Vec<u8> {
    let mut document = random.choice(examples).cloned().unwrap_or_default();
    for _ in 0..random.usize(..=CHANGES) {
        let part = part(random, examples);
        let place = place(random, &mut document);
        change(random, place, part);
    }
    let text = document.to_string().into_bytes();
    if random.u8(..8) == 0 {
        super::bytes(random, &[&text], &["\"", "\\u0000", "\\ud800", "1e9999", "[[[["])
    } else {
        text
    }
}

/// A random place in a document.
fn place<'a>(random: &mut Rng, mut value: &'a mut Value) -> &'a mut Value {
    loop {
        let has_parts = match value {
            Value::Array(list) => !list.is_empty(),
            Value::Object(map) => !map.is_empty(),
            _ => false,
        };
        if !has_parts || random.u8(..6) == 0 {
            return value;
        }
        value = match value {
            Value::Array(list) => {
                let index = random.usize(..list.len());
                &mut list[index]
            }
            Value::Object(map) => {
                let index = random.usize(..map.len());
                let Some(part) = map.values_mut().nth(index) else { unreachable!("the index is less than the length") };
                part
            }
            other => return other,
        };
    }
}

/// A part of an example.
fn part(random: &mut Rng, examples: &[Value]) -> Value {
    let mut example = random.choice(examples).cloned().unwrap_or_default();
    place(random, &mut example).take()
}

fn change(random: &mut Rng, value: &mut Value, part: Value) {
    match (random.u8(..8), &mut *value) {
        (0, Value::Object(map)) => drop(any_key(random, map).and_then(|key| map.remove(&key))),
        (1, Value::Object(map)) => {
            // A key that is spelled otherwise.
            if let Some(key) = any_key(random, map)
                && let Some(moved) = map.remove(&key)
            {
                map.insert(String::from_utf8_lossy(&super::bytes(random, &[key.as_bytes()], &[])).into_owned(), moved);
            }
        }
        (2, Value::Object(map)) => drop(map.insert(text(random), part)),
        (0 | 1, Value::Array(list)) if !list.is_empty() => drop(list.remove(random.usize(..list.len()))),
        (2, Value::Array(list)) => list.push(part),
        (3, Value::Array(list)) => {
            *list = std::iter::repeat_n(&*list, 1 << random.u8(..5)).flatten().cloned().collect();
        }
        (0..4, Value::String(old)) => {
            *old = String::from_utf8_lossy(&super::bytes(random, &[old.as_bytes()], &[])).into_owned();
        }
        // Many decoders take a list for an object.
        (3, Value::Object(map)) => *value = Value::Array(map.values().cloned().collect()),
        (4, it) => *it = part,
        (5, it) => *it = nested(random, it.take()),
        (_, it) => *it = atom(random),
    }
}

fn any_key(random: &mut Rng, map: &Map<String, Value>) -> Option<String> {
    map.keys().nth(random.usize(..map.len().max(1))).cloned()
}

fn nested(random: &mut Rng, mut value: Value) -> Value {
    for _ in 0..1_u8 << random.u8(..8) {
        value = if random.bool() { json!([value]) } else { json!({"a": value}) };
    }
    value
}

fn atom(random: &mut Rng) -> Value {
    match random.u8(..12) {
        0 => Value::Null,
        1 => json!(random.bool()),
        2 => json!(0),
        3 => json!(-1),
        4 => json!(i64::MIN),
        5 => json!(u64::MAX),
        6 => json!(random.i64(..)),
        7 => json!(f64::MAX),
        8 => json!(random.f64()),
        9 => json!([]),
        10 => json!({}),
        _ => json!(text(random)),
    }
}

fn text(random: &mut Rng) -> String {
    const TEXTS: &[&str] = &[
        "",
        "0",
        "-1",
        "1e9",
        "null",
        "true",
        "a",
        "../../x",
        "%2f",
        "\u{0}",
        "\n",
        "\u{202e}",
        "\u{feff}",
        "😀",
        "é",
        "2026-02-30T25:00:00Z",
        "9999-12-31T23:59:59Z",
        "-262143-01-01T00:00:00Z",
        "1.5Gi",
        "9223372036854775808",
    ];
    let text = random.choice(TEXTS).copied().unwrap_or_default();
    text.repeat(if random.u8(..8) == 0 { 1 << random.u8(..12) } else { 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_inputs_are_documents_that_differ() {
        let example = json!({"kind": "A", "spec": {"list": [1, 2, {"b": "c"}]}});
        let inputs: Vec<_> =
            (0..1000).map(|seed| json(&mut Rng::with_seed(seed), std::slice::from_ref(&example))).collect();
        let documents = inputs.iter().filter(|it| serde_json::from_slice::<Value>(it).is_ok()).count();
        assert!((750..1000).contains(&documents), "{documents}");
        let different: std::collections::HashSet<_> = inputs.iter().collect();
        assert!(different.len() > 500, "{}", different.len());
    }
}
