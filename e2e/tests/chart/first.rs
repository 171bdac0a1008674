//! The way from the chart and the image of an early commit to the present ones, and back.

use std::fs;

use chart::helm::Version;
use cluster::or_skip;
use installation::first_release;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    kit::World,
    lifecycle::{MEMCACHED, all_ready, samples, uids},
};

/// Fields that the early commit does not know: an object, what sets the field, and the place of its value.
const NEWER: [(&str, &str, &str); 2] = [
    ("crontab/my-new-cron-object", r#"{"spec": {"jitterSeconds": 5}}"#, "/spec/jitterSeconds"),
    (
        "helloapp/helloapp-sample",
        r#"{"spec": {"port": 8080, "startupProbe": {"failureThreshold": 40}}}"#,
        "/spec/startupProbe/failureThreshold",
    ),
];

/// The values of these fields.
fn newer_fields(world: &World) -> [Value; 2] {
    NEWER.map(|(object, _, place)| world.get(&[object]).pointer(place).cloned().unwrap_or_default())
}

/// The number of failures that the app's container may have when it starts; null without a startup probe.
fn startup_probe(world: &World) -> Value {
    let deployment = world.get(&["deployment", "helloapp-sample"]);
    deployment["spec"]["template"]["spec"]["containers"][0]["startupProbe"]["failureThreshold"].clone()
}

/// Runs `kubectl ARGUMENTS` until the API server accepts it. The early chart has no `minReadySeconds`. So when Helm has waited for its
/// pod, the node may not know yet where the webhooks are, and the API server refuses writes to their kinds.
fn accepted(world: &World, arguments: &[&str]) {
    let mut refused = String::new();
    world.until(&format!("the API server accepts kubectl {arguments:?}"), |world| {
        let Err(error) = world.try_kubectl(arguments) else { return true };
        if error != refused {
            eprintln!("kubectl {arguments:?}: {error}");
            refused = error;
        }
        false
    });
}

/// The operators that run now carry out a change.
fn resize(world: &World, size: u8) {
    let resize = format!(r#"{{"spec": {{"size": {size}}}}}"#);
    accepted(world, &["patch", MEMCACHED, "--type=merge", "--patch", &resize]);
    world.until("the operators carry out a change", |world| {
        world.get(&["deployment", "memcached-sample"])["status"]["readyReplicas"] == size
    });
    all_ready(world);
}

#[test]
fn first_release_is_upgraded_to_this_one_and_back_without_a_loss() {
    if std::env::var_os("FIRST_RELEASE").is_none() {
        return skip::unasked("this test builds the programs of an early commit; FIRST_RELEASE=all runs it");
    }
    let Some(world) = World::on(installation::own_cluster, Version::Four) else { return };
    let folder = TempDir::new().unwrap();
    let Some((first, image)) = or_skip(first_release(folder.path())) else { return };
    let (repository, digest) = image.split_once('@').unwrap();
    let image = format!("image.repository={repository},image.digest={digest}");
    world.try_upgrade(&first, &["--set", &image]).unwrap();
    for sample in samples() {
        let file = folder.path().join("sample.yaml");
        fs::write(&file, sample).unwrap();
        accepted(&world, &["apply", "--server-side", "--filename", file.to_str().unwrap()]);
    }
    all_ready(&world);
    let objects = uids(&world);

    world.upgrade(&[]);
    resize(&world, 2);
    world.tested();
    assert_eq!(uids(&world), objects, "the upgrade replaced objects or children");
    for (object, field, _) in NEWER {
        accepted(&world, &["patch", object, "--type=merge", "--patch", field]);
    }
    all_ready(&world);
    let newer = newer_fields(&world);
    assert_eq!((&newer[0], &newer[1]), (&5.into(), &40.into()));
    assert_eq!(startup_probe(&world), 40);

    // The way back that the chart's notes name.
    world.try_upgrade(&first, &["--set", &image, "--set", "crds.enabled=false"]).unwrap();
    resize(&world, 1);
    assert_eq!(uids(&world), objects, "the way back replaced objects or children");
    world.until("the child has the form that the older operators want", |world| startup_probe(world).is_null());
    all_ready(&world);
    assert_eq!(newer_fields(&world), newer, "the older operators dropped fields that they do not know");

    world.upgrade(&[]);
    resize(&world, 3);
    world.until("the child has the newer field again", |world| startup_probe(world) == 40);
    assert_eq!(newer_fields(&world), newer, "the second upgrade dropped fields");
    assert_eq!(uids(&world), objects, "the second upgrade replaced objects or children");
}
