//! The desired Deployment of a Foo. The runtime adds the namespace and the owner reference.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec},
        core::v1::{Container, PodSpec, PodTemplateSpec},
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};
use kube::ResourceExt;
use workloads::{App, SecurityProfile};

use crate::Foo;

/// Returns a Deployment of nginx with upstream's selector. nginx starts only as root, so it runs under `Baseline`.
pub fn deployment(object: &Foo) -> Deployment {
    let labels = BTreeMap::from([("app".to_owned(), "nginx".to_owned()), ("controller".to_owned(), object.name_any())]);
    let container = Container {
        name: "nginx".to_owned(),
        image: Some("nginx:latest".to_owned()),
        security_context: Some(SecurityProfile::Baseline.container()),
        termination_message_policy: Some(workloads::LAST_WORDS.to_owned()),
        ..Container::default()
    };
    Deployment {
        metadata: App::of(object).metadata(object.spec.deployment_name.clone()),
        spec: Some(DeploymentSpec {
            replicas: object.spec.replicas,
            selector: LabelSelector { match_labels: Some(labels.clone()), ..LabelSelector::default() },
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta { labels: Some(labels), ..ObjectMeta::default() }),
                spec: Some(PodSpec { containers: vec![container], ..SecurityProfile::Baseline.pod() }),
            },
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn foo(spec: serde_json::Value) -> Foo {
        let mut sample: Foo = serde_saphyr::from_str(include_str!("../samples/example-foo.yaml")).expect("a valid Foo");
        sample.spec = serde_json::from_value(spec).expect("a valid spec");
        sample
    }

    #[test]
    fn selector_matches_upstream_and_equals_the_pod_labels() {
        let deployment = deployment(&foo(json!({"deploymentName": "web", "replicas": 2})));
        let spec = serde_json::to_value(deployment.spec).expect("JSON");
        let labels = json!({"app": "nginx", "controller": "example-foo"});
        assert_eq!(spec["selector"], json!({"matchLabels": labels}));
        assert_eq!(spec["template"]["metadata"], json!({"labels": labels}));
        assert_eq!(deployment.metadata.name.as_deref(), Some("web"));
        assert_eq!(spec["replicas"], 2);
    }

    #[test]
    fn unset_replicas_are_left_to_other_clients() {
        assert_eq!(deployment(&foo(json!({"deploymentName": "web"}))).spec.expect("a spec").replicas, None);
    }
}
