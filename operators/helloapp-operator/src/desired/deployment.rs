//! The Deployment that runs the pods.

use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        core::v1::{
            Container, ContainerPort, HTTPGetAction, PodSpec, PodTemplateSpec, Probe, SecurityContext, TCPSocketAction,
            Volume,
        },
    },
    apimachinery::pkg::util::intstr::IntOrString,
};
use kube::ResourceExt;
use workloads::{App, ImagePullPolicy, Proof, RolloutStrategy, SecurityProfile, normalize};

use crate::{
    HelloApp,
    api::v1::{HelloAppSpec, Rollback, RolloutSettings, StartupProbe},
};

/// The name of the container that runs the image.
pub const CONTAINER: &str = "app";

/// The name of the port, in the pod and in the Service.
pub(super) const PORT: &str = "http";

/// Without a probe, a pod counts as available after this time at the earliest. A program that crashes soon after its start would
/// otherwise be available between two crashes: its release would complete, and the app would be `Ready`.
const UNPROBED_SECONDS: i32 = 10;
/// The same if the spec wants rollbacks: what is good enough to be restored later has to run for longer.
const UNPROBED_SECONDS_TO_RESTORE: i32 = 30;

/// Returns the Deployment that runs `size` pods of this template.
pub fn deployment(hello: &HelloApp, template: PodTemplateSpec) -> Deployment {
    let RolloutSettings { max_surge, max_unavailable, progress_deadline_seconds, .. } = hello.spec.rollout();
    let min_ready_seconds = min_ready_seconds(&hello.spec);
    let pace = RolloutStrategy { max_surge, max_unavailable, min_ready_seconds, progress_deadline_seconds };
    workloads::deployment(hello.name_any(), &App::of(hello), hello.spec.size, pace, template)
}

/// Returns what proves that a pod of the spec serves.
pub fn proof(hello: &HelloApp) -> Proof {
    if probe(&hello.spec).is_some() { Proof::Probe } else { Proof::Seconds(min_ready_seconds(&hello.spec)) }
}

/// Returns for how many seconds a pod of the spec has to be ready until it counts as available.
pub fn min_ready_seconds(spec: &HelloAppSpec) -> i32 {
    let RolloutSettings { min_ready_seconds, progress_deadline_seconds, .. } = spec.rollout();
    if probe(spec).is_some() {
        return min_ready_seconds;
    }
    let least = if spec.rollback() == Rollback::OnStall { UNPROBED_SECONDS_TO_RESTORE } else { UNPROBED_SECONDS };
    // The API server requires that the deadline is later.
    min_ready_seconds.max(least.min(progress_deadline_seconds.saturating_sub(1)))
}

/// Returns the pod template of the spec. Only a change of this template restarts the pods.
pub fn template(hello: &HelloApp, profile: SecurityProfile) -> PodTemplateSpec {
    let spec = &hello.spec;
    let metadata = App::of(hello).pod_metadata(&spec.pod_labels, &spec.pod_annotations);
    PodTemplateSpec { metadata: Some(metadata), spec: Some(pod(spec, &App::of(hello), profile)) }
}

/// Whether a HelloApp with this profile can have this pod. The check lets through only those fields that a spec can set.
pub fn is_possible(pod: &PodSpec, profile: SecurityProfile) -> bool {
    let [container] = pod.containers.as_slice() else { return false };
    let run_as_user = container.security_context.as_ref().and_then(|it| it.run_as_user);
    let allowed = Container {
        name: CONTAINER.to_owned(),
        image: container.image.clone(),
        image_pull_policy: container.image_pull_policy.clone(),
        command: container.command.clone(),
        args: container.args.clone(),
        env: container.env.clone(),
        env_from: container.env_from.clone(),
        ports: container.ports.clone(),
        readiness_probe: container.readiness_probe.clone(),
        liveness_probe: container.liveness_probe.clone(),
        startup_probe: container.startup_probe.clone(),
        resources: container.resources.clone(),
        security_context: Some(SecurityContext { run_as_user, ..profile.container() }),
        volume_mounts: container.volume_mounts.clone(),
        termination_message_policy: container.termination_message_policy.clone(), // an earlier release set none
        ..Default::default()
    };
    let of_cluster = |volume: &Volume| Volume {
        name: volume.name.clone(),
        config_map: volume.config_map.clone(),
        empty_dir: volume.empty_dir.clone(),
        projected: volume.projected.clone(),
        secret: volume.secret.clone(),
        ..Default::default()
    };
    let allowed = PodSpec {
        affinity: pod.affinity.clone(),
        containers: vec![allowed],
        image_pull_secrets: pod.image_pull_secrets.clone(),
        node_selector: pod.node_selector.clone(),
        tolerations: pod.tolerations.clone(),
        topology_spread_constraints: pod.topology_spread_constraints.clone(),
        volumes: pod.volumes.as_ref().map(|volumes| volumes.iter().map(of_cluster).collect()),
        ..profile.pod_as(pod.service_account_name.as_deref())
    };
    let has_host_port = container.ports.iter().flatten().any(|port| port.host_port.is_some() || port.host_ip.is_some());
    allowed == *pod && !has_host_port
}

fn pod(spec: &HelloAppSpec, app: &App, profile: SecurityProfile) -> PodSpec {
    PodSpec {
        affinity: normalize::object(spec.affinity.as_ref()),
        containers: vec![container(spec, profile)],
        image_pull_secrets: normalize::list(&spec.image_pull_secrets),
        node_selector: normalize::map(&spec.node_selector),
        tolerations: normalize::list(&spec.tolerations),
        topology_spread_constraints: app.spread(&spec.topology_spread_constraints),
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
        startup_probe: startup_probe(spec),
        resources: normalize::resources_or_default(spec.resources.as_ref()),
        security_context: Some(SecurityContext { run_as_user: spec.run_as_user, ..profile.container() }),
        volume_mounts: normalize::list(&spec.volume_mounts),
        termination_message_policy: Some(workloads::LAST_WORDS.to_owned()),
        ..Default::default()
    }
}

fn startup_probe(spec: &HelloAppSpec) -> Option<Probe> {
    let StartupProbe { period_seconds, failure_threshold } = spec.startup_probe.clone()?;
    let probe = probe(spec)?;
    Some(Probe { period_seconds: Some(period_seconds), failure_threshold: Some(failure_threshold), ..probe })
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
