//! The desired children of one [`Gadget`]. The runtime adds the namespace and the owner reference.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use workloads::App;

use crate::Gadget;

/// Returns the `ConfigMap` with the text of the object.
pub fn config_map(object: &Gadget) -> ConfigMap {
    ConfigMap {
        metadata: App::of(object).metadata(object.name_any()),
        data: Some(BTreeMap::from([("text".to_owned(), object.spec.text.clone())])),
        ..ConfigMap::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_map_has_the_name_and_the_text_of_the_object() {
        let sample: Gadget = serde_saphyr::from_str(include_str!("../samples/sample.yaml")).expect("a valid object");
        let child = config_map(&sample);
        assert_eq!(child.metadata.name.as_deref(), Some("gadget-sample"));
        assert_eq!(child.data.expect("data")["text"], "Hello");
    }
}
