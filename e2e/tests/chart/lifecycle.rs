//! The whole life of a release: install, upgrade, disable and enable an operator, scale, roll back, test, uninstall, install
//! again.

use std::{sync::LazyLock, time::Instant};

use chart::helm::Version;
use controller_manager::OPERATORS;
use installation::{MANAGER, MANAGER_NAMESPACE};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kit::{World, earlier, seed_without};

/// The users' objects as `kubectl` names them, such as `foo/example-foo`: the samples that need nothing but their operator.
static OBJECTS: LazyLock<Vec<String>> = LazyLock::new(|| samples().map(name_of).collect());

pub(crate) const MEMCACHED: &str = "memcached/memcached-sample";
const CRONTAB: &str = "crontab/my-new-cron-object";

pub(crate) fn samples() -> impl Iterator<Item = &'static str> {
    OPERATORS.iter().filter(|operator| !operator.sample_needs_chart()).map(|operator| operator.sample())
}

fn name_of(sample: &str) -> String {
    let object: Value = serde_saphyr::from_str(sample).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    format!("{}/{}", text(&object["kind"]).to_lowercase(), text(&object["metadata"]["name"]))
}

#[test]
fn release_lifecycle_keeps_objects_with_helm_3() {
    life(Version::Three);
}

#[test]
fn release_lifecycle_keeps_objects_with_helm_4() {
    life(Version::Four);
}

/// Whether this run tests the life of a release with this version of Helm. It takes minutes, so each run draws one version by its
/// seed. `HELM_VERSIONS=all` selects both.
fn is_drawn(version: Version) -> bool {
    seed_without("HELM_VERSIONS").is_none_or(|seed| seed.is_multiple_of(2) == (version == Version::Three))
}

fn life(version: Version) {
    if !is_drawn(version) {
        return skip::unasked("this run has drawn the other version of Helm; HELM_VERSIONS=all runs both");
    }
    let Some(world) = World::new(version) else { return };
    let folder = TempDir::new().unwrap();
    let begun = Instant::now();
    let before = earlier(&world, &folder);
    world.try_upgrade(&before, &[]).unwrap();
    eprintln!("installed in {:.1} s", begun.elapsed().as_secs_f32());
    for sample in samples() {
        world.apply(sample);
    }
    all_ready(&world);
    let objects = uids(&world);

    upgrade_from_earlier_release(&world);
    disable_and_enable_operator(&world);
    disable_and_enable_webhooks(&world);
    scale_manually(&world, version);

    world.helm(&["rollback", "operators", "1", "--wait", "--timeout=3m"]);
    assert!(fields_of_memcached(&world)["metrics"].is_null(), "the rollback did not restore the earlier definition");
    world.upgrade(&[]);
    all_ready(&world);
    world.tested();
    assert_eq!(uids(&world), objects, "objects or children were replaced");

    world.helm(&["uninstall", "operators", "--wait", "--timeout=3m"]);
    assert!(world.get(&["--namespace", MANAGER_NAMESPACE, "deployment", MANAGER]).is_null());
    assert!(world.get(&["validatingwebhookconfiguration", MANAGER]).is_null());
    assert_eq!(uids(&world), objects, "uninstalling the release changed the objects");
    world.kubectl(&["patch", MEMCACHED, "--type=merge", "--patch", r#"{"spec": {"size": 2}}"#]);

    world.upgrade(&[]);
    world.until("the operators apply the change from the time without operators", |world| {
        world.get(&["deployment", "memcached-sample"])["status"]["readyReplicas"] == 2
    });
    all_ready(&world);
    assert_eq!(uids(&world), objects, "the new release replaced objects");
}

fn upgrade_from_earlier_release(world: &World) {
    assert!(fields_of_memcached(world)["metrics"].is_null());
    let trusted = trust(world);
    world.upgrade(&[]);
    assert!(fields_of_memcached(world)["metrics"].is_object(), "the upgrade did not change the definition");
    assert_eq!(trust(world), trusted, "the upgrade changed what the operators wrote into the chart's objects");
    all_ready(world);
}

fn disable_and_enable_operator(world: &World) {
    let objects = uids(world);
    world.upgrade(&["--set", "operators.crontab.enabled=false"]);
    let everything =
        world.kubectl(&["get", "clusterrole,clusterrolebinding,validatingwebhookconfiguration", "--output=name"]);
    assert!(!["operators-crontab", "crontab-operator"].iter().any(|name| everything.contains(name)), "{everything}");
    let webhooks = world.get(&["validatingwebhookconfiguration", MANAGER]);
    assert!(!webhooks["webhooks"].to_string().contains("crontab"), "{webhooks}");
    assert_eq!(uids(world), objects, "disabling their operator changed the objects");

    world.kubectl(&["patch", CRONTAB, "--type=merge", "--patch", r#"{"spec": {"suspend": true}}"#]);
    let generation = |world: &World| {
        let object = world.get(&[CRONTAB]);
        (object["metadata"]["generation"].clone(), object["status"]["observedGeneration"].clone())
    };
    let (wanted, seen) = generation(world);
    assert_ne!(wanted, seen, "no operator reconciles it");
    world.upgrade(&[]);
    world.until("its operator reconciles it again", |world| generation(world) == (wanted.clone(), wanted.clone()));
    world.kubectl(&["patch", CRONTAB, "--type=merge", "--patch", r#"{"spec": {"suspend": false}}"#]);
    all_ready(world);
}

fn disable_and_enable_webhooks(world: &World) {
    world.upgrade(&["--set", "webhooks.enabled=false"]);
    assert!(world.get(&["validatingwebhookconfiguration", MANAGER]).is_null());
    let definition = || world.get(&["crd", "memcacheds.memcached.cache.example.com"])["spec"].clone();
    let served = || definition()["versions"].as_array().unwrap().iter().filter(|it| it["served"] == true).count();
    assert_eq!((&definition()["conversion"]["strategy"], served()), (&json!("None"), 1));
    all_ready(world);
    world.upgrade(&[]);
    trust(world);
    assert_eq!(served(), 2);
    world.kubectl(&["get", "memcacheds.v1alpha1.memcached.cache.example.com", "memcached-sample"]);
}

fn scale_manually(world: &World, version: Version) {
    let scale = || {
        let number = ["scale", "deployment", MANAGER, "--replicas=2", "--namespace", MANAGER_NAMESPACE];
        world.kubectl(&number);
    };
    let replicas = || world.get(&["--namespace", MANAGER_NAMESPACE, "deployment", MANAGER])["spec"]["replicas"].clone();
    // With a number in the values, Helm 3 silently resets it. Helm 4 reports a conflict with the client that changed it.
    scale();
    let upgraded = world.try_upgrade(&chart::folder(), &[]);
    match version {
        Version::Three => assert_eq!((upgraded.is_ok(), replicas()), (true, json!(1)), "{upgraded:?}"),
        Version::Four => {
            assert!(upgraded.unwrap_err().contains(".spec.replicas"));
            assert_eq!(replicas(), 2);
        }
    }
    // With null, no upgrade changes the number.
    world.upgrade(&["--set", "replicas=null"]);
    scale();
    world.upgrade(&["--set", "replicas=null", "--set", "telemetry.logLevel=debug"]);
    assert_eq!(replicas(), 2);
    // The values set the number again.
    world.upgrade(match version {
        Version::Three => &[],
        Version::Four => &["--force-conflicts"],
    });
    assert_eq!(replicas(), 1);
}

pub(crate) fn all_ready(world: &World) {
    for object in OBJECTS.iter() {
        world.ready(object);
    }
}

/// The uids of the users' objects and of their children.
pub(crate) fn uids(world: &World) -> Vec<Value> {
    let children = [
        "deployment/memcached-sample",
        "service/memcached-sample",
        "deployment/helloapp-sample",
        "deployment/example-foo",
    ];
    let objects: Vec<&str> = OBJECTS.iter().map(String::as_str).collect();
    let found = [&["get", "--output=json"], objects.as_slice(), &children].concat();
    let list: Value = serde_json::from_str(&world.kubectl(&found)).unwrap();
    list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|object| json!([object["metadata"]["name"], object["metadata"]["uid"]]))
        .collect()
}

fn fields_of_memcached(world: &World) -> Value {
    let crd = world.get(&["crd", "memcacheds.memcached.cache.example.com"]);
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"].clone()
}

/// The CA bundles of all webhooks and of the conversion.
fn trust(world: &World) -> Vec<Value> {
    let webhooks = world.get(&["validatingwebhookconfiguration", MANAGER])["webhooks"].clone();
    let crd = world.get(&["crd", "memcacheds.memcached.cache.example.com"]);
    let configs = webhooks.as_array().unwrap().iter().map(|webhook| webhook["clientConfig"]["caBundle"].clone());
    let trusted: Vec<_> =
        configs.chain([crd["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"].clone()]).collect();
    assert!(trusted.iter().all(Value::is_string), "{trusted:?}");
    trusted
}
