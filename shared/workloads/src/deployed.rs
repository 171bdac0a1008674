//! The Deployment and the Service of an app: what all of them have in common.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment},
        core::v1::{PodTemplateSpec, Service, ServicePort, ServiceSpec},
    },
    apimachinery::pkg::util::intstr::IntOrString,
};

use crate::{App, given};

/// How a change is carried from pod to pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pace {
    /// Pods that may be there beyond the size.
    pub max_surge: IntOrString,
    /// Pods that may be missing.
    pub max_unavailable: IntOrString,
    /// The pause after each new pod.
    pub min_ready_seconds: i32,
    /// How long nothing may move before the Deployment calls it stalled.
    pub progress_deadline_seconds: i32,
}

/// Runs `size` pods of the app. Only what is in `template` restarts them.
pub fn deployment(name: String, app: &App, size: i32, pace: Pace, template: PodTemplateSpec) -> Deployment {
    Deployment {
        metadata: app.metadata(name),
        spec: Some(DeploymentSpec {
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
        }),
        status: None,
    }
}

/// An address for the app's pods. They name the port as it is named here, and it may have another number there.
pub fn service(name: String, app: &App, annotations: &BTreeMap<String, String>, port: (&str, i32)) -> Service {
    let (port_name, port) = port;
    let mut metadata = app.metadata(name);
    metadata.annotations = given::map(annotations);
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
