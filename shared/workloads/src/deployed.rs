//! Builders for the Deployment and the Service of an app: the parts that all our operators share.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment},
        core::v1::{PodTemplateSpec, Service, ServicePort, ServiceSpec},
    },
    apimachinery::pkg::util::intstr::IntOrString,
};

use crate::{App, normalize};

/// How fast a rollout replaces pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RolloutStrategy {
    /// Pods that may exist beyond the size.
    pub max_surge: IntOrString,
    /// Pods that may be unavailable.
    pub max_unavailable: IntOrString,
    /// Seconds that a new pod must be ready before the rollout continues.
    pub min_ready_seconds: i32,
    /// Seconds without progress after which the Deployment reports the rollout as stalled.
    pub progress_deadline_seconds: i32,
}

/// Returns a Deployment of `size` pods of the app. Only a change of `template` restarts them.
pub fn deployment(name: String, app: &App, size: i32, pace: RolloutStrategy, template: PodTemplateSpec) -> Deployment {
    let spec = DeploymentSpec {
        replicas: Some(size),
        revision_history_limit: Some(10),
        progress_deadline_seconds: Some(pace.progress_deadline_seconds),
        min_ready_seconds: Some(pace.min_ready_seconds).filter(|it| *it > 0),
        strategy: Some(DeploymentStrategy {
            type_: Some("RollingUpdate".to_owned()),
            rolling_update: Some(RollingUpdateDeployment {
                max_surge: Some(pace.max_surge),
                max_unavailable: Some(pace.max_unavailable),
            }),
        }),
        selector: app.label_selector(),
        template,
        paused: None,
    };
    // The spec is optional in k8s-openapi up to 1.36. The conversion serves both forms.
    Deployment { metadata: app.metadata(name), spec: spec.into(), status: None }
}

/// Returns a Service for the app's pods. It targets their port by name, so the pods may use another port number.
pub fn service(name: String, app: &App, annotations: &BTreeMap<String, String>, port: (&str, i32)) -> Service {
    let (port_name, port) = port;
    let mut metadata = app.metadata(name);
    metadata.annotations = normalize::map(annotations);
    Service {
        metadata,
        spec: Some(ServiceSpec {
            selector: Some(app.selector()),
            ports: Some(vec![ServicePort {
                name: Some(port_name.to_owned()),
                port,
                target_port: Some(IntOrString::String(port_name.to_owned())),
                protocol: Some("TCP".to_owned()),
                ..Default::default()
            }]),
            ..Default::default()
        }),
        status: None,
    }
}
