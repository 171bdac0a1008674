//! `memcached.cache.example.com/v1alpha1`, for old manifests: it has the fields of `v1`, but `spec.size` is a text.
//!
//! It has no Rust type: the API server converts an object of this version before it calls the validating webhook and before it
//! stores the object. So all code but [`convert`](super::convert) knows only `v1`.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinitionVersion, JSON, JSONSchemaProps, ValidationRule,
};

/// The name of the version.
pub const VERSION: &str = "v1alpha1";

const DEPRECATION: &str =
    "memcached.cache.example.com/v1alpha1 Memcached is deprecated; use v1, where spec.size is an integer";

/// Derives this version from `v1`. It is not served: without a conversion webhook, its clients would get a number for `size`. It
/// has no scale subresource, which needs a number too; `kubectl scale` uses `v1`. It has no selectable fields either.
pub(super) fn of(v1: &CustomResourceDefinitionVersion) -> CustomResourceDefinitionVersion {
    let mut version = v1.clone();
    VERSION.clone_into(&mut version.name);
    version.storage = false;
    version.served = false;
    version.deprecated = Some(true);
    version.deprecation_warning = Some(DEPRECATION.to_owned());
    // The API server refuses two versions with different schemas and the same selectable fields: "may only be set when
    // validations.schema is included".
    version.selectable_fields = None;
    if let Some(subresources) = &mut version.subresources {
        subresources.scale = None;
    }
    for column in version.additional_printer_columns.iter_mut().flatten().filter(|it| it.json_path == ".spec.size") {
        "string".clone_into(&mut column.type_);
    }
    let root = version.schema.as_mut().and_then(|it| it.open_api_v3_schema.as_mut());
    if let Some(size) =
        root.and_then(|root| root.properties.as_mut()?.get_mut("spec")?.properties.as_mut()?.get_mut("size"))
    {
        *size = text(size.description.take());
    }
    version
}

fn text(description: Option<String>) -> JSONSchemaProps {
    JSONSchemaProps {
        description,
        type_: Some("string".to_owned()),
        pattern: Some("^(0|[1-9][0-9]?)$".to_owned()),
        max_length: Some(2),
        default: Some(JSON("1".into())),
        x_kubernetes_validations: Some(vec![ValidationRule {
            rule: "int(self) <= 64".to_owned(),
            message: Some("size must be from 0 to 64".to_owned()),
            ..Default::default()
        }]),
        ..Default::default()
    }
}
