//! Whether a change of a custom resource is of interest to its controller.
//!
//! All fields are of interest but the resource version and `managedFields`: a write that changes only those, such as an apply of
//! what is there already, causes no reconcile. The status is of interest too: the API server keeps only fields that are in the
//! definition, and the operator sets all of them, so it has to put back what another manager writes there.

use xxhash_rust::xxh3::Xxh3;

use super::{LAST_APPLIED, Members};

/// The hash of everything that is of interest.
///
/// It hashes the JSON as it is, because the API server prints equal objects equally. Were it ever not to, an object would be
/// reconciled once more.
pub(super) fn hash(json: &str) -> Result<u64, serde_json::Error> {
    let object: Members<'_> = serde_json::from_str(json)?;
    let mut hasher = Xxh3::new();
    for (name, value) in &object {
        match *name {
            "apiVersion" | "kind" => {} // objects in a list may lack them
            "metadata" => feed_metadata(&mut hasher, serde_json::from_str(value.get())?)?,
            _ => feed(&mut hasher, name, value.get()),
        }
    }
    Ok(hasher.digest().max(1)) // 0 stands for no hash
}

fn feed(hasher: &mut Xxh3, name: &str, text: &str) {
    for part in [name, text] {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
}

fn feed_metadata(hasher: &mut Xxh3, metadata: Members<'_>) -> Result<(), serde_json::Error> {
    for (name, value) in metadata {
        match name {
            "resourceVersion" | "managedFields" => {}
            "annotations" => {
                let annotations: Members<'_> = serde_json::from_str(value.get())?;
                for (name, value) in annotations.iter().filter(|(name, _)| **name != LAST_APPLIED) {
                    feed(hasher, name, value.get());
                }
            }
            _ => feed(hasher, name, value.get()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn object() -> Value {
        json!({
            "metadata": {
                "name": "a", "resourceVersion": "1", "annotations": {"note": "x"},
                "managedFields": [{"manager": "toy-controller", "subresource": "status"}],
            },
            "spec": {"size": 1},
            "status": {"size": 1},
        })
    }

    #[test]
    fn bookkeeping_is_of_no_interest() {
        let hash = |object: &Value| hash(&object.to_string()).expect("an object");
        let is_same = |path: &str, value: Value| {
            let mut changed = object();
            *changed.pointer_mut(path).expect("a field") = value;
            hash(&changed) == hash(&object())
        };
        assert!(is_same("/metadata/resourceVersion", json!("2")));
        assert!(is_same("/metadata/managedFields", json!([])));
        assert!(is_same("/metadata/annotations", json!({"note": "x", LAST_APPLIED: "{}"})));
        assert!(!is_same("/metadata/annotations/note", json!("y")));
        assert!(!is_same("/metadata/name", json!("b")));
        assert!(!is_same("/spec/size", json!(2)));
        assert!(!is_same("/status/size", json!(2)));
    }
}
