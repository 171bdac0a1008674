//! What users write: two versions, of which `v1` is stored, and how one becomes the other.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

pub mod convert;
pub mod v1;
pub mod v1alpha1;

pub use v1::Memcached;

/// The definition with both versions, as it is installed where nobody converts: only the stored one is served. The
/// runtime serves both while it converts.
pub fn definition() -> CustomResourceDefinition {
    let mut definition = Memcached::crd();
    let earlier: Vec<_> = definition.spec.versions.iter().map(v1alpha1::of).collect();
    definition.spec.versions.extend(earlier);
    definition
}

#[cfg(test)]
mod tests {
    use manager::{normalize, printed};
    use serde_json::json;

    use super::*;

    #[test]
    fn the_earlier_version_differs_in_what_size_is_and_in_nothing_else() {
        let definition = printed(&normalize(&definition()));
        let versions = definition["spec"]["versions"].as_array().expect("versions");
        let [v1, v1alpha1] = versions.as_slice() else { panic!("{versions:#?}") };
        let flags = |version: &serde_json::Value| ["name", "storage", "served"].map(|key| version[key].clone());
        assert_eq!(flags(v1), [json!("v1"), json!(true), json!(true)]);
        assert_eq!(flags(v1alpha1), [json!("v1alpha1"), json!(false), json!(false)]);
        assert_eq!(definition["spec"]["conversion"], json!(null));

        assert_eq!(v1alpha1["deprecated"], true);
        assert_eq!(
            v1alpha1["deprecationWarning"],
            "memcached.cache.example.com/v1alpha1 Memcached is deprecated; use v1, where spec.size is an integer"
        );
        assert_eq!(v1alpha1["subresources"], json!({"status": {}}));
        let column = |version: &serde_json::Value| version["additionalPrinterColumns"][0]["type"].clone();
        assert_eq!((column(v1), column(v1alpha1)), (json!("integer"), json!("string")));

        let size = "/schema/openAPIV3Schema/properties/spec/properties/size";
        let mut earlier = v1alpha1.clone();
        let field = earlier.pointer_mut(size).expect("a size");
        assert_eq!(
            (&field["type"], &field["default"], &field["pattern"]),
            (&json!("string"), &json!("1"), &json!("^(0|[1-9][0-9]?)$"))
        );
        assert_eq!(
            field["x-kubernetes-validations"],
            json!([{"rule": "int(self) <= 64", "message": "size must be from 0 to 64"}])
        );
        *field = v1.pointer(size).expect("a size").clone();
        assert_eq!(earlier["schema"], v1["schema"]);
    }
}
