//! The Service through which clients find the pods.

use k8s_openapi::{
    api::core::v1::{Service, ServicePort},
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::ResourceExt;
use workloads::App;

use super::{deployment::PORT, exporter};
use crate::api::{
    Memcached,
    v1::{MetricsSettings, ServiceType},
};

/// Returns the Service, which is headless by default. Behind a single address, each connection would reach an arbitrary pod. Pods
/// do not share items, so a `get` after a `set` would miss.
pub fn service(memcached: &Memcached) -> Service {
    let settings = memcached.spec.service();
    let port = (PORT, memcached.spec.port());
    let mut service = workloads::service(memcached.name_any(), &App::of(memcached), &settings.annotations, port);
    if let Some(spec) = &mut service.spec {
        spec.cluster_ip = (settings.r#type == ServiceType::Headless).then(|| "None".to_owned());
        spec.ports.get_or_insert_default().extend(memcached.spec.metrics().map(metrics_port));
    }
    service
}

fn metrics_port(metrics: &MetricsSettings) -> ServicePort {
    ServicePort {
        name: Some(exporter::PORT.to_owned()),
        port: metrics.port,
        target_port: Some(IntOrString::String(exporter::PORT.to_owned())),
        protocol: Some("TCP".to_owned()),
        ..Default::default()
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
    fn metrics_have_a_port_of_their_own() {
        let ports = |metrics: serde_json::Value| {
            let spec = service(&samples::with_spec(&json!({"metrics": metrics}))).spec.expect("a spec");
            serde_json::to_value(spec.ports).expect("JSON")
        };
        let port =
            |name: &str, number: i32| json!({"name": name, "port": number, "protocol": "TCP", "targetPort": name});
        assert_eq!(ports(json!({})), json!([port("memcached", 11211)]));
        let both = json!([port("memcached", 11211), port("metrics", 9999)]);
        assert_eq!(ports(json!({"enabled": true, "port": 9999})), both);
    }

    #[test]
    fn service_with_cluster_ip_and_annotations() {
        let settings = json!({"port": 22122, "service": {"type": "ClusterIP", "annotations": {"a": "b"}}});
        let service = service(&samples::with_spec(&settings));
        let spec = service.spec.expect("a spec");
        assert_eq!((spec.cluster_ip, spec.ports.expect("ports")[0].port), (None, 22122));
        assert_eq!(service.metadata.annotations, Some([("a".to_owned(), "b".to_owned())].into()));
    }
}
