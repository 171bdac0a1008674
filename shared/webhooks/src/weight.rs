//! How much memory the review of a body needs, from its text alone. A client may send millions of values in a few megabytes.

/// Bytes that one value or key may take: as a field of a typed object, and in the JSON trees before and after a change.
const VALUE: usize = 160;
/// Copies of the text that exist at once: the body, decoded strings, the answer.
const COPIES: usize = 4;

/// Bytes of memory that an admission review needs, at most.
pub(crate) fn of_admission(body: &[u8]) -> usize {
    weight(body.len(), heaviest(body, 0))
}

/// Bytes of memory that a conversion review needs, at most. It converts one object at a time, so only the heaviest one counts.
pub(crate) fn of_conversion(body: &[u8]) -> usize {
    // The review, the request and the list of objects are around each object.
    weight(body.len(), heaviest(body, 3))
}

fn weight(length: usize, values: usize) -> usize {
    length.saturating_mul(COPIES).saturating_add(values.saturating_mul(VALUE))
}

/// The most values and keys in one of the parts that have this number of objects and lists around them. Takes any bytes.
fn heaviest(text: &[u8], outside: usize) -> usize {
    let (mut depth, mut values, mut heaviest) = (0_usize, 0, 0);
    let (mut in_string, mut escaped) = (false, false);
    for byte in text {
        match *byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => {
                depth += 1;
                values += 1;
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' | b':' => values += 1,
            _ => {}
        }
        if depth <= outside && outside > 0 {
            heaviest = values.max(heaviest);
            values = 0;
        }
    }
    values.max(heaviest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_keys_are_counted_outside_of_strings() {
        for (text, values) in [
            ("", 0),
            ("1", 0),
            ("[1,2]", 2),
            ("{\"a\":1}", 2),
            ("{\"a\":\"[,:{\\\"[,\",\"b\":[1,2,3]}", 7),
            ("\"[[[", 0),
            ("]]]]", 0),
        ] {
            assert_eq!(heaviest(text.as_bytes(), 0), values, "{text}");
        }
    }

    #[test]
    fn conversion_weighs_only_the_heaviest_object() {
        let review =
            |objects: &str| format!("{{\"kind\":\"x\",\"request\":{{\"uid\":\"a\",\"objects\":[{objects}]}}}}");
        let one = heaviest(review("{\"a\":[1,2,3]}").as_bytes(), 3);
        assert_eq!(one, 5);
        assert_eq!(heaviest(review("{\"a\":1},{\"a\":[1,2,3]},{\"b\":2}").as_bytes(), 3), one);
        assert!(heaviest(review(&"0,".repeat(1000)).as_bytes(), 3) < 10, "these are objects of one value");
    }
}
