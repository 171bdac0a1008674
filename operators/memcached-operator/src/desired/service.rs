//! The Service through which clients find the nodes.

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use workloads::App;

use super::deployment::PORT;
use crate::api::{Memcached, v1::ServiceType};

/// Headless unless asked otherwise: behind one address each connection would end at a random node, whose items are not
/// the others', so that a `get` after a `set` misses.
pub fn service(memcached: &Memcached) -> Service {
    let settings = memcached.spec.service();
    let port = (PORT, memcached.spec.port());
    let mut service = workloads::service(memcached.name_any(), &App::of(memcached), &settings.annotations, port);
    if let Some(spec) = service.spec.as_mut().filter(|_| settings.r#type == ServiceType::Headless) {
        spec.cluster_ip = Some("None".to_owned());
    }
    service
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::samples;

    #[test]
    fn the_service_of_the_sample() {
        insta::assert_yaml_snapshot!(service(&samples::seed()));
    }

    #[test]
    fn with_an_address_and_annotations() {
        let settings = json!({"port": 22122, "service": {"type": "ClusterIP", "annotations": {"a": "b"}}});
        let service = service(&samples::with_spec(&settings));
        let spec = service.spec.expect("a spec");
        assert_eq!((spec.cluster_ip, spec.ports.expect("ports")[0].port), (None, 22122));
        assert_eq!(service.metadata.annotations, Some([("a".to_owned(), "b".to_owned())].into()));
    }
}
