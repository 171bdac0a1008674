//! The Service through which clients find the nodes.

use k8s_openapi::{
    api::core::v1::{Service, ServicePort, ServiceSpec},
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::{ResourceExt, core::ObjectMeta};
use workloads::App;

use super::deployment::PORT;
use crate::api::{Memcached, v1::ServiceType};

/// Headless unless asked otherwise: behind one address each connection would end at a random node, whose items are not
/// the others', so that a `get` after a `set` misses.
pub fn service(memcached: &Memcached) -> Service {
    let app = App::of(memcached);
    let settings = memcached.spec.service();
    Service {
        metadata: ObjectMeta {
            name: Some(memcached.name_any()),
            labels: Some(app.labels()),
            annotations: Some(settings.annotations).filter(|it| !it.is_empty()),
            ..Default::default()
        },
        spec: Some(ServiceSpec {
            cluster_ip: match settings.r#type {
                ServiceType::Headless => Some("None".to_owned()),
                ServiceType::ClusterIP => None,
            },
            selector: Some(app.selector()),
            ports: Some(vec![ServicePort {
                name: Some(PORT.to_owned()),
                port: memcached.spec.port(),
                target_port: Some(IntOrString::String(PORT.to_owned())),
                protocol: Some("TCP".to_owned()),
                ..Default::default()
            }]),
            ..Default::default()
        }),
        status: None,
    }
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
