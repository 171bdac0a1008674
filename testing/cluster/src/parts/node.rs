//! The parts of a real node: containerd, the kubelet, kube-proxy and DNS.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;
use serde_json::json;

use super::{Begins, Plan, flags};
use crate::network::{DNS_IP, NODE, NODE_IP, NODE_PODS, PODS};
use crate::spec::Spec;

/// The address of the registry for all images of the node. The supervisor serves it; no other registry is reachable.
pub(crate) const REGISTRY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 5000);

pub(super) fn containerd(spec: &Spec) -> Result<Plan> {
    Ok(Plan {
        name: "containerd",
        program: spec.tools.binary("containerd")?.into(),
        args: flags([("config", spec.layout().config("containerd.toml").display().to_string())]),
        begins: Begins::AtOnce,
    })
}

pub(super) fn kubelet(spec: &Spec) -> Result<Plan> {
    let layout = spec.layout();
    Ok(Plan {
        name: "kubelet",
        program: spec.tools.binary("kubelet")?.into(),
        args: flags([
            ("config", layout.config("kubelet.yaml").display().to_string()),
            ("kubeconfig", layout.config("kubelet.kubeconfig").display().to_string()),
            ("hostname-override", NODE.into()),
            ("node-ip", NODE_IP.to_string()),
            ("root-dir", layout.data("kubelet").display().to_string()),
            ("cert-dir", layout.data("kubelet/pki").display().to_string()),
        ]),
        begins: Begins::WithApi,
    })
}

pub(super) fn kube_proxy(spec: &Spec) -> Result<Plan> {
    Ok(Plan {
        name: "kube-proxy",
        program: spec.tools.binary("kube-proxy")?.into(),
        args: flags([
            ("config", spec.layout().config("kube-proxy.yaml").display().to_string()),
            ("hostname-override", NODE.into()),
        ]),
        begins: Begins::WithApi,
    })
}

pub(super) fn coredns(spec: &Spec) -> Result<Plan> {
    Ok(Plan {
        name: "coredns",
        program: spec.tools.binary("coredns")?.into(),
        args: vec!["-conf".into(), spec.layout().config("Corefile").display().to_string()],
        begins: Begins::WithApi,
    })
}

pub(super) fn files(spec: &Spec) -> Result<Vec<(String, String)>> {
    Ok(vec![
        ("containerd.toml".into(), containerd_toml(spec)?),
        ("registries/_default/hosts.toml".into(), images::registry::hosts_toml(REGISTRY)),
        ("cni/10-pods.conflist".into(), cni()),
        ("kubelet.yaml".into(), kubelet_yaml(spec)),
        ("kube-proxy.yaml".into(), kube_proxy_yaml(spec)),
        ("Corefile".into(), corefile(spec)),
    ])
}

fn containerd_toml(spec: &Spec) -> Result<String> {
    let layout = spec.layout();
    let root = layout.data("containerd");
    let (cni, registries) = (layout.config("cni"), layout.config("registries"));
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
        root = root.display(),
        registries = registries.display(),
        shim = shim.display(),
        runc = runc.display(),
        plugins = plugins.display(),
        cni = cni.display(),
    ))
}

/// The CNI configuration: a pair of interfaces for each pod, without a bridge. This is enough for one node and needs no kernel
/// module.
fn cni() -> String {
    let ipam = json!({
        "type": "host-local",
        "dataDir": "/run/cni/ipam",
        "ranges": [[{"subnet": NODE_PODS}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    });
    let plugin = json!({"type": "ptp", "ipMasq": false, "ipam": ipam});
    json!({"cniVersion": "1.0.0", "name": "pods", "plugins": [plugin]}).to_string()
}

fn kubelet_yaml(spec: &Spec) -> String {
    let pki = |file: &str| spec.layout().pki(file);
    let none = "0%"; // no evictions: other work may fill the disk and the memory of this machine
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
        "tlsCertFile": pki("kubelet-server.crt"),
        "tlsPrivateKeyFile": pki("kubelet-server.key"),
        "readOnlyPort": 0,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}", spec.cgroup()),
        "enforceNodeAllocatable": ["none"],
        "failCgroupV1": false,
        "failSwapOn": false,
        "oomScoreAdj": 0,
        "makeIPTablesUtilChains": false,
        "clusterDomain": "cluster.local",
        "clusterDNS": [DNS_IP],
        "resolvConf": "",
        "maxPods": 200,
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "memory.available": none,
            "nodefs.available": none,
            "nodefs.inodesFree": none,
            "imagefs.available": none,
            "imagefs.inodesFree": none,
        },
        "podLogsDir": "/var/log/pods",
        "volumePluginDir": spec.layout().data("kubelet/volumeplugins"),
        "nodeStatusUpdateFrequency": "5s",
    });
    format!("{config:#}\n")
}

fn kube_proxy_yaml(spec: &Spec) -> String {
    let config = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": spec.layout().config("proxy.kubeconfig")},
        "clusterCIDR": PODS,
        "bindAddress": NODE_IP,
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
    format!(
        ".:53 {{\n  bind {DNS_IP}\n  errors\n  kubernetes cluster.local in-addr.arpa {{\n    kubeconfig {}\n    \
         pods insecure\n    ttl 5\n  }}\n}}\n",
        kubeconfig.display()
    )
}
