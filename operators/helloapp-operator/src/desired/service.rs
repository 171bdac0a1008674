//! The Service through which clients find the pods.

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use workloads::App;

use super::deployment::PORT;
use crate::HelloApp;

/// Returns the Service, one address for all pods; `None` if it is disabled, or if the app has no port.
pub fn service(hello: &HelloApp) -> Option<Service> {
    let settings = hello.spec.service();
    let wanted = settings.enabled.unwrap_or(true) && hello.spec.port.is_some();
    let service =
        || workloads::service(hello.name_any(), &App::of(hello), &settings.annotations, (PORT, settings.port));
    wanted.then(service)
}

/// Returns the address of that Service inside the cluster.
pub fn url(hello: &HelloApp) -> String {
    let namespace = hello.namespace().unwrap_or_default();
    format!("http://{}.{namespace}.svc:{}", hello.name_any(), hello.spec.service().port)
}
