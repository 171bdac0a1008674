//! Tests of a release on clusters with other rules: users that the cluster chooses, the network of the nodes, two families of
//! addresses, and a mirror in place of the internet.

use std::net::{IpAddr, SocketAddr};

use cluster::IpFamily;
use controller_manager::OPERATORS;
use installation::{
    MANAGER, MANAGER_NAMESPACE, Mirror,
    metrics::{let_read, scrape_at, token},
    status_at,
};
use serde_json::{Value, json};

use crate::kit::{World, processes};

/// A user as a cluster may choose it, from the range of a namespace.
const USER: u32 = 1_000_650_000;

/// Does what the default of such clusters does: pods that name no user get one from the cluster.
fn choose_users(world: &World) {
    let policy = json!({
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": {"resourceRules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]},
        ]},
        "matchConditions": [{
            "name": "names-no-user",
            "expression": "!has(object.spec.securityContext) || !has(object.spec.securityContext.runAsUser)",
        }],
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": format!(
            "Object{{spec: Object.spec{{securityContext: Object.spec.securityContext{{runAsUser: {USER}, fsGroup: {USER}}}}}}}"
        )}}],
    });
    let object = |kind: &str, spec: &Value| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "users"}, "spec": spec,
        })
    };
    let binding = json!({"policyName": "users"});
    let both = [object("MutatingAdmissionPolicy", &policy), object("MutatingAdmissionPolicyBinding", &binding)];
    world.apply(&json!({"apiVersion": "v1", "kind": "List", "items": both}).to_string());
    let probe = ["run", "probe", "--image=none", "--dry-run=server", "--output=json"];
    world.until("the API server follows the policy", |world| {
        let Ok(pod) = world.try_kubectl(&probe) else { return false };
        serde_json::from_str::<Value>(&pod).unwrap()["spec"]["securityContext"]["runAsUser"] == USER
    });
}

#[test]
fn every_container_runs_as_the_user_that_the_cluster_chooses() {
    let Some(world) = World::drawn(3, installation::own_cluster) else { return };
    choose_users(&world);
    // The web server of Foo writes into folders of root.
    world.upgrade(&["--set", "fixedUserIds=false", "--set", "operators.foo.enabled=false"]);
    let sample = |name: &str| OPERATORS.iter().find(|operator| operator.name() == name).unwrap().sample();
    let mut memcached: Value = serde_saphyr::from_str(sample("memcached")).unwrap();
    memcached["spec"]["metrics"] = json!({"enabled": true});
    world.apply(&memcached.to_string());
    world.apply(sample("helloapp"));
    world.ready("memcached/memcached-sample");
    world.ready("helloapp/helloapp-sample");

    let mut found = Vec::new();
    for namespace in [MANAGER_NAMESPACE, "default"] {
        let pods = world.get(&["pods", "--namespace", namespace, "--field-selector=status.phase=Running"]);
        for pod in pods["items"].as_array().unwrap() {
            found.extend(processes(pod).into_iter().map(|it| (it.program, it.command, it.user)));
        }
    }
    let chosen = USER.to_string();
    let others: Vec<_> = found.iter().filter(|(_, _, user)| *user != chosen).collect();
    assert!(others.is_empty(), "these have another user: {others:?}");
    for program in ["controller-mana", "metrics-proxy", "memcached"] {
        assert!(found.iter().any(|(name, ..)| name == program), "no {program}: {found:?}");
    }
    // Its program has other names in other images.
    assert!(found.iter().any(|(_, command, _)| command.contains("exporter")), "no exporter: {found:?}");
    world.tested();
}

/// Makes a `ConfigMap` with an authority, and returns the values of operators that trust it. They do not start if the file with the
/// authorities is missing, because the address of the collector of traces begins with `https`. No collector answers there.
fn trusted_authority(world: &World) -> &'static str {
    let authority = rcgen::generate_simple_self_signed(["collector.example.com".to_owned()]).unwrap().cert.pem();
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "authorities", "namespace": MANAGER_NAMESPACE},
        "data": {"root.pem": authority},
    });
    world.apply(&map.to_string());
    "caBundle.configMapName=authorities,caBundle.key=root.pem,telemetry.otlpEndpoint=https://127.0.0.1:1"
}

/// Also the test of `caBundle`, which needs a pod, but no cluster of its own.
#[test]
fn release_works_in_the_network_of_the_nodes() {
    let Some(world) = World::drawn(4, installation::fresh_cluster) else { return };
    // The restricted standard forbids such pods.
    let privileged = "pod-security.kubernetes.io/enforce=privileged";
    world.kubectl(&["label", "--overwrite", "namespace", MANAGER_NAMESPACE, privileged]);
    let trusted = trusted_authority(&world);
    let on_nodes = ["--set", "webhooks.hostNetwork=true,metrics.proxy.kind=builtin", "--set", trusted];
    world.upgrade(&on_nodes);
    world.tested();
    // The replacement needs the same ports of the same node.
    world.upgrade(&[&on_nodes[..], &["--set", "podAnnotations.another=pod"]].concat());
    world.until("only the new pod is left", |world| world.pods().len() == 1);
    let pod = &world.pods()[0];
    assert_eq!(pod["metadata"]["annotations"]["another"], "pod");
    assert_eq!(pod["status"]["podIP"], pod["status"]["hostIP"]);
    let flags = pod["spec"]["containers"][0]["args"].as_array().unwrap();
    assert!(flags.iter().any(|flag| flag == "--otlp-endpoint=https://127.0.0.1:1"), "nothing reads the authorities");
    world.tested();
}

#[test]
fn dual_stack_services_answer_at_both_addresses() {
    let Some(world) = World::drawn(5, || installation::cluster_with(IpFamily::Dual)) else { return };
    world.upgrade(&["--set", "service.ipFamilyPolicy=RequireDualStack"]);
    let reader = token(&world.cluster, "reader").unwrap();
    let_read(&world.cluster, "reader").unwrap();
    let addresses = |service: &Value| -> Vec<IpAddr> {
        let all = service["spec"]["clusterIPs"].as_array().unwrap();
        all.iter().map(|it| it.as_str().unwrap().parse().unwrap()).collect()
    };
    let services = world.get(&["services", "--namespace", MANAGER_NAMESPACE]);
    let services = services["items"].as_array().unwrap();
    assert_eq!(services.len(), 3, "of the webhooks, the metrics and the booking server");
    for service in services {
        let families: Vec<bool> = addresses(service).iter().map(IpAddr::is_ipv4).collect();
        assert_eq!(families, [true, false], "{}", service["metadata"]["name"]);
    }
    let name = format!("{MANAGER}-metrics");
    let metrics = services.iter().find(|it| it["metadata"]["name"] == name.as_str()).unwrap();
    for address in addresses(metrics) {
        let answer = scrape_at(&world.cluster, address, Some(&reader)).unwrap();
        let text = answer.unwrap_or_else(|code| panic!("{address}: {code}"));
        assert!(text.contains("\nworkqueue_depth{"), "{address}: {text}");
    }
    // The first has no such path, and the second wants a token: both have read the request.
    let asked =
        [(format!("{MANAGER}-webhooks"), "/", 404), ("operators-booking-server".to_owned(), "/v1/bookings", 401)];
    for (name, path, expected) in asked {
        let service = services.iter().find(|it| it["metadata"]["name"] == name.as_str()).unwrap();
        for address in addresses(service) {
            world.until(&format!("{name} answers {expected} at {address}"), |world| {
                status_at(&world.cluster, SocketAddr::new(address, 443), path).is_ok_and(|status| status == expected)
            });
        }
    }
    world.tested();
}

const MIRROR: &str = "mirror.example.com/hub";

#[test]
fn release_and_its_operands_need_no_registry_but_a_mirror() {
    let Some(world) = World::drawn(7, installation::own_cluster) else { return };
    let mirror = Mirror::start(&world.cluster, MIRROR).unwrap();
    for image in world.images_of_chart() {
        assert!(mirror.add(&image).unwrap(), "{image}");
    }
    world.upgrade(&["--set", &format!("imageRegistry={MIRROR}")]);

    // This machine has the image, but not in the mirror.
    world.kubectl(&["run", "elsewhere", "--image=docker.io/library/busybox:1.36"]);
    let reason = "--output=jsonpath={.status.containerStatuses[0].state.waiting.reason}";
    world.until("the node finds nothing outside of the mirror", |world| {
        let reason = world.kubectl(&["get", "pod", "elsewhere", reason]);
        ["ErrImagePull", "ImagePullBackOff"].contains(&reason.as_str())
    });
    world.kubectl(&["delete", "pod", "elsewhere", "--now"]);

    let manager = format!("deployment/{MANAGER}");
    let images = ["exec", "--namespace", MANAGER_NAMESPACE, &manager, "--", "/controller-manager", "images"];
    for image in world.kubectl(&images).lines() {
        mirror.add(image).unwrap(); // the image of CronTab's sample exists nowhere
    }
    world.tested();
    world.apply(OPERATORS.iter().find(|operator| operator.name() == "memcached").unwrap().sample());
    let exported = r#"{"spec": {"metrics": {"enabled": true}}}"#;
    world.kubectl(&["patch", "memcached/memcached-sample", "--type=merge", "--patch", exported]);
    world.ready("memcached/memcached-sample");

    let pods = world.get(&["pods", "--all-namespaces"]);
    let containers = pods["items"].as_array().unwrap().iter().map(|pod| pod["spec"]["containers"].as_array().unwrap());
    let images: Vec<&str> = containers.flatten().map(|container| container["image"].as_str().unwrap()).collect();
    let others: Vec<_> = images.iter().filter(|image| !image.starts_with(MIRROR)).collect();
    assert!(others.is_empty(), "these come from elsewhere: {others:?}");
    for name in ["controller-manager", "memcached:", "memcached-exporter"] {
        assert!(images.iter().any(|image| image.contains(name)), "no {name}: {images:?}");
    }
}
