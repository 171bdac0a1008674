//! The Deployment that runs the pods.

use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{
            Container, ContainerPort, HTTPGetAction, PodSpec, PodTemplateSpec, Probe, ResourceRequirements,
            SecurityContext, TCPSocketAction,
        },
    },
    apimachinery::pkg::{api::resource::Quantity, util::intstr::IntOrString},
};
use kube::ResourceExt;
use workloads::{App, ImagePullPolicy, RolloutStrategy, SecurityProfile, normalize};

use crate::{
    HelloApp,
    api::v1::{HelloAppSpec, RolloutSettings},
    config::Config,
    rollback,
};

/// The name of the container that runs the image.
pub const CONTAINER: &str = "app";

/// The name of the port, in the pod and in the Service.
pub(super) const PORT: &str = "http";

/// Returns the Deployment that runs `size` pods. Its template is that of the spec or, after a rollback, the last available one.
pub fn deployment(hello: &HelloApp, config: &Config) -> Deployment {
    let RolloutSettings { max_surge, max_unavailable, min_ready_seconds, progress_deadline_seconds } =
        hello.spec.rollout();
    let pace = RolloutStrategy { max_surge, max_unavailable, min_ready_seconds, progress_deadline_seconds };
    let template = rollback::instead(hello).unwrap_or_else(|| template(hello, config));
    workloads::deployment(hello.name_any(), &App::of(hello), hello.spec.size, pace, template)
}

/// Returns the pod template of the spec. Only a change of this template restarts the pods.
pub fn template(hello: &HelloApp, config: &Config) -> PodTemplateSpec {
    let spec = &hello.spec;
    let metadata = App::of(hello).pod_metadata(&spec.pod_labels, &spec.pod_annotations);
    let profile = spec.security_profile.unwrap_or(config.security_profile);
    PodTemplateSpec { metadata: Some(metadata), spec: Some(pod(spec, profile)) }
}

fn pod(spec: &HelloAppSpec, profile: SecurityProfile) -> PodSpec {
    let bare = profile.pod();
    PodSpec {
        containers: vec![container(spec, profile)],
        // A user who names a service account wants its token.
        automount_service_account_token: bare
            .automount_service_account_token
            .filter(|_| spec.service_account_name.is_none()),
        image_pull_secrets: normalize::list(&spec.image_pull_secrets),
        node_selector: normalize::map(&spec.node_selector),
        service_account_name: spec.service_account_name.clone(),
        tolerations: normalize::list(&spec.tolerations),
        volumes: normalize::list(&spec.volumes),
        ..bare
    }
}

fn container(spec: &HelloAppSpec, profile: SecurityProfile) -> Container {
    let words = |given: &[String]| (!given.is_empty()).then(|| given.to_vec());
    Container {
        name: CONTAINER.to_owned(),
        image: Some(spec.image.clone()),
        image_pull_policy: spec.image_pull_policy.map(ImagePullPolicy::name),
        command: words(&spec.command),
        args: words(&spec.args),
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
        resources: match &spec.resources {
            Some(resources) => normalize::resources(resources),
            None => Some(default_resources()),
        },
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

/// Requests that let the scheduler spread the pods, without limits.
fn default_resources() -> ResourceRequirements {
    let requests = [("cpu", "50m"), ("memory", "64Mi")];
    let requests = requests.map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned())));
    ResourceRequirements { requests: Some(requests.into()), ..Default::default() }
}
