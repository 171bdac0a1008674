//! Tests of procedures that the chart documents: two releases in one cluster, another topology, and a failed `helm test`.

use std::time::{Duration, Instant};

use cluster::audit::Write;
use controller_manager::OPERATORS;
use installation::{
    MANAGER, MANAGER_NAMESPACE,
    metrics::{scrape_at, token},
};
use serde_json::{Value, json};

use crate::kit::World;

const DEFINITION: &str = "memcacheds.memcached.cache.example.com";

/// A release: its name and its namespace.
type Release = (&'static str, &'static str);
const A: Release = ("a", "one");
const B: Release = ("b", "two");

/// The operator of Memcached alone. It has webhooks, a conversion and children.
fn only_memcached() -> String {
    let others = OPERATORS.iter().map(|operator| operator.name()).filter(|name| *name != "memcached");
    others.map(|name| format!("operators.{name}.enabled=false")).collect::<Vec<_>>().join(",")
}

/// The versions of the cluster-scoped objects of a release.
fn versions(world: &World, (name, _): Release) -> Vec<Value> {
    let kinds = "customresourcedefinitions,clusterroles,clusterrolebindings,validatingwebhookconfigurations";
    let list = world.get(&[kinds, &format!("--selector=app.kubernetes.io/instance={name}")]);
    let items = list["items"].as_array().unwrap();
    assert!(!items.is_empty(), "{name} has no objects");
    items.iter().map(|it| json!([it["kind"], it["metadata"]["name"], it["metadata"]["resourceVersion"]])).collect()
}

/// Creates an object of so many nodes, and waits until it is ready.
fn make_cache(world: &World, namespace: &str, size: u32) {
    let object = json!({
        "apiVersion": "memcached.cache.example.com/v1", "kind": "Memcached",
        "metadata": {"name": "cache", "namespace": namespace}, "spec": {"size": size},
    });
    world.apply(&object.to_string());
    world.kubectl(&["wait", "--namespace", namespace, "--for=condition=Ready", "memcached/cache", "--timeout=2m"]);
}

/// The user of this `ServiceAccount`.
fn user(namespace: &str, account: &str) -> String {
    format!("system:serviceaccount:{namespace}:{account}")
}

/// The user of the release's operators.
fn operators_of((name, namespace): Release) -> String {
    user(namespace, &format!("{name}-operators-controller-manager"))
}

/// The release writes only in its own namespaces, and of what is cluster-scoped only its own objects and these.
fn writes_only_its_own(all: &[Write], (name, namespace): Release, watched: &str, also: &[&str]) {
    let (prefix, user) = (format!("{name}-operators-"), operators_of((name, namespace)));
    let ours: Vec<_> = all.iter().filter(|it| it.user == user).collect();
    assert!(ours.iter().any(|it| it.namespace == watched && it.resource == "deployments"), "{name}: {ours:?}");
    for it in ours {
        let is_own = match it.namespace.as_str() {
            "" => it.name.starts_with(&prefix) || also.contains(&it.name.as_str()),
            within => within == namespace || within == watched,
        };
        assert!(is_own, "{name} writes what belongs to others: {it:?}");
    }
}

#[test]
fn two_releases_leave_each_others_objects_alone() {
    let Some(world) = World::drawn(0, installation::own_cluster) else { return };
    for namespace in [A.1, B.1, "team-a", "team-b"] {
        world.kubectl(&["create", "namespace", namespace]);
    }
    let only = only_memcached();
    let of_a = ["--set", only.as_str(), "--set", "watchNamespaces={team-a}"];
    let of_b = ["--set", only.as_str(), "--set", "watchNamespaces={team-b}"];
    let without_definitions = [&of_b[..], &["--set", "crds.enabled=false"]].concat();
    world.release(A, &of_a);
    world.release(B, &without_definitions);

    for namespace in ["team-a", "team-b"] {
        make_cache(&world, namespace, 1);
        let flawed = r#"{"spec": {"config": {"extraArgs": ["-p 1"]}}}"#;
        let patch = ["patch", "memcached/cache", "--namespace", namespace, "--type=merge", "--patch", flawed];
        let refusal = world.try_kubectl(&patch).unwrap_err();
        assert!(refusal.contains("is set by the operator"), "{namespace}: {refusal}");
    }
    let of_the_first = versions(&world, A);
    world.release(B, &[&without_definitions[..], &["--set", "podAnnotations.another=pod"]].concat());
    assert_eq!(versions(&world, A), of_the_first, "an upgrade of the second release changed the first");
    let all = world.writes();
    writes_only_its_own(&all, A, "team-a", &[DEFINITION]);
    writes_only_its_own(&all, B, "team-b", &[]); // not the definition, which names the Service of the first

    // The release that has the definitions goes. Its own objects stay, and the other release works on.
    let of_the_second = versions(&world, B);
    let uid = |kind: &str| world.get(&["--namespace", "team-a", kind, "cache"])["metadata"]["uid"].clone();
    let uids = || [uid("memcached"), uid("deployment")];
    let before = uids();
    world.uninstall(A);
    let scale = ["scale", "memcached/cache", "--namespace", "team-b"];
    world.kubectl(&[&scale[..], &["--replicas=2"]].concat());
    let ready =
        |world: &World| world.get(&["--namespace", "team-b", "deployment", "cache"])["status"]["readyReplicas"].clone();
    world.until("the second release carries out a change", |world| ready(world) == 2);
    assert_eq!(versions(&world, B), of_the_second, "the end of the first release changed the second");
    assert_eq!(uids(), before, "the end of a release changed its users' objects");
    assert!(before.iter().all(Value::is_string), "{before:?}");

    // It takes over the definitions, and then also converts.
    world.release(B, &[&of_b[..], &["--take-ownership"]].concat());
    let old = format!("memcacheds.v1alpha1.{}", DEFINITION.split_once('.').unwrap().1);
    let read = ["get", old.as_str(), "cache", "--namespace", "team-b"];
    world.until("the second release converts", |world| world.try_kubectl(&read).is_ok());
    assert_eq!(world.get(&["crd", DEFINITION])["metadata"]["annotations"]["meta.helm.sh/release-name"], B.0);
}

/// How many reconciles the operators of the release have ended, by their metrics.
fn reconciles(world: &World, (name, namespace): Release, token: &str) -> f64 {
    let service = format!("{name}-operators-controller-manager-metrics");
    let service = world.get(&["service", &service, "--namespace", namespace]);
    let address = service["spec"]["clusterIP"].as_str().unwrap().parse().unwrap();
    // The proxy may not answer at once.
    let Ok(Ok(page)) = scrape_at(&world.cluster, address, Some(token)) else { return 0.0 };
    let counted = page.lines().filter(|line| line.starts_with("controller_runtime_reconcile_total{"));
    counted.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// The Deployment of the object in `team-a`.
fn child(world: &World) -> Value {
    world.get(&["--namespace", "team-a", "deployment", "cache"])
}

/// The number of changes of that Deployment's `spec`.
fn generation(world: &World) -> i64 {
    child(world)["metadata"]["generation"].as_i64().unwrap()
}

#[test]
fn overlapping_release_with_equal_settings_writes_nothing_until_a_user_does() {
    let Some(world) = World::drawn(6, installation::own_cluster) else { return };
    for namespace in [A.1, B.1, "team-a"] {
        world.kubectl(&["create", "namespace", namespace]);
    }
    let only = only_memcached();
    world.release(A, &["--set", &only, "--set", "watchNamespaces={team-a}"]);
    make_cache(&world, "team-a", 1);
    let before = generation(&world);

    // The permissions of the one are for the whole cluster and those of the other for a namespace, so no binding has the same name, and
    // this mistake is possible.
    world.release(B, &["--set", &only, "--set", "crds.enabled=false"]);
    let reader = token(&world.cluster, "reader").unwrap();
    let role = ["create", "clusterrolebinding", "reader", "--clusterrole=b-operators-metrics-reader"];
    world.kubectl(&[&role[..], &["--serviceaccount=default:reader"]].concat());
    world.until("the second release has reconciled the object", |world| reconciles(world, B, &reader) > 0.0);
    let second = operators_of(B);
    let written: Vec<_> = world.writes().into_iter().filter(|it| it.user == second).collect();
    assert!(written.iter().any(|it| it.resource == "leases"), "the log has its writes");
    let within: Vec<_> = written.iter().filter(|it| it.namespace == "team-a").collect();
    assert!(within.is_empty(), "{within:?}");

    // Both carry out what a user wants, and the child changes once.
    world.kubectl(&["scale", "memcached/cache", "--namespace", "team-a", "--replicas=2"]);
    world.until("the child is ready", |world| child(world)["status"]["readyReplicas"] == 2);
    world.uninstall(B);
    assert_eq!(generation(&world), before + 1);
    world.kubectl(&["scale", "memcached/cache", "--namespace", "team-a", "--replicas=1"]);
    world.until("the first release works on", |world| child(world)["spec"]["replicas"] == 1);
}

/// How many writes of the primary, which are those of its status, both releases together may send while the child changes twice. Each
/// of them may report the begin of a change, its end, and what the other one has reported.
const MOST_WRITES_OF_PRIMARY: usize = 12;

/// The same mistake with settings that disagree. No write carries out both, so each release restores its own value ever more slowly.
#[test]
fn overlapping_release_with_other_settings_restores_its_own_at_most_once_a_minute_and_the_status_says_why() {
    let Some(world) = World::drawn(9, installation::own_cluster) else { return };
    for namespace in [A.1, B.1, "team-a"] {
        world.kubectl(&["create", "namespace", namespace]);
    }
    let only = only_memcached();
    world.release(A, &["--set", &only, "--set", "watchNamespaces={team-a}"]);
    make_cache(&world, "team-a", 0); // without pods, no node has to pull the image that the other release wants
    let before = generation(&world);
    let other = "operators.memcached.image=memcached.example.com/another:1";
    world.release(B, &["--set", &only, "--set", "crds.enabled=false", "--set", other]);
    world.until("both have restored their own value", |world| generation(world) >= before + 4);

    // The waits of a release are 1, 2, 4 … 60 s. After 20 s without a change, it waits for at least 32 s, and then for 60 s.
    let (mut known, mut since) = (generation(&world), Instant::now());
    world.until("both wait for half a minute", |world| {
        let now = generation(world);
        if now != known {
            (known, since) = (now, Instant::now());
        }
        since.elapsed() >= Duration::from_secs(20)
    });
    let before = world.writes().len();
    std::thread::sleep(Duration::from_secs(40));
    let changes = generation(&world) - known;
    assert!(changes <= 2, "in a minute, the two releases have changed the child {changes} times");
    let since = world.writes().split_off(before);
    let users = [A, B].map(operators_of);
    let is_of_primary = |it: &&Write| users.contains(&it.user) && it.resource == "memcacheds";
    let of_primary = since.iter().filter(is_of_primary).count();
    assert!(of_primary <= MOST_WRITES_OF_PRIMARY, "they fight over the status: {of_primary} writes");

    world.until("the status names the contest", |world| {
        let object = world.get(&["--namespace", "team-a", "memcached", "cache"]);
        object["status"]["conditions"].as_array().unwrap().iter().any(|it| {
            let message = it["message"].as_str().unwrap_or_default();
            it["type"] == "Stalled"
                && it["status"] == "True"
                && it["reason"] == "FieldsContested"
                && message.contains("another process of this operator")
        })
    });
    let all = world.writes();
    for release in [A, B] {
        let user = operators_of(release);
        let is_restored = |it: &&Write| it.user == user && it.namespace == "team-a" && it.resource == "deployments";
        assert!(all.iter().filter(is_restored).count() >= 2, "{} has restored nothing", release.0);
    }
}

/// The commands of the page about installations, which change to this topology. They also fit the way back.
fn documented_change_to(topology: &str) -> String {
    let page = include_str!("../../../docs/book/src/how-to/install.md");
    let mark = "releases.rs documented_change_of_topology_never_has_two_leaders -->\n```sh\n";
    let block = page.split_once(mark).unwrap().1.split_once("```").unwrap().0;
    assert_eq!(block.matches("topology=separate").count(), 1, "{block}");
    block.replace("topology=separate", &format!("topology={topology}"))
}

#[test]
fn documented_change_of_topology_never_has_two_leaders() {
    let Some(world) = World::drawn(1, installation::own_cluster) else { return };
    world.upgrade(&[]);
    let memcached = OPERATORS.iter().find(|operator| operator.name() == "memcached").unwrap();
    world.apply(memcached.sample());
    world.ready("memcached/memcached-sample");

    let user = |name: &str| user(MANAGER_NAMESPACE, name);
    let combined = vec![user(MANAGER)];
    let separate: Vec<String> =
        OPERATORS.iter().map(|operator| user(&format!("operators-{}", operator.name()))).collect();
    for (topology, size, old, new) in [("separate", 1, &combined, &separate), ("combined", 2, &separate, &combined)] {
        let before = world.writes().len();
        world.script(&documented_change_to(topology));
        let size = format!("--replicas={size}");
        let scale = ["scale", "memcached/memcached-sample", size.as_str()];
        world.until("the API server accepts another size", |world| world.try_kubectl(&scale).is_ok());
        world.until("the new leader carries out a change", |world| {
            let object = world.get(&["memcached/memcached-sample"]);
            object["status"]["observedGeneration"] == object["metadata"]["generation"]
        });

        let since = world.writes().split_off(before);
        let of_old = since.iter().rposition(|it| old.contains(&it.user)).expect("the old leaders renew their leases");
        let of_new = since.iter().position(|it| new.contains(&it.user)).expect("the new leader has written");
        assert!(of_old < of_new, "{topology}: {:?} comes after {:?}", since[of_old], since[of_new]);
    }
}

#[test]
fn failed_helm_test_says_what_to_do_and_passes_after_the_repair() {
    let Some(world) = World::drawn(2, installation::fresh_cluster) else { return };
    let only = only_memcached();
    world.upgrade(&["--set", &only]);
    world.upgrade(&["--set", &only, "--set", "replicas=0"]);
    world.until("no webhook answers", |world| world.pods().is_empty());
    let error = world.try_helm(&["test", "operators", "--timeout=2m"]).unwrap_err();
    for part in
        ["operators-smoke-test", "memcached failed: ", "failed calling webhook", "check that the operator's pods"]
    {
        assert!(error.contains(part), "no {part}: {error}");
    }
    // The pod stays, so that a user can read its log. Rights and the namespace do not wait for the next test.
    world
        .until("only the failed pod is left of the test", |world| world.left_of_test() == ["pod/operators-smoke-test"]);
    world.upgrade(&["--set", &only]);
    world.tested();
}
