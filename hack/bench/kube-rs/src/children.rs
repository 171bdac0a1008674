//! The children of a Memcached, with the fields that its owner decides. They are those of the peer in Go.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec},
        core::v1::{
            Capabilities, Container, ContainerPort, PodSecurityContext, PodSpec, PodTemplateSpec, SeccompProfile,
            SecurityContext, Service, ServicePort, ServiceSpec,
        },
        policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec},
    },
    apimachinery::pkg::{
        apis::meta::v1::{LabelSelector, ObjectMeta},
        util::intstr::IntOrString,
    },
};
use kube::{Resource, ResourceExt};

use crate::{PEER, api::Memcached};

pub(crate) const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const NAME: &str = "memcached";
const PORT: i32 = 11_211;

fn labels(memcached: &Memcached) -> BTreeMap<String, String> {
    BTreeMap::from([
        ("app.kubernetes.io/name".to_owned(), NAME.to_owned()),
        ("app.kubernetes.io/instance".to_owned(), memcached.name_any()),
        (MANAGED_BY.to_owned(), PEER.to_owned()),
    ])
}

fn meta(memcached: &Memcached) -> ObjectMeta {
    ObjectMeta {
        namespace: memcached.namespace(),
        name: Some(memcached.name_any()),
        labels: Some(labels(memcached)),
        owner_references: memcached.controller_owner_ref(&()).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    }
}

fn selector(memcached: &Memcached) -> LabelSelector {
    LabelSelector { match_labels: Some(labels(memcached)), ..LabelSelector::default() }
}

pub(crate) fn deployment(memcached: &Memcached) -> Deployment {
    let command = ["memcached", "--memory-limit=64", "-o", "modern", "-v"].map(str::to_owned);
    let container = Container {
        name: NAME.to_owned(),
        image: Some("docker.io/library/memcached:1.6".to_owned()),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        command: Some(command.to_vec()),
        ports: Some(vec![ContainerPort {
            name: Some(NAME.to_owned()),
            container_port: PORT,
            protocol: Some("TCP".to_owned()),
            ..ContainerPort::default()
        }]),
        security_context: Some(SecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(1001),
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), ..Capabilities::default() }),
            ..SecurityContext::default()
        }),
        ..Container::default()
    };
    let pod = PodSpec {
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), ..SeccompProfile::default() }),
            ..PodSecurityContext::default()
        }),
        containers: vec![container],
        ..PodSpec::default()
    };
    let template = PodTemplateSpec {
        metadata: Some(ObjectMeta { labels: Some(labels(memcached)), ..ObjectMeta::default() }),
        spec: Some(pod),
    };
    Deployment {
        metadata: meta(memcached),
        spec: Some(DeploymentSpec {
            replicas: Some(memcached.spec.size),
            selector: selector(memcached),
            template,
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    }
}

pub(crate) fn service(memcached: &Memcached) -> Service {
    Service {
        metadata: meta(memcached),
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            selector: Some(labels(memcached)),
            ports: Some(vec![ServicePort {
                name: Some(NAME.to_owned()),
                port: PORT,
                protocol: Some("TCP".to_owned()),
                target_port: Some(IntOrString::String(NAME.to_owned())),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}

pub(crate) fn disruption_budget(memcached: &Memcached) -> PodDisruptionBudget {
    PodDisruptionBudget {
        metadata: meta(memcached),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(1)),
            selector: Some(selector(memcached)),
            ..PodDisruptionBudgetSpec::default()
        }),
        ..PodDisruptionBudget::default()
    }
}
