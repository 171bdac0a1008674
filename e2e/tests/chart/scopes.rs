//! Tests of the scope of a release: limited to some namespaces, and with each operator in a Deployment of its own.

use chart::helm::Version;
use controller_manager::OPERATORS;
use installation::{MANAGER, MANAGER_NAMESPACE};
use serde_json::{Value, json};

use crate::kit::World;

fn sample(name: &str) -> &'static str {
    OPERATORS.iter().find(|operator| operator.name() == name).unwrap().sample()
}

/// Whether the operators have a permission, according to `kubectl auth can-i`.
fn may(world: &World, what: &[&str]) -> bool {
    let user = format!("--as=system:serviceaccount:{MANAGER_NAMESPACE}:{MANAGER}");
    let asked = world.cluster.kubectl([&["auth", "can-i", &user], what].concat()).output().unwrap();
    asked.status.success()
}

#[test]
fn namespaced_release_has_no_access_to_other_namespaces() {
    let Some(world) = World::new(Version::Four) else { return };
    world.kubectl(&["create", "namespace", "other"]);
    world.upgrade(&["--set", "watchNamespaces={default}"]);
    let elsewhere = sample("memcached").replacen("metadata:\n", "metadata:\n  namespace: other\n", 1);
    world.apply(&elsewhere);
    world.apply(sample("memcached"));
    world.ready("memcached/memcached-sample");
    let untouched = world.get(&["--namespace", "other", "memcached", "memcached-sample"]);
    assert_eq!((&untouched["metadata"]["namespace"], &untouched["status"]), (&json!("other"), &Value::Null));
    assert!(world.get(&["--namespace", "other", "deployments,services"]).is_null());

    for (what, here) in [
        (["list", "deployments.apps"], true),
        (["watch", "memcacheds.memcached.cache.example.com"], true),
        (["create", "events.events.k8s.io"], true),
        (["get", "secrets"], true),
        (["list", "secrets"], false),
    ] {
        assert_eq!(may(&world, &[&what[..], &["--namespace=default"]].concat()), here, "{what:?}");
        for scope in ["--namespace=other", "--all-namespaces"] {
            assert!(!may(&world, &[&what[..], &[scope]].concat()), "{what:?} {scope}");
        }
    }
    let mut resources = cluster_wide_resources(&world);
    resources.sort();
    resources.dedup();
    assert_eq!(resources, ["customresourcedefinitions", "validatingwebhookconfigurations"]);
    world.tested();
}

#[test]
fn namespace_joins_a_release_when_it_gets_the_labels() {
    let Some(world) = World::new(Version::Four) else { return };
    world.upgrade(&["--set", "watchNamespaceLabels.team=x"]);
    world.apply(sample("memcached"));
    world.tested(); // in a namespace that has the label
    let selector = "--selector=app.kubernetes.io/component=controller-manager";
    let logs = ["logs", "--namespace", MANAGER_NAMESPACE, selector, "--all-containers", "--tail=-1"];
    world.until("the log says which permissions this needs", |world| {
        world.try_kubectl(&logs).is_ok_and(|log| log.contains("because RBAC knows no labels"))
    });
    let untouched = world.get(&["memcached", "memcached-sample"]);
    assert_eq!(untouched["status"], Value::Null, "the namespace lacks the label");
    world.kubectl(&["label", "namespace", "default", "team=x"]);
    world.ready("memcached/memcached-sample");

    world.kubectl(&["label", "namespace", "default", "team-"]);
    world.tested(); // the operators go on with the other namespaces
    world.kubectl(&["scale", "memcached/memcached-sample", "--replicas=2"]);
    world.tested();
    let left = world.get(&["memcached", "memcached-sample"]);
    let generations = [&left["metadata"]["generation"], &left["status"]["observedGeneration"]];
    assert_ne!(generations[0], generations[1], "the namespace has left");
}

/// The resources in all `ClusterRole`s that the chart binds to the operators for the whole cluster.
fn cluster_wide_resources(world: &World) -> Vec<String> {
    let bindings = world.get(&["clusterrolebindings"]);
    let is_ours = |binding: &&Value| {
        let subjects = binding["subjects"].as_array();
        subjects.into_iter().flatten().any(|it| it["name"] == MANAGER && it["namespace"] == MANAGER_NAMESPACE)
    };
    let roles = bindings["items"].as_array().unwrap().iter().filter(is_ours).map(|it| it["roleRef"]["name"].as_str());
    let granted = roles.flat_map(|role| {
        let role = world.get(&["clusterrole", role.unwrap()]);
        role["rules"].as_array().unwrap().clone()
    });
    let resources = granted.flat_map(|rule| rule["resources"].as_array().unwrap().clone());
    resources.map(|it| it.as_str().unwrap().to_owned()).collect()
}

#[test]
fn separate_topology_works_like_combined() {
    let Some(world) = World::new(Version::Four) else { return };
    let separate = ["--set", "topology=separate"];
    world.upgrade(&separate);
    let objects: Vec<String> = OPERATORS
        .iter()
        .map(|operator| {
            world.apply(operator.sample());
            let sample: Value = serde_saphyr::from_str(operator.sample()).unwrap();
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            format!("{}/{}", text(&sample["kind"]).to_lowercase(), text(&sample["metadata"]["name"]))
        })
        .collect();
    let all_ready = || objects.iter().for_each(|object| world.ready(object));
    all_ready();
    for operator in OPERATORS {
        let name = format!("operators-{}", operator.name());
        let lease = world.get(&["--namespace", MANAGER_NAMESPACE, "lease", &name]);
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap();
        assert!(holder.starts_with(&format!("{name}-")), "{holder} leads {name}");
    }
    world.tested();

    let pods = || -> Vec<String> {
        let managers = "--selector=app.kubernetes.io/component notin (booking-server, smoke-test)";
        let names = world.kubectl(&["get", "pods", "--namespace", MANAGER_NAMESPACE, managers, "--output=name"]);
        names.lines().map(str::to_owned).collect()
    };
    let before = pods();
    assert_eq!(before.len(), OPERATORS.len());
    world.upgrade(&[&separate[..], &["--set", "operators.memcached.enabled=false"]].concat());
    world.until("the pod of the disabled operator is gone", |_| pods().len() == before.len() - 1);
    assert!(pods().iter().all(|pod| before.contains(pod)), "pods of other operators were replaced");

    world.upgrade(&[]);
    all_ready();
    world.until("a single pod runs all operators", |_| pods().len() == 1);
}
