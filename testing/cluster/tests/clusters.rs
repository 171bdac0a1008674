//! Tests of the start and the end of real clusters, and of their handles. Most tests start their own cluster.
#![expect(clippy::unwrap_used, reason = "in a test, that is the message")]

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use cluster::{Access, Cluster, IpFamily, Nodes, Options, PartState, Unsupported, or_skip, progress};

#[test]
fn two_clusters_start_at_once_and_collect_garbage() {
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let Some(cluster) = or_skip(Cluster::fresh(Nodes::None)) else { return };
                apply(&cluster, r#"{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "one"}}"#);
                kubectl(&cluster, "-n one create configmap owner");
                let uid = kubectl(&cluster, "-n one get configmap owner -o jsonpath={.metadata.uid}");
                let owner = format!(r#"{{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "{uid}"}}"#);
                let metadata = format!(r#"{{"name": "owned", "namespace": "one", "ownerReferences": [{owner}]}}"#);
                apply(&cluster, &format!(r#"{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {metadata}}}"#));
                kubectl(&cluster, "-n one delete configmap owner");
                eventually("the owned object goes", || !succeeds(&cluster, "-n one get configmap owned"));
                kubectl(&cluster, "delete namespace one --wait --timeout=30s");
            });
        }
    });
}

#[test]
fn second_up_joins_cluster_and_down_removes_all() {
    let options = Options::new(name("twice"), Nodes::None);
    let Some(first) = or_skip(Cluster::up(&options, &progress::quiet)) else { return };
    let second = Cluster::up(&options, &progress::quiet).unwrap();
    assert_eq!(first.server(), second.server());
    let other = Options { nodes: Nodes::Simulated, ..options.clone() };
    assert!(Cluster::up(&other, &progress::quiet).unwrap_err().to_string().contains("take it down first"));

    let folder = first.state_dir().to_path_buf();
    assert!(cluster::down(&options.name).unwrap());
    assert_nothing_left(&folder);
    assert!(!cluster::down(&options.name).unwrap(), "the first `down` left something");
    assert!(Cluster::open(&options.name).is_err());
}

#[test]
fn existing_cluster_is_used_and_left_unchanged() {
    let Some(theirs) = or_skip(Cluster::fresh(Nodes::None)) else { return };
    let existing = Cluster::existing(Some(&theirs.kubeconfig())).unwrap();
    assert_eq!((existing.server(), existing.version()), (theirs.server(), theirs.version()));
    assert_eq!(kubectl(&existing, "create configmap seen -o name"), "configmap/seen");
    for access in [Access::Network, Access::Machine, Access::Workers] {
        let refused = existing.require(access).unwrap_err();
        assert!(refused.is::<Unsupported>(), "{access:?}: {refused:#}");
    }
    assert!(existing.stop_part("etcd").unwrap_err().is::<Unsupported>());
    assert!(existing.kubeconfig_for("another-user", &[]).unwrap_err().is::<Unsupported>());

    let kept = existing.state_dir().to_path_buf();
    assert!(kept.join("kubeconfig").is_file());
    existing.forget().unwrap();
    assert_nothing_left(&kept);
    assert_eq!(kubectl(&theirs, "get configmap seen -o name"), "configmap/seen");
}

#[test]
fn killed_supervisor_ends_its_processes() {
    let options = Options::new(name("killed"), Nodes::None);
    let Some(cluster) = or_skip(Cluster::up(&options, &progress::quiet)) else { return };
    let folder = cluster.state_dir().to_path_buf();
    let pid = cluster::summary(&options.name).unwrap().pid.unwrap();
    kill(pid);
    eventually("all processes end", || members(&folder).is_empty());
    assert!(folder.is_dir(), "the logs stay until `down`");
    cluster::down(&options.name).unwrap();
    assert_nothing_left(&folder);
}

#[test]
fn an_idle_cluster_ends_itself() {
    let options = Options { idle: Some(Duration::from_secs(1)), ..Options::new(name("idle"), Nodes::None) };
    let Some(cluster) = or_skip(Cluster::up(&options, &progress::quiet)) else { return };
    let folder = cluster.state_dir().to_path_buf();
    thread::sleep(Duration::from_secs(2));
    assert!(cluster.status().is_ok(), "a handle is a user");
    drop(cluster);
    eventually("it ends", || !folder.exists() && members(&folder).is_empty());
}

#[test]
fn parts_can_be_stopped_paused_and_restarted() {
    let Some(cluster) = or_skip(Cluster::fresh(Nodes::None)) else { return };
    let state = |name: &str| cluster.status().unwrap().parts.into_iter().find(|part| part.name == name).unwrap().state;

    cluster.stop_part("etcd").unwrap();
    assert_eq!(state("etcd"), PartState::Stopped);
    eventually("the API server is not ready without etcd", || cluster.wait_until_ready(Duration::ZERO).is_err());
    cluster.start_part("etcd").unwrap();
    cluster.wait_until_ready(Duration::from_secs(30)).unwrap();

    cluster.pause_part("kube-apiserver").unwrap();
    assert_eq!(state("kube-apiserver"), PartState::Paused);
    cluster.resume_part("kube-apiserver").unwrap();
    cluster.wait_until_ready(Duration::from_secs(30)).unwrap();

    assert!(cluster.stop_part("nonsense").unwrap_err().to_string().contains("kube-apiserver"));
}

#[test]
fn new_user_has_no_permissions_and_is_audited() {
    let Some(cluster) = or_skip(Cluster::shared(Nodes::None)) else { return };
    let group = name("testers");
    let kubeconfig = cluster.kubeconfig_for("system:serviceaccount:one:operator", &["builders", &group]).unwrap();
    let try_as_user = || {
        let mut command = cluster.kubectl(["get", "configmaps"]);
        command.env("KUBECONFIG", &kubeconfig).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
    };
    assert!(!try_as_user());
    kubectl(&cluster, &format!("create clusterrolebinding {group} --clusterrole=view --group={group}"));
    eventually("RBAC allows requests of the group", try_as_user);
    let log = fs::read_to_string(cluster.audit_log()).unwrap();
    assert!(log.lines().any(|line| line.contains(r#""username":"system:serviceaccount:one:operator""#)));
}

#[test]
fn simulated_pods_become_ready() {
    let Some(cluster) = or_skip(Cluster::fresh(Nodes::Simulated)) else { return };
    kubectl(&cluster, "create deployment web --image=nowhere.example/web --replicas=30");
    kubectl(&cluster, "rollout status deployment/web --timeout=60s");
    kubectl(&cluster, "create job once --image=nowhere.example/once");
    kubectl(&cluster, "wait --for=condition=complete job/once --timeout=30s");
}

#[test]
fn a_real_node_runs_restricted_pods_and_leaves_nothing() {
    let options = Options { idle: Some(Duration::from_secs(1)), ..Options::new(name("real"), Nodes::Real) };
    let mounts = || fs::read_to_string("/proc/self/mounts").unwrap();
    let before = mounts();
    let Some(cluster) = or_skip(Cluster::up(&options, &progress::to_stderr)) else { return };
    apply(&cluster, include_str!("restricted.yaml"));
    kubectl(&cluster, "-n restricted rollout status deployment/memcached --timeout=60s");
    assert!(!succeeds(&cluster, "-n restricted run refused --image=busybox"), "Pod Security is enforced");

    // The Service works from the node by address, and from a pod by name.
    let ip = kubectl(&cluster, "-n restricted get service memcached -o jsonpath={.spec.clusterIP}");
    let talk = format!("exec 3<>/dev/tcp/{ip}/11211; printf 'version\\r\\nquit\\r\\n' >&3; cat <&3");
    assert!(output(cluster.exec("bash").args(["-c", &talk])).starts_with("VERSION"));
    kubectl(&cluster, "run lookup --image=busybox --restart=Never -- nslookup memcached.restricted.svc.cluster.local");
    kubectl(&cluster, "wait --for=jsonpath={.status.phase}=Succeeded pod/lookup --timeout=30s");
    assert!(kubectl(&cluster, "logs lookup").contains(&ip));

    // The API server is reachable from outside, through the forwarder.
    let mut outside = Command::new(cluster.tools().binary("kubectl").unwrap());
    outside.args(["get", "nodes", "-o", "name"]).env("KUBECONFIG", cluster.kubeconfig());
    assert_eq!(output(outside.env("KUBECACHEDIR", cluster.state_dir().join("cache"))), "node/node1");

    // A thread in the cluster's network reaches Services, and nothing outside. The calling thread stays where it is.
    let network = || fs::read_link("/proc/thread-self/ns/net").unwrap();
    let reaches = |address: &str| TcpStream::connect(address).is_ok();
    let own = network();
    let service = format!("{ip}:11211");
    assert_eq!(cluster.in_network(|| Ok([reaches(&service), reaches("192.0.2.1:80")])).unwrap(), [true, false]);
    assert_ne!(cluster.in_network(|| Ok(network())).unwrap(), own);
    assert_eq!(network(), own);

    let folder = cluster.state_dir().to_path_buf();
    assert!(!cgroups(&options.name).is_empty());
    drop(cluster);
    eventually("the idle cluster stops itself", || !folder.exists() && members(&folder).is_empty());
    eventually("its cgroups go", || cgroups(&options.name).is_empty());
    assert_eq!(mounts(), before);
}

#[test]
fn a_real_node_pulls_from_an_added_registry_and_otherwise_from_the_store() {
    let Some(cluster) = or_skip(Cluster::fresh(Nodes::Real)) else { return };
    let folder = tempfile::tempdir().unwrap();
    let store = images::Store::open(folder.path()).unwrap();
    let mut files = images::Layer::new();
    files.file("/content", "no program", 0o644);
    let references = vec![images::Reference::parse("localhost/added/app:1").unwrap()];
    let spec = images::ImageSpec { references, files, ..images::ImageSpec::default() };
    store.put(&spec.build().unwrap()).unwrap();

    // What listens in the cluster's network stays there, whichever thread serves it.
    let listener = cluster.in_network(|| Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?)).unwrap();
    let address = listener.local_addr().unwrap();
    let root = folder.path().to_path_buf();
    thread::spawn(move || images::serve(listener, &root));

    let image = format!("{address}/localhost/added/app:1");
    let run = |pod: &str| succeeds(&cluster, &format!("run {pod} --restart=Never --image={image}"));
    let has = |pod: &str, reason: &str| {
        let selector = format!("involvedObject.name={pod},reason={reason}");
        !kubectl(&cluster, &format!("get events --output=name --field-selector={selector}")).is_empty()
    };
    eventually("the service account is there", || run("early"));
    eventually("the store has no such image", || has("early", "Failed"));
    cluster.pull_from(address).unwrap();
    assert!(run("late"));
    eventually("the registry has it", || has("late", "Pulled"));
}

#[test]
fn a_real_node_that_crashes_leaves_nothing_after_down() {
    let options = Options::new(name("crash"), Nodes::Real);
    let Some(cluster) = or_skip(Cluster::up(&options, &progress::to_stderr)) else { return };
    let folder = cluster.state_dir().to_path_buf();
    kill(cluster::summary(&options.name).unwrap().pid.unwrap());
    eventually("all processes end", || members(&folder).is_empty());
    assert!(cluster.status().is_err());
    cluster::down(&options.name).unwrap();
    assert_nothing_left(&folder);
    assert!(cgroups(&options.name).is_empty());
}

#[test]
fn two_real_nodes_share_a_network_and_one_can_freeze_fail_and_return() {
    let patience = Duration::from_secs(12);
    let real = Options::new(name("two"), Nodes::Real);
    let options = Options { workers: 2, node_patience: Some(patience), ..real };
    let Some(cluster) = or_skip(Cluster::up(&options, &progress::to_stderr)) else { return };
    cluster.require(Access::Workers).unwrap();
    let folder = cluster.state_dir().to_path_buf();
    run_on_both_nodes(&cluster);
    assert_pods_reach_each_other(&cluster);

    let on_second = pods(&cluster).into_iter().find(|pod| pod.node == "node2").unwrap();
    cluster.pause_part("node2").unwrap();
    assert_eq!(asked(&cluster, "probe-node1", &on_second.ip), "", "no process of a frozen node runs");
    assert!(cluster.stop_part("kubelet-node2").unwrap_err().to_string().contains("resume it first"));
    kubectl(&cluster, "wait --for=condition=Ready=unknown node/node2 --timeout=60s");
    cluster.resume_part("node2").unwrap();
    kubectl(&cluster, "wait --for=condition=Ready node/node2 --timeout=60s");
    assert!(asked(&cluster, "probe-node1", &on_second.ip).starts_with("VERSION"));

    // After a power failure, the node runs its pods again.
    let boot = || {
        kubectl(
            &cluster,
            "get pod -l app=memcached --field-selector spec.nodeName=node2 -o jsonpath={.items[0].status.containerStatuses[0].restartCount}",
        )
    };
    assert_eq!(boot(), "0");
    cluster.stop_part("node2").unwrap();
    cluster.start_part("node2").unwrap();
    eventually("the kubelet restarts the pod", || boot() == "1");
    kubectl(&cluster, "wait --for=condition=Ready pod -l app=memcached --timeout=60s");
    for pod in pods(&cluster) {
        assert!(asked(&cluster, "probe-node1", &pod.ip).starts_with("VERSION"), "{pod:?}");
    }

    // A crash leaves nothing, even while a node is frozen.
    cluster.pause_part("node2").unwrap();
    kill(cluster::summary(&options.name).unwrap().pid.unwrap());
    cluster::down(&options.name).unwrap();
    assert_nothing_left(&folder);
    assert!(cgroups(&options.name).is_empty());
}

#[test]
fn nodes_reach_each_other_over_ipv6_alone() {
    let ipv6 = |options: &mut Options| (options.workers, options.ip_family) = (2, IpFamily::Ipv6);
    let Some(cluster) = or_skip(Cluster::fresh_with(Nodes::Real, ipv6)) else { return };
    run_on_both_nodes(&cluster);
    assert_pods_reach_each_other(&cluster);
    for pod in pods(&cluster) {
        assert!(pod.ip.parse::<Ipv6Addr>().is_ok(), "{pod:?}");
    }
    let addresses =
        kubectl(&cluster, "get nodes,services,pods -o jsonpath={..podIPs}{..clusterIPs}{..status.addresses}");
    assert!(!addresses.contains("10."), "{addresses}");
}

#[test]
fn service_of_a_dual_cluster_has_an_address_of_each_family() {
    let dual = |options: &mut Options| (options.workers, options.ip_family) = (2, IpFamily::Dual);
    let Some(cluster) = or_skip(Cluster::fresh_with(Nodes::Real, dual)) else { return };
    run_on_both_nodes(&cluster);
    assert_pods_reach_each_other(&cluster);
    kubectl(&cluster, r#"patch service memcached --patch {"spec":{"ipFamilyPolicy":"RequireDualStack"}}"#);
    let addresses = kubectl(&cluster, "get service memcached -o jsonpath={.spec.clusterIPs[0]}/{.spec.clusterIPs[1]}");
    let (first, second) = addresses.split_once('/').unwrap();
    assert!(first.parse::<Ipv4Addr>().is_ok() && second.parse::<Ipv6Addr>().is_ok(), "{addresses}");
    for probe in ["probe-node1", "probe-node2"] {
        for address in [first, second] {
            eventually("the Service answers", || asked(&cluster, probe, address).starts_with("VERSION"));
        }
    }
}

/// Starts Memcached, and a pod with a shell, on each of two nodes.
fn run_on_both_nodes(cluster: &Cluster) {
    apply(cluster, include_str!("two-nodes.yaml"));
    kubectl(cluster, "rollout status daemonset/memcached --timeout=60s");
    kubectl(cluster, "wait --for=condition=Ready pod --all --timeout=60s");
}

/// From each node, a pod reaches DNS, each pod, and the Service; and the API server reaches each kubelet.
fn assert_pods_reach_each_other(cluster: &Cluster) {
    for probe in ["probe-node1", "probe-node2"] {
        for pod in pods(cluster) {
            assert!(asked(cluster, probe, &pod.ip).starts_with("VERSION"), "{probe} asks {pod:?}");
        }
        assert!(asked(cluster, probe, "memcached.default.svc.cluster.local").starts_with("VERSION"), "{probe}");
        assert_eq!(kubectl(cluster, &format!("logs {probe}")), "begun");
    }
}

/// A pod of Memcached.
#[derive(Debug)]
struct Pod {
    node: String,
    ip: String,
}

fn pods(cluster: &Cluster) -> Vec<Pod> {
    let each = "jsonpath={range .items[*]}{.spec.nodeName}/{.status.podIP}{\"\\n\"}{end}";
    let list = output(&mut cluster.kubectl(["get", "pods", "--selector=app=memcached", "--output", each]));
    let pod = |line: &str| line.split_once('/').map(|(node, ip)| Pod { node: node.to_owned(), ip: ip.to_owned() });
    list.lines().filter_map(pod).collect()
}

/// What Memcached at this host answers to a client in the pod; empty if nothing answers.
fn asked(cluster: &Cluster, pod: &str, host: &str) -> String {
    let ask = format!("printf 'version\\r\\nquit\\r\\n' | timeout 3 nc {host} 11211");
    let answer = cluster.kubectl(["exec", pod, "--", "sh", "-c", &ask]).output().unwrap();
    String::from_utf8_lossy(&answer.stdout).trim().to_owned()
}

/// A name that is unique to the test and to this run.
fn name(what: &str) -> String {
    format!("test-{what}-{}", std::process::id())
}

fn apply(cluster: &Cluster, manifest: &str) {
    let file = cluster.state_dir().join("applied.yaml");
    fs::write(&file, manifest).unwrap();
    output(cluster.kubectl(["apply", "-f"]).arg(file));
}

fn kubectl(cluster: &Cluster, args: &str) -> String {
    output(&mut cluster.kubectl(args.split(' ')))
}

fn succeeds(cluster: &Cluster, args: &str) -> bool {
    cluster.kubectl(args.split(' ')).output().unwrap().status.success()
}

#[track_caller]
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn kill(pid: i32) {
    assert!(Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap().success());
}

#[track_caller]
fn eventually(what: &str, mut happens: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !happens() {
        assert!(begun.elapsed() < Duration::from_secs(20), "waited in vain: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[track_caller]
fn assert_nothing_left(folder: &Path) {
    assert!(!folder.exists());
    assert_eq!(members(folder), Vec::<PathBuf>::new());
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(&folder.display().to_string()), "{mounts}");
}

/// The processes that belong to the cluster in this folder.
fn members(folder: &Path) -> Vec<PathBuf> {
    let wanted = format!("CLUSTER_MEMBER_OF={}", folder.display());
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let environment = |process: &PathBuf| fs::read(process.join("environ")).unwrap_or_default();
    processes
        .filter(|process| environment(process).split(|byte| *byte == 0).any(|it| it == wanted.as_bytes()))
        .collect()
}

/// The cgroups of the cluster with this name, in all hierarchies.
fn cgroups(name: &str) -> Vec<PathBuf> {
    let prefix = format!("operators-{name}-");
    let roots = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten().map(|entry| entry.path());
    let folders = roots.chain(["/sys/fs/cgroup".into()]).filter_map(|root| fs::read_dir(root).ok()).flatten().flatten();
    folders
        .map(|entry| entry.path())
        .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(&prefix))
        .collect()
}
