//! The configuration of a cluster for kind, as JSON, which is valid YAML.

use serde_json::{Value, json};

use super::engine::Network;

/// The configuration of a cluster with a control plane and this many workers.
pub(super) fn render(workers: usize, network: Network) -> Value {
    let worker = json!({"role": "worker"});
    let nodes: Vec<_> =
        std::iter::once(json!({"role": "control-plane"})).chain(std::iter::repeat_n(worker, workers)).collect();
    let mut config = json!({"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4", "nodes": nodes});
    if network == Network::Routes {
        // The built image has no network plugin of kind, and of the programs for rules only `nft` for kube-proxy.
        config["networking"] = json!({"disableDefaultCNI": true, "kubeProxyMode": "nftables"});
        let kubelet = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "failCgroupV1": false,
            "oomScoreAdj": 0, // lowering it needs CAP_SYS_RESOURCE
        });
        config["kubeadmConfigPatches"] = json!([kubelet.to_string()]);
    }
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_has_a_control_plane_and_the_requested_workers() {
        let roles = |workers| {
            let config = render(workers, Network::OfKind);
            let nodes = config["nodes"].as_array().unwrap().clone();
            nodes.iter().map(|node| node["role"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(roles(0), ["control-plane"]);
        assert_eq!(roles(2), ["control-plane", "worker", "worker"]);
    }

    #[test]
    fn published_images_keep_the_defaults_of_kind() {
        let published = render(1, Network::OfKind);
        assert!(published.get("networking").is_none() && published.get("kubeadmConfigPatches").is_none());
        let built = render(1, Network::Routes);
        assert_eq!(built["networking"], json!({"disableDefaultCNI": true, "kubeProxyMode": "nftables"}));
        let patch: Value = serde_json::from_str(built["kubeadmConfigPatches"][0].as_str().unwrap()).unwrap();
        assert_eq!([&patch["kind"], &patch["failCgroupV1"]], [&json!("KubeletConfiguration"), &json!(false)]);
    }
}
