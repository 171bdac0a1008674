//! Objects for tests: the samples that users get, and variations of the first.

use serde_json::{Value, json};

use crate::HelloApp;

/// The sample of the README: an image and a size.
pub(crate) fn seed() -> HelloApp {
    parse(include_str!("../samples/apps_v1_helloapp.yaml"))
}

/// The sample with most of the settings.
pub(crate) fn web() -> HelloApp {
    parse(include_str!("../samples/helloapp-web.yaml"))
}

/// The first sample with another spec, at generation 1.
pub(crate) fn with_spec(spec: &Value) -> HelloApp {
    let mut hello = seed();
    hello.metadata.generation = Some(1);
    hello.spec = serde_json::from_value(spec.clone()).expect("a valid spec");
    hello
}

/// The first sample with a status.
pub(crate) fn with_status(spec: &Value, status: &Value) -> HelloApp {
    let status = serde_json::from_value(status.clone()).expect("a valid status");
    HelloApp { status: Some(status), ..with_spec(spec) }
}

fn parse(yaml: &str) -> HelloApp {
    serde_saphyr::from_str(yaml).expect("a valid HelloApp")
}

#[test]
fn first_sample_has_only_an_image_and_a_size() {
    let seed = seed();
    assert_eq!(seed.metadata.namespace, None);
    let spec = serde_json::to_value(seed.spec).expect("JSON");
    assert_eq!(spec, json!({"image": "docker.io/nginxinc/nginx-unprivileged:stable", "size": 1}));
}
