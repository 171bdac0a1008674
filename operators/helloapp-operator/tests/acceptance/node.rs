//! Tests with real pods on a real node: the security profiles with an image that runs as root.

use std::{process::Output, time::Duration};

use cluster::{Cluster, Nodes};
use helloapp_operator::{HelloApp, HelloAppOperator};
use k8s_openapi::api::core::v1::Pod;
use kube::{ResourceExt, api::LogParams};
use manager_testing::{World, condition};
use serde_json::{Value, json};

use crate::kit::hello;

/// The image of the real busybox runs as root.
const IMAGE: &str = "docker.io/library/busybox:1.36";
/// Writes a file that only root can read, in a folder that only root can change, and gives it to another user. Stock images such as
/// nginx do the same when they start; the last step needs a capability. The end-to-end tests run nginx itself.
const SCRIPT: &str = "umask 077; echo hidden > /root-only; echo \"user $(id -u) reads $(cat /root-only)\"; \
                      if chown 101 /root-only; then echo given away; else echo kept; fi; exec sleep 3600";
/// How the last step of the script ends.
const KEPT: &str = "kept";
const GIVEN_AWAY: &str = "given away";
/// Longer than any of these steps takes on a busy machine.
const PATIENCE: Duration = Duration::from_mins(5);

/// Returns the log of the pod of this app, when its script has come to the end.
async fn log(world: &World, name: &str) -> Option<String> {
    let pods: Vec<Pod> = world.list().await;
    let is_its = |pod: &&Pod| pod.labels().get("app.kubernetes.io/instance").is_some_and(|it| it == name);
    let pod = pods.iter().find(is_its)?.name_any();
    let log = world.api::<Pod>().logs(&pod, &LogParams::default()).await.ok()?;
    [KEPT, GIVEN_AWAY].iter().any(|end| log.contains(end)).then_some(log)
}

#[tokio::test(flavor = "multi_thread")]
async fn profiles_let_an_image_that_runs_as_root_do_what_they_say() {
    let binary = env!("CARGO_BIN_EXE_helloapp-operator");
    let Some(mut world) = World::prepare(&HelloAppOperator, binary, || Cluster::fresh(Nodes::Real)).await else {
        return;
    };
    // Namespaces of tests enforce the restricted standard, which forbids root.
    let enforce = "pod-security.kubernetes.io/enforce=baseline";
    let labelled = world.cluster.kubectl(["label", "namespace", &world.namespace, enforce, "--overwrite"]).output();
    let Output { status, stderr, .. } = labelled.expect("kubectl");
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    world.run(&[]);
    for (name, profile) in
        [("by-default", Value::Null), ("root-allowed", json!("RootAllowed")), ("baseline", json!("Baseline"))]
    {
        let mut spec = json!({"image": IMAGE, "command": ["sh", "-c", SCRIPT], "securityProfile": profile});
        spec.as_object_mut().expect("an object").retain(|_, value| !value.is_null());
        world.apply(&hello(name, &spec)).await;
    }
    for (name, ending) in [("root-allowed", KEPT), ("baseline", GIVEN_AWAY)] {
        let ready = async || {
            let app: HelloApp = world.get(name).await?;
            condition(&app, "Ready").filter(|it| it.status == "True").map(drop)
        };
        world.within(PATIENCE, &format!("{name} is ready"), ready).await;
        let said = world.within(PATIENCE, &format!("{name} has a log"), async || log(&world, name).await).await;
        assert!(said.contains("user 0 reads hidden") && said.contains(ending), "{name}: {said}");
    }
    let reported = async || {
        let app: HelloApp = world.get("by-default").await?;
        let found = condition(&app, "Degraded").filter(|it| it.status == "True" && it.reason == "ImageRunsAsRoot")?;
        Some(found.message.clone())
    };
    let message = world.within(PATIENCE, "the refused image is reported", reported).await;
    assert!(message.contains("set spec.securityProfile: Baseline"), "{message}");
    assert_eq!(log(&world, "by-default").await, None, "it has not run");
}
