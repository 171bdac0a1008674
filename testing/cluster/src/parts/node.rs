//! The parts of a real node: containerd, the kubelet and kube-proxy; and DNS.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use serde_json::json;

use super::{Begins, Place, Plan, flags};
use crate::kubeconfig;
use crate::layout::Layout;
use crate::network::{Family, Node, REGISTRY_PORT};
use crate::pki::{Authority, write_private};
use crate::spec::Spec;

/// The address of the registry for all images of the nodes.
pub(crate) fn registry(spec: &Spec) -> SocketAddr {
    SocketAddr::from((spec.ip_family.first().address(Node::FIRST), REGISTRY_PORT))
}

/// What containerd calls all registries that have no configuration of their own.
pub(crate) const EVERY_REGISTRY: &str = "_default";

/// Writes for containerd, which reads it at each pull, that the registry at this address answers for the registry `name`.
pub(crate) fn write_registry(spec: &Spec, name: &str, address: SocketAddr) -> Result<()> {
    let file = spec.layout().config(&format!("registries/{name}/hosts.toml"));
    let folder = file.parent().unwrap_or(&file);
    std::fs::create_dir_all(folder).with_context(|| format!("could not create {}", folder.display()))?;
    std::fs::write(&file, images::registry::hosts_toml(address))
        .with_context(|| format!("could not write {}", file.display()))
}

/// Process 1 of a node with namespaces of its own. It prepares them, and later only collects orphans.
pub(super) fn machine(spec: &Spec, node: Node) -> Plan {
    Plan {
        name: node.to_string(),
        program: "/proc/self/exe".into(),
        args: vec!["machine".into(), spec.folder.display().to_string(), node.number().to_string()],
        begins: Begins::AtOnce,
        place: Place::Boots(node),
    }
}

pub(super) fn containerd(spec: &Spec, node: Node) -> Result<Plan> {
    Ok(Plan {
        name: node.part("containerd"),
        program: spec.tools.binary("containerd")?.into(),
        args: flags([("config", config(&spec.layout(), node, "containerd.toml"))]),
        begins: Begins::AtOnce,
        place: Place::of(node),
    })
}

pub(super) fn kubelet(spec: &Spec, node: Node) -> Result<Plan> {
    let layout = spec.layout();
    Ok(Plan {
        name: node.part("kubelet"),
        program: spec.tools.binary("kubelet")?.into(),
        args: flags([
            ("config", config(&layout, node, "kubelet.yaml")),
            ("kubeconfig", config(&layout, node, "kubelet.kubeconfig")),
            ("hostname-override", node.to_string()),
            ("node-ip", spec.ip_family.join(|family| family.address(node))),
            ("root-dir", data(&layout, node, "kubelet")),
            ("cert-dir", data(&layout, node, "kubelet/pki")),
        ]),
        begins: Begins::WithApi,
        place: Place::of(node),
    })
}

pub(super) fn kube_proxy(spec: &Spec, node: Node) -> Result<Plan> {
    Ok(Plan {
        name: node.part("kube-proxy"),
        program: spec.tools.binary("kube-proxy")?.into(),
        args: flags([
            ("config", config(&spec.layout(), node, "kube-proxy.yaml")),
            ("hostname-override", node.to_string()),
        ]),
        begins: Begins::WithApi,
        place: Place::of(node),
    })
}

pub(super) fn coredns(spec: &Spec) -> Result<Plan> {
    Ok(Plan {
        name: "coredns".into(),
        program: spec.tools.binary("coredns")?.into(),
        args: vec!["-conf".into(), spec.layout().config("Corefile").display().to_string()],
        begins: Begins::WithApi,
        place: Place::Supervisor,
    })
}

/// The path of a configuration file of this node.
fn config(layout: &Layout, node: Node, file: &str) -> String {
    layout.config(&format!("{node}/{file}")).display().to_string()
}

/// The folder of a part's data on this node.
fn data(layout: &Layout, node: Node, part: &str) -> String {
    layout.data(&format!("{node}/{part}")).display().to_string()
}

/// Writes the credentials of the node's parts. All nodes reach the API server at the address of the first.
pub(super) fn write_kubeconfigs(spec: &Spec, authority: &Authority, node: Node) -> Result<()> {
    let folder = spec.layout().config(&node.to_string());
    std::fs::create_dir_all(&folder).with_context(|| format!("could not create {}", folder.display()))?;
    let server = SocketAddr::from((spec.ip_family.first().address(Node::FIRST), spec.ports.api));
    let server = format!("https://{server}");
    let kubelet = authority.client(&format!("system:node:{node}"), &["system:nodes"])?;
    let proxy = authority.client("system:kube-proxy", &[])?;
    for (file, user) in [("kubelet.kubeconfig", kubelet), ("proxy.kubeconfig", proxy)] {
        let text = kubeconfig::render(&spec.name, &server, &authority.certificate, &user);
        write_private(config(&spec.layout(), node, file).as_ref(), &text)?;
    }
    Ok(())
}

/// The files of all nodes, by their names in the folder of configurations.
pub(super) fn files(spec: &Spec) -> Result<Vec<(String, String)>> {
    let mut files = vec![
        (format!("registries/{EVERY_REGISTRY}/hosts.toml"), images::registry::hosts_toml(registry(spec))),
        ("Corefile".into(), corefile(spec)),
    ];
    for node in spec.real_nodes() {
        files.extend([
            (format!("{node}/containerd.toml"), containerd_toml(spec, node)?),
            (format!("{node}/cni/10-pods.conflist"), cni(spec, node)),
            (format!("{node}/kubelet.yaml"), kubelet_yaml(spec, node)),
            (format!("{node}/kube-proxy.yaml"), kube_proxy_yaml(spec, node)),
        ]);
    }
    Ok(files)
}

fn containerd_toml(spec: &Spec, node: Node) -> Result<String> {
    let layout = spec.layout();
    let root = data(&layout, node, "containerd");
    let (cni, registries) = (config(&layout, node, "cni"), layout.config("registries"));
    let shim = spec.tools.binary("containerd-shim-runc-v2")?;
    let runc = spec.tools.binary("runc")?;
    let plugins = spec.tools.binary("ptp")?.with_file_name("");
    Ok(format!(
        "version = 3
root = '{root}'
state = '/run/containerd'
disabled_plugins = ['io.containerd.nri.v1.nri', 'io.containerd.tracing.processor.v1.otlp', 'io.containerd.internal.v1.tracing']
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = 'localhost/pause:1'
[plugins.'io.containerd.cri.v1.images'.registry]
  config_path = '{registries}'
[plugins.'io.containerd.cri.v1.runtime']
  # A machine that denies CAP_SYS_RESOURCE refuses to lower the score.
  restrict_oom_score_adj = true
  tolerate_missing_hugetlb_controller = true
  disable_hugetlb_controller = true
  disable_apparmor = true
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'
  runtime_path = '{shim}'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  BinaryName = '{runc}'
  SystemdCgroup = false
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ['{plugins}']
  conf_dir = '{cni}'
",
        registries = registries.display(),
        shim = shim.display(),
        runc = runc.display(),
        plugins = plugins.display(),
    ))
}

/// The CNI configuration: a pair of interfaces for each pod, without a bridge. The routes between the nodes' networks do the rest.
fn cni(spec: &Spec, node: Node) -> String {
    let families = spec.ip_family.families();
    let ranges: Vec<_> = families.iter().map(|family| json!([{"subnet": family.pods_on(node)}])).collect();
    let routes: Vec<_> = families.iter().map(|family| json!({"dst": family.everything()})).collect();
    let ipam = json!({
        "type": "host-local",
        "dataDir": "/run/cni/ipam",
        "ranges": ranges,
        "routes": routes,
    });
    let plugin = json!({"type": "ptp", "ipMasq": false, "ipam": ipam});
    json!({"cniVersion": "1.0.0", "name": "pods", "plugins": [plugin]}).to_string()
}

fn kubelet_yaml(spec: &Spec, node: Node) -> String {
    let pki = |file: &str| spec.layout().pki(file);
    let never = "0%"; // no evictions: other work may fill the disk and the memory of this machine
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": pki("ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": pki(&format!("kubelet-{node}.crt")),
        "tlsPrivateKeyFile": pki(&format!("kubelet-{node}.key")),
        "readOnlyPort": 0,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}", spec.cgroup_of(node)),
        "enforceNodeAllocatable": ["none"],
        "failCgroupV1": false,
        "failSwapOn": false,
        "oomScoreAdj": 0,
        "makeIPTablesUtilChains": false,
        "clusterDomain": "cluster.local",
        "address": spec.ip_family.first().any(),
        "clusterDNS": [spec.ip_family.first().address(Node::FIRST)], // kube-proxy refuses an address in the range of Services that no Service has
        "resolvConf": "",
        "maxPods": 200,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "memory.available": never,
            "nodefs.available": never,
            "nodefs.inodesFree": never,
            "imagefs.available": never,
            "imagefs.inodesFree": never,
        },
        "podLogsDir": "/var/log/pods",
        "volumePluginDir": data(&spec.layout(), node, "kubelet/volumeplugins"),
        "nodeStatusUpdateFrequency": "5s",
    });
    format!("{config:#}\n")
}

fn kube_proxy_yaml(spec: &Spec, node: Node) -> String {
    let config = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": config(&spec.layout(), node, "proxy.kubeconfig")},
        "clusterCIDR": spec.ip_family.join(Family::pods),
        "bindAddress": spec.ip_family.first().address(node),
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        "nodePortAddresses": ["primary"],
        // The default of a second makes the first connection to a new Service wait for a repeated SYN.
        "nftables": {"minSyncPeriod": "100ms"},
        // These limits are read-only in a network namespace.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    });
    format!("{config:#}\n")
}

/// The configuration of `CoreDNS`. It has no `forward`, so that look-ups of names outside of the cluster fail at once.
fn corefile(spec: &Spec) -> String {
    let kubeconfig = spec.layout().config("admin.kubeconfig");
    let address = spec.ip_family.first().address(Node::FIRST);
    format!(
        ".:53 {{\n  bind {address}\n  errors\n  kubernetes cluster.local in-addr.arpa ip6.arpa {{\n    kubeconfig {}\n    \
         pods insecure\n    ttl 5\n  }}\n}}\n",
        kubeconfig.display()
    )
}
