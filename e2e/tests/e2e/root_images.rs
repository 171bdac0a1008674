//! An image that starts as root, changes its user and binds port 80: the real nginx, under each security profile.

use chart::helm::succeeded;
use cluster::Access;
use serde_json::json;

use crate::{
    helloapp::{apply, degraded},
    kit::{app_is_ready, get, world_with},
};

const IMAGE: &str = "docker.io/library/nginx:latest";
const PORT: u16 = 80;

#[tokio::test(flavor = "multi_thread")]
async fn real_nginx_runs_under_baseline_and_the_other_profiles_say_why_not() {
    let Some(world) = world_with(Access::Network).await else { return };
    // The restricted standard, which namespaces of tests enforce, forbids root.
    let enforce = "pod-security.kubernetes.io/enforce=baseline";
    let mut label = world.cluster.kubectl(["label", "namespace", &world.namespace, enforce, "--overwrite"]);
    succeeded(&mut label).expect("labelled");
    apply(&world, "by-default", json!({"image": IMAGE, "port": PORT})).await;
    for (name, profile) in [("root-allowed", "RootAllowed"), ("baseline", "Baseline")] {
        apply(&world, name, json!({"image": IMAGE, "port": PORT, "securityProfile": profile})).await;
    }

    app_is_ready(&world, "baseline").await;
    let pods = world.ready_pods("app.kubernetes.io/instance=baseline").await;
    let address = pods.first().and_then(|pod| pod.status.as_ref()?.pod_ip.clone()).expect("the address of a pod");
    let answer = get(world.cluster.clone(), (&address, PORT), "/", "").await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("Server: nginx"), "{answer}");
    // Root may read this file, but nginx answers as another user. The published image, which nodes of other clusters pull, has no such
    // file.
    let answer = get(world.cluster.clone(), (&address, PORT), "/root-only", "").await.expect("an answer");
    assert!(["HTTP/1.1 403 ", "HTTP/1.1 404 "].iter().any(|refused| answer.starts_with(refused)), "{answer}");

    let message = degraded(&world, "by-default", "ImageRunsAsRoot").await;
    assert!(message.contains("set spec.securityProfile: Baseline"), "{message}");
    // It may run as root, but has not the capability to give its folders to its own user.
    let message = degraded(&world, "root-allowed", "CrashLooping").await;
    assert!(message.contains("chown(") && message.contains("Operation not permitted"), "{message}");
}
