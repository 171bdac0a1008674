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

/// The full name of upstream's image, under which a mirror has it.
pub(crate) const IMAGE: &str = "docker.io/library/nginx:latest";

/// Returns the image of the pods: that of the mirror, if there is one, or upstream's own short name.
pub fn image(registry: Option<&str>) -> String {
    match registry {
        None | Some("") => "nginx:latest".to_owned(),
        Some(registry) => format!("{}/{IMAGE}", registry.trim_end_matches('/')),
    }
}

/// Returns a Deployment of nginx with upstream's selector. nginx starts only as root, so it runs under `Baseline`.
pub fn deployment(object: &Foo, image: &str) -> Deployment {
    let labels = BTreeMap::from([("app".to_owned(), "nginx".to_owned()), ("controller".to_owned(), object.name_any())]);
    let container = Container {
        name: "nginx".to_owned(),
        image: Some(image.to_owned()),
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
        let deployment = deployment(&foo(json!({"deploymentName": "web", "replicas": 2})), "nginx:latest");
        let spec = serde_json::to_value(deployment.spec).expect("JSON");
        let labels = json!({"app": "nginx", "controller": "example-foo"});
        assert_eq!(spec["selector"], json!({"matchLabels": labels}));
        assert_eq!(spec["template"]["metadata"], json!({"labels": labels}));
        assert_eq!(deployment.metadata.name.as_deref(), Some("web"));
        assert_eq!(spec["replicas"], 2);
    }

    #[test]
    fn unset_replicas_are_left_to_other_clients() {
        let deployment = deployment(&foo(json!({"deploymentName": "web"})), "nginx:latest");
        assert_eq!(deployment.spec.expect("a spec").replicas, None);
    }

    #[test]
    fn failed_program_leaves_the_end_of_its_log() {
        let deployment = deployment(&foo(json!({"deploymentName": "web"})), "nginx:latest");
        let pod = deployment.spec.expect("a spec").template.spec.expect("a pod");
        assert_eq!(pod.containers[0].termination_message_policy.as_deref(), Some("FallbackToLogsOnError"));
    }

    #[test]
    fn image_comes_from_the_mirror_if_there_is_one() {
        for none in [None, Some("")] {
            assert_eq!(image(none), "nginx:latest", "another text would restart the pods of every Foo");
        }
        for registry in ["mirror:5000/hub", "mirror:5000/hub/"] {
            assert_eq!(image(Some(registry)), "mirror:5000/hub/docker.io/library/nginx:latest");
        }
        let deployment = deployment(&foo(json!({"deploymentName": "web"})), "mirror:5000/nginx");
        let pod = deployment.spec.expect("a spec").template.spec.expect("a pod");
        assert_eq!(pod.containers[0].image.as_deref(), Some("mirror:5000/nginx"));
    }
}
