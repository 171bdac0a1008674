//! Whether an object that arrives is the known one.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::slots::Slot;
use crate::decode::{Content, Decoded, Representation};

/// Whether both have the same content, apart from their resource versions.
pub(super) fn same<R: Representation>(old: &Slot<R::Item>, new: &Decoded<R::Item>) -> bool {
    let is_same_item = || match (&old.content, &new.item) {
        (Content::Item(old, _), Ok(new)) => R::same(old, new),
        (Content::Text(old), Ok(_)) => {
            let old = old.text();
            old == new.text || json_of(old.as_deref()) == json_of(new.text.as_deref())
        }
        (_, Err(_)) => false,
    };
    old.meta.uid == new.meta.uid
        && old.meta.fingerprint == new.meta.fingerprint
        && old.meta.owner == new.meta.owner
        && old.meta.app == new.meta.app
        && is_same_item()
}

/// Whether two texts of an object differ at most in the resource version. Texts are without `managedFields`, so a write that changes
/// only those causes no reconcile.
pub(super) fn same_but_version(old: Option<&str>, new: Option<&str>) -> bool {
    let without_version = |text: Option<&str>| {
        let mut object = json_of(text)?;
        object["metadata"].as_object_mut()?.remove("resourceVersion");
        Some(object)
    };
    let old = without_version(old);
    old.is_some() && old == without_version(new)
}

/// Whether a change that another client made needs no reconcile: only the version has changed, or what no reconciler reads.
pub(super) fn same_for_readers<R: Representation>(old: Option<&str>, new: Option<&str>) -> bool {
    // It runs the code of an operator's type, which may panic, and one bad object must not end the informer.
    let same_texts = |(old, new)| catch_unwind(AssertUnwindSafe(|| R::same_texts(old, new))).unwrap_or(false);
    same_but_version(old, new) || old.zip(new).is_some_and(same_texts)
}

/// Parses an object without `apiVersion` and `kind`: objects in a list may lack them, those of events and answers do not.
fn json_of(text: Option<&str>) -> Option<serde_json::Value> {
    let mut object: serde_json::Value = serde_json::from_str(text?).ok()?;
    for of_the_list in ["apiVersion", "kind"] {
        object.as_object_mut()?.remove(of_the_list);
    }
    Some(object)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        decode::CachedMeta,
        object::{Metadata, ObjectKey},
    };

    /// A representation whose items cannot be compared.
    struct Panicking;

    impl Representation for Panicking {
        type Kind = k8s_openapi::api::core::v1::Pod;
        type Item = ();

        fn decode(_: &str, _: &Metadata<'_>, _: &ObjectKey) -> Result<(), serde_json::Error> {
            Ok(())
        }

        fn revive(_: &str) -> Option<()> {
            Some(())
        }

        fn text(json: &str, _: &CachedMeta) -> Option<String> {
            Some(json.to_owned())
        }

        fn content<T>(item: &Arc<()>, text: Option<T>) -> Content<(), T> {
            Content::Item(item.clone(), text)
        }

        fn same((): &(), (): &()) -> bool {
            true
        }

        fn same_texts(_: &str, _: &str) -> bool {
            panic!("an operator's defect")
        }
    }

    #[test]
    fn change_whose_comparison_panics_is_one_for_readers() {
        let text = |version: u32, size: u32| {
            serde_json::json!({"metadata": {"resourceVersion": version.to_string()}, "size": size}).to_string()
        };
        let is_same = |new: &str| same_for_readers::<Panicking>(Some(&text(1, 1)), Some(new));
        assert!(is_same(&text(2, 1)), "only the version has changed");
        assert!(!is_same(&text(2, 2)));
    }
}
