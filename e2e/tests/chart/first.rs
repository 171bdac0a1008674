//! The way from the chart and the image of an early commit to the present ones, and back.

use chart::helm::Version;
use cluster::{Access, or_skip};
use installation::first_release;
use tempfile::TempDir;

use crate::{
    kit::World,
    lifecycle::{MEMCACHED, all_ready, samples, uids},
};

/// The operators that run now carry out a change.
fn resize(world: &World, size: u8) {
    let resize = format!(r#"{{"spec": {{"size": {size}}}}}"#);
    world.kubectl(&["patch", MEMCACHED, "--type=merge", "--patch", &resize]);
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
    let Some(world) = World::new(Version::Four) else { return };
    let Some(()) = or_skip(world.cluster.require(Access::Machine)) else { return };
    let folder = TempDir::new().unwrap();
    let Some((first, image)) = or_skip(first_release(folder.path())) else { return };
    let (repository, digest) = image.split_once('@').unwrap();
    let image = format!("image.repository={repository},image.digest={digest}");
    world.try_upgrade(&first, &["--set", &image]).unwrap();
    for sample in samples() {
        world.apply(sample);
    }
    all_ready(&world);
    let objects = uids(&world);

    world.upgrade(&[]);
    resize(&world, 2);
    world.tested();
    assert_eq!(uids(&world), objects, "the upgrade replaced objects or children");

    // The way back that the chart's notes name.
    world.try_upgrade(&first, &["--set", &image, "--set", "crds.enabled=false"]).unwrap();
    resize(&world, 1);
    assert_eq!(uids(&world), objects, "the way back replaced objects or children");

    world.upgrade(&[]);
    resize(&world, 3);
    assert_eq!(uids(&world), objects, "the second upgrade replaced objects or children");
}
