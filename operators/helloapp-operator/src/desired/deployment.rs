//! The Deployment that runs the pods.

use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{
            Container, ContainerPort, HTTPGetAction, PodSpec, PodTemplateSpec, Probe, SecurityContext, TCPSocketAction,
        },
    },
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::ResourceExt;
use workloads::{App, ImagePullPolicy, RolloutStrategy, SecurityProfile, normalize};

use crate::{
    HelloApp,
    api::v1::{HelloAppSpec, RolloutSettings},
    rollback,
};

/// The name of the container that runs the image.
pub const CONTAINER: &str = "app";

/// The name of the port, in the pod and in the Service.
pub(super) const PORT: &str = "http";

/// Returns the Deployment that runs `size` pods. Its template is that of the spec or, after a rollback, the last available one.
pub fn deployment(hello: &HelloApp, profile: SecurityProfile) -> Deployment {
    let RolloutSettings { max_surge, max_unavailable, min_ready_seconds, progress_deadline_seconds } =
        hello.spec.rollout();
    let pace = RolloutStrategy { max_surge, max_unavailable, min_ready_seconds, progress_deadline_seconds };
    let template = rollback::instead(hello).unwrap_or_else(|| template(hello, profile));
    workloads::deployment(hello.name_any(), &App::of(hello), hello.spec.size, pace, template)
}

/// Returns the pod template of the spec. Only a change of this template restarts the pods.
pub fn template(hello: &HelloApp, profile: SecurityProfile) -> PodTemplateSpec {
    let spec = &hello.spec;
    let metadata = App::of(hello).pod_metadata(&spec.pod_labels, &spec.pod_annotations);
    PodTemplateSpec { metadata: Some(metadata), spec: Some(pod(spec, profile)) }
}

fn pod(spec: &HelloAppSpec, profile: SecurityProfile) -> PodSpec {
    PodSpec {
        containers: vec![container(spec, profile)],
        image_pull_secrets: normalize::list(&spec.image_pull_secrets),
        node_selector: normalize::map(&spec.node_selector),
        tolerations: normalize::list(&spec.tolerations),
        volumes: normalize::list(&spec.volumes),
        ..profile.pod_as(spec.service_account_name.as_deref())
    }
}

fn container(spec: &HelloAppSpec, profile: SecurityProfile) -> Container {
    Container {
        name: CONTAINER.to_owned(),
        image: Some(spec.image.clone()),
        image_pull_policy: spec.image_pull_policy.map(ImagePullPolicy::name),
        command: normalize::list(&spec.command),
        args: normalize::list(&spec.args),
        env: normalize::list(&spec.env),
        env_from: normalize::list(&spec.env_from),
        ports: spec.port.map(|port| {
            vec![ContainerPort {
                name: Some(PORT.to_owned()),
                container_port: port,
                protocol: Some("TCP".to_owned()),
                ..Default::default()
            }]
        }),
        readiness_probe: probe(spec).map(|probe| Probe {
            period_seconds: Some(5),
            failure_threshold: Some(3),
            ..probe
        }),
        liveness_probe: probe(spec).map(|probe| Probe {
            period_seconds: Some(10),
            failure_threshold: Some(6),
            initial_delay_seconds: Some(15),
            ..probe
        }),
        resources: normalize::resources_or_default(spec.resources.as_ref()),
        security_context: Some(SecurityContext { run_as_user: spec.run_as_user, ..profile.container() }),
        volume_mounts: normalize::list(&spec.volume_mounts),
        ..Default::default()
    }
}

/// Returns the probe; `None` if it is disabled, or if the app has no port to connect to.
fn probe(spec: &HelloAppSpec) -> Option<Probe> {
    let settings = spec.probe();
    if spec.port.is_none() || settings.disabled {
        return None;
    }
    let port = || IntOrString::String(PORT.to_owned());
    let bare = Probe { timeout_seconds: Some(2), ..Default::default() };
    Some(match settings.path {
        Some(path) => {
            let get = HTTPGetAction { path: Some(path), port: port(), ..Default::default() };
            Probe { http_get: Some(get), ..bare }
        }
        None => Probe { tcp_socket: Some(TCPSocketAction { port: port(), host: None }), ..bare },
    })
}
