//! The cached view of a Service. It is empty: reconcilers read only the identity.

use k8s_openapi::api::core::v1::Service;
use serde::Deserialize;
use serde_json::Value;

use crate::{Child, Viewed, defaults};

impl Viewed for Service {
    type View = ServiceView;
}

impl Child for Service {
    /// Not the whole `spec`, because the API server and controllers assign addresses and ports.
    const EXCLUSIVE_FIELDS: &'static [&'static [&'static str]] =
        &[&["spec", "selector"], &["spec", "publishNotReadyAddresses"]];

    fn set_defaults(object: &mut Value) {
        defaults::service(object);
    }

    /// A Service cannot change from headless to an address of its own, or back.
    fn immutable_difference(live: &Value, desired: &Value) -> Option<&'static str> {
        let headless = |service: &Value| service["spec"]["clusterIP"] == "None";
        (headless(live) != headless(desired)).then_some("type")
    }

    const REPLACEABLE: bool = true;
}

/// Empty: reconcilers read only the identity of a Service, which [`Live`](crate::Live) holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct ServiceView {}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_headless_change_recreates_the_service() {
        let headless = json!({"spec": {"clusterIP": "None"}});
        let with_address = json!({"spec": {"clusterIP": "10.0.0.1"}});
        let wants_address = json!({"spec": {"ports": []}});
        assert_eq!(Service::immutable_difference(&with_address, &headless), Some("type"));
        assert_eq!(Service::immutable_difference(&headless, &wants_address), Some("type"));
        assert_eq!(Service::immutable_difference(&headless, &headless), None);
        assert_eq!(Service::immutable_difference(&with_address, &wants_address), None);
    }
}
