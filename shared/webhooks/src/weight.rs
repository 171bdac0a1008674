//! How much memory the review of a body needs, from its text alone. A client may send millions of values in a few megabytes.

/// Bytes that one value or key may take: as a field of a typed object, and in the JSON trees before and after a change.
const VALUE: usize = 240;
/// Bytes that an object with keys takes besides: each of these three has a node of a map for it, with room for eleven keys. A typed
/// object has such maps too, because some fields hold any JSON, as `metadata.managedFields[].fieldsV1` does.
const MAP: usize = 2048;
/// Objects and lists around each other, of which a tree may have this many: a decoder refuses 128, and begins anew at the object of
/// a review.
const DEEPEST: usize = 160;
/// Objects and lists around each other of which the kind is known. What is deeper is no element of a typed list.
const KNOWN: usize = 128;
/// Bytes that an object or a list may take as an element of a list, with its own maps, however short its text is: a typed element has
/// room for all its fields, and derived decoders also take a list for an object. The largest elements of the Kubernetes API are a
/// volume and a container.
const ELEMENT: usize = 4096;
/// Copies of the text that exist at once: the body, decoded strings, the answer. The answer of a conversion may be longer than the
/// text, within the limits in [`crate::conversion`]; one of the smallest Memcacheds is nearly twice as long.
const COPIES: usize = 4;

/// Bytes of memory that an admission review needs, at most.
pub(crate) fn of_admission(body: &[u8]) -> usize {
    copies(body).saturating_add(heaviest(body, 0))
}

/// Bytes of memory that a conversion review needs, at most. It converts one object at a time, so only the heaviest one counts.
pub(crate) fn of_conversion(body: &[u8]) -> usize {
    // The review, the request and the list of objects are around each object.
    copies(body).saturating_add(heaviest(body, 3))
}

fn copies(body: &[u8]) -> usize {
    body.len().saturating_mul(COPIES)
}

/// The bytes that the values and keys of one part may take: of the heaviest of the parts that have this number of objects and
/// lists around them. Takes any bytes.
fn heaviest(text: &[u8], outside: usize) -> usize {
    let (mut depth, mut bytes, mut heaviest) = (0_usize, 0_usize, 0);
    // One bit for each of the outermost objects (0) and lists (1) around this place, the innermost one last. A decoder skips values of
    // any depth where it does not know the field. They must not push out the bits of the lists around them: more elements may follow.
    let mut lists = 0_u128;
    let (mut in_string, mut escaped) = (false, false);
    // Right behind the beginning of an object that is no element of a list.
    let mut begun = false;
    for byte in text {
        if begun && !byte.is_ascii_whitespace() {
            let is_map = *byte == b'"' && depth <= DEEPEST;
            bytes = bytes.saturating_add(if is_map { MAP } else { 0 });
            begun = false;
        }
        match *byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => {
                let is_element = lists & 1 == 1;
                bytes = bytes.saturating_add(if is_element { ELEMENT } else { VALUE });
                begun = *byte == b'{' && !is_element;
                depth += 1;
                if depth <= KNOWN {
                    lists = lists << 1 | u128::from(*byte == b'[');
                }
            }
            b'}' | b']' => {
                if depth <= KNOWN {
                    lists >>= 1;
                }
                depth = depth.saturating_sub(1);
            }
            b',' | b':' => bytes = bytes.saturating_add(VALUE),
            _ => {}
        }
        if depth <= outside && outside > 0 {
            heaviest = bytes.max(heaviest);
            bytes = 0;
        }
    }
    bytes.max(heaviest)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{
        Container, EphemeralContainer, PersistentVolumeClaim, TopologySpreadConstraint, Volume,
    };

    use super::*;
    use crate::memory::LONG_REVIEWS;

    #[test]
    fn values_and_keys_are_counted_outside_of_strings() {
        for (text, values, maps) in [
            ("", 0, 0),
            ("1", 0, 0),
            ("[1,2]", 2, 0),
            ("{\"a\":1}", 2, 1),
            ("{\"a\":\"[,:{\\\"[,\",\"b\":[1,2,3]}", 7, 1),
            ("\"[[[", 0, 0),
            ("]]]]", 0, 0),
        ] {
            assert_eq!(heaviest(text.as_bytes(), 0), values * VALUE + maps * MAP, "{text}");
        }
    }

    #[test]
    fn maps_of_few_keys_weigh_as_much_as_their_nodes() {
        assert_eq!(heaviest(b"{\"a\":{\"\":0},\"b\":{ \"\":0,\"c\":0}}", 0), 10 * VALUE + 3 * MAP);
        assert_eq!(heaviest(b"{\"a\":{},\"b\":{\n}}", 0), 6 * VALUE + MAP, "a map without keys has no node");
        let deep = "{\"a\":".repeat(20_000);
        assert_eq!(heaviest(deep.as_bytes(), 0), 20_000 * 2 * VALUE + DEEPEST * MAP, "no decoder goes deeper");
        let node = 11 * (size_of::<String>() + size_of::<serde_json::Value>()) + 2 * size_of::<usize>();
        assert!(3 * node <= MAP, "{node}");
    }

    #[test]
    fn objects_in_lists_weigh_as_much_as_typed_elements_may() {
        assert_eq!(heaviest(b"[{},[]]", 0), 2 * VALUE + 2 * ELEMENT);
        assert_eq!(heaviest(b"{\"a\":[{\"b\":{}}]}", 0), 5 * VALUE + ELEMENT + MAP);
        assert_eq!(heaviest(b"{\"a\":{},\"b\":{}}", 0), 6 * VALUE + MAP, "the values of a map are not elements");
        for size in [
            size_of::<Volume>(),
            size_of::<Container>(),
            size_of::<EphemeralContainer>(),
            size_of::<PersistentVolumeClaim>(),
            size_of::<TopologySpreadConstraint>(),
        ] {
            assert!(size <= ELEMENT, "{size}");
        }
    }

    /// A decoder skips the deep value, and decodes the elements behind it.
    #[test]
    fn elements_behind_a_deep_value_weigh_as_much_as_those_before_it() {
        let deep = format!("{{\"unknown\":{}{}}}", "[".repeat(200), "]".repeat(200));
        let list = |elements: &str| heaviest(format!("[{elements}]").as_bytes(), 0);
        let (empty, alone) = (list("{}") - list(""), list(&deep));
        assert_eq!(list(&format!("{{}},{deep}")), alone + empty + VALUE);
        assert_eq!(list(&format!("{deep},{{}},{{}}")), alone + 2 * (empty + VALUE));
        assert_eq!(empty, ELEMENT);
    }

    /// The API server sends both objects of a change. These are far larger than usual ones.
    #[test]
    fn large_objects_of_the_api_server_are_reviewed() {
        let object = |spec: &str, fields: &str| {
            let metadata = format!("{{\"name\":\"a\",\"managedFields\":[{{\"fieldsV1\":{{{fields}}}}}]}}");
            format!("{{\"metadata\":{metadata},\"spec\":{{{spec}}}}}")
        };
        let change = |object: &str| {
            let body = format!("{{\"request\":{{\"object\":{object},\"oldObject\":{object}}}}}");
            of_admission(body.as_bytes())
        };
        let text = object(&format!("\"text\":\"{}\"", "a".repeat(1_500_000)), "");
        assert!(change(&text) < LONG_REVIEWS, "one text of 1.5 MB");

        let entries: Vec<_> = (0..10_000).map(|n| format!("\"key-{n}\":\"{}\"", "a".repeat(50))).collect();
        let fields: Vec<_> = (0..10_000).map(|n| format!("\"f:key-{n}\":{{}}")).collect();
        let map = object(&entries.join(","), &fields.join(","));
        assert!(change(&map) < LONG_REVIEWS, "a map of 10,000 keys: {}", change(&map));

        let entries: Vec<_> = (0..1000).map(|n| format!("{{\"name\":\"V{n}\",\"value\":\"a\"}}")).collect();
        let of_entry = "{\".\":{},\"f:name\":{},\"f:value\":{}}";
        let fields: Vec<_> = (0..1000).map(|n| format!("\"k:{{\\\"name\\\":\\\"V{n}\\\"}}\":{of_entry}")).collect();
        let list = object(&format!("\"env\":[{}]", entries.join(",")), &fields.join(","));
        assert!(change(&list) < LONG_REVIEWS, "a list of 1,000 variables: {}", change(&list));

        let one = object(&format!("\"text\":\"{}\"", "a".repeat(14_000)), "");
        let all: Vec<_> = std::iter::repeat_n(one, 500).collect();
        let page = format!("{{\"request\":{{\"objects\":[{}]}}}}", all.join(","));
        assert!(of_conversion(page.as_bytes()) < LONG_REVIEWS, "a page of 500 objects, as long as a body may be");
    }

    #[test]
    fn conversion_weighs_only_the_heaviest_object() {
        let review =
            |objects: &str| format!("{{\"kind\":\"x\",\"request\":{{\"uid\":\"a\",\"objects\":[{objects}]}}}}");
        let one = heaviest(review("{\"a\":[1,2,3]}").as_bytes(), 3);
        assert_eq!(one, 4 * VALUE + ELEMENT);
        assert_eq!(heaviest(review("{\"a\":1},{\"a\":[1,2,3]},{\"b\":2}").as_bytes(), 3), one);
        assert!(
            heaviest(review(&"0,".repeat(1000)).as_bytes(), 3) < 10 * VALUE + MAP,
            "these are objects of one value, and the results are written one after the other"
        );
    }
}
