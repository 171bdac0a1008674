//! The processes of a cluster: their programs, flags and configuration files.

mod control_plane;
mod node;
mod simulated;

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::kubeconfig;
use crate::network::Node;
use crate::pki::{Authority, write_private};
use crate::spec::{Nodes, Spec};

pub(crate) use self::node::{EVERY_REGISTRY, registry, write_registry};
pub(crate) use self::simulated::{node_name, simulated_node};

/// One process, and how to start it.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    pub(crate) begins: Begins,
    pub(crate) place: Place,
}

/// The namespaces of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Those of the supervisor.
    Supervisor,
    /// New ones, as process 1 of this node. Whatever runs on the node ends with it.
    Boots(Node),
    /// Those of this node.
    On(Node),
}

impl Place {
    /// Where the parts of this node run.
    fn of(node: Node) -> Self {
        if node.is_first() { Self::Supervisor } else { Self::On(node) }
    }
}

/// When the supervisor starts a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begins {
    AtOnce,
    /// As soon as etcd listens. An earlier start would cost the API server a second, because its first attempt would fail.
    WithEtcd,
    /// As soon as the API server is ready. The controller-manager and the scheduler exit if it refuses their requests.
    WithApi,
}

/// All processes of this cluster, in the order in which the supervisor starts them.
pub(crate) fn plans(spec: &Spec) -> Result<Vec<Plan>> {
    let mut plans = vec![control_plane::etcd(spec)?, control_plane::api_server(spec)?];
    for node in spec.real_nodes() {
        plans.extend((!node.is_first()).then(|| node::machine(spec, node)));
        plans.push(node::containerd(spec, node)?);
    }
    plans.push(control_plane::controller_manager(spec)?);
    match spec.nodes {
        Nodes::None => {}
        Nodes::Simulated => plans.extend([control_plane::scheduler(spec)?, simulated::kwok(spec)?]),
        Nodes::Real => {
            plans.push(control_plane::scheduler(spec)?);
            for node in spec.real_nodes() {
                plans.extend([node::kubelet(spec, node)?, node::kube_proxy(spec, node)?]);
            }
            plans.push(node::coredns(spec)?);
        }
    }
    Ok(plans)
}

/// Flags with the identity of etcd as the only member of its cluster. etcd and etcdutl must get the same values.
pub(crate) fn etcd_member(spec: &Spec) -> [(&'static str, String); 3] {
    let peer = control_plane::local(spec.ports.etcd_peer);
    [("name", "one".into()), ("initial-advertise-peer-urls", peer.clone()), ("initial-cluster", format!("one={peer}"))]
}

/// Writes the files that [`plans`] refers to.
pub(crate) fn write_files(spec: &Spec, authority: &Authority) -> Result<()> {
    let layout = spec.layout();
    for folder in [layout.config(""), layout.data(""), layout.log("x").with_file_name("")] {
        std::fs::create_dir_all(&folder).with_context(|| format!("could not create {}", folder.display()))?;
    }
    for (file, user, group) in [
        ("kubeconfig", "admin", Some("system:masters")),
        ("config/controller-manager.kubeconfig", "system:kube-controller-manager", None),
        ("config/scheduler.kubeconfig", "system:kube-scheduler", None),
        ("config/admin.kubeconfig", "cluster-parts", Some("system:masters")),
    ] {
        let groups: Vec<_> = group.into_iter().collect();
        let user = authority.client(user, &groups)?;
        let text = kubeconfig::render(&spec.name, &server(spec), &authority.certificate, &user);
        write_private(&layout.folder().join(file), &text)?;
    }
    for node in spec.real_nodes() {
        node::write_kubeconfigs(spec, authority, node)?;
    }
    let files = match spec.nodes {
        Nodes::None => Vec::new(),
        Nodes::Simulated => simulated::files(),
        Nodes::Real => node::files(spec)?,
    };
    for (name, text) in control_plane::files().into_iter().chain(files) {
        let file = layout.config(&name);
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(&file, text).with_context(|| format!("could not write {}", file.display()))?;
    }
    Ok(())
}

/// The address of the API server, the same inside and outside of the cluster's network.
pub(crate) fn server(spec: &Spec) -> String {
    format!("https://127.0.0.1:{}", spec.ports.api)
}

/// Formats each pair as `--name=value`.
pub(crate) fn flags<const N: usize>(pairs: [(&str, String); N]) -> Vec<String> {
    pairs.into_iter().map(|(name, value)| format!("--{name}={value}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::IpFamily;
    use crate::ports::Ports;
    use crate::spec::Controllers;
    use crate::tools::Tools;

    fn spec(nodes: Nodes) -> Spec {
        let names = nodes.tools().iter().flat_map(|tool| tool.binaries()).map(|name| (name, format!("/bin/{name}")));
        let tools = serde_json::json!({"binaries": names.collect::<std::collections::BTreeMap<_, _>>()});
        Spec {
            name: "dev".into(),
            folder: "/state/dev".into(),
            nodes,
            controllers: Controllers::Reduced,
            simulated: 3,
            workers: 2,
            ip_family: IpFamily::Ipv4,
            node_patience: None,
            tools: serde_json::from_value::<Tools>(tools).unwrap(),
            version: "v1.36.3".into(),
            ports: Ports { etcd: 1, etcd_peer: 2, api: 3 },
            idle: None,
            images: None,
            created: 0,
        }
    }

    fn names(nodes: Nodes) -> Vec<String> {
        plans(&spec(nodes)).unwrap().into_iter().map(|plan| plan.name).collect()
    }

    #[test]
    fn each_kind_of_nodes_adds_parts() {
        assert_eq!(names(Nodes::None), ["etcd", "kube-apiserver", "kube-controller-manager"]);
        assert_eq!(
            names(Nodes::Simulated),
            ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"]
        );
        let real = names(Nodes::Real);
        assert_eq!(
            real[5..],
            [
                "kube-controller-manager",
                "kube-scheduler",
                "kubelet",
                "kube-proxy",
                "kubelet-node2",
                "kube-proxy-node2",
                "coredns"
            ]
        );
        assert_eq!(real[..5], ["etcd", "kube-apiserver", "containerd", "node2", "containerd-node2"]);
    }

    #[test]
    fn parts_of_a_further_node_run_in_its_namespaces() {
        let place =
            |name: &str| plans(&spec(Nodes::Real)).unwrap().into_iter().find(|plan| plan.name == name).unwrap().place;
        let second = Node::nth(2);
        assert_eq!([place("kubelet"), place("coredns")], [Place::Supervisor, Place::Supervisor]);
        assert_eq!([place("node2"), place("kube-proxy-node2")], [Place::Boots(second), Place::On(second)]);
    }

    #[test]
    fn reduced_controllers_apply_only_without_nodes() {
        let controllers = |nodes| {
            let plans = plans(&spec(nodes)).unwrap();
            let manager = plans.into_iter().find(|plan| plan.name == "kube-controller-manager").unwrap();
            manager.args.into_iter().find(|arg| arg.starts_with("--controllers="))
        };
        assert!(controllers(Nodes::None).unwrap().contains("garbage-collector-controller"));
        assert_eq!(controllers(Nodes::Real), None);
    }

    #[test]
    fn cluster_without_own_network_listens_on_loopback_only() {
        for nodes in [Nodes::None, Nodes::Simulated] {
            let plans = plans(&spec(nodes)).unwrap();
            let api = plans.iter().find(|plan| plan.name == "kube-apiserver").unwrap();
            assert!(api.args.contains(&"--bind-address=127.0.0.1".to_owned()), "{:?}", api.args);
        }
    }
}
