//! The network between the pods of a kind cluster whose node image has no network plugin of kind: a pair of interfaces for each
//! pod, and on each node a route to the pods of each other node.

use serde_json::{Value, json};

use anyhow::{Context, Result};

/// A node, as far as the network knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) name: String,
    /// The address in the network of the nodes.
    pub(super) address: String,
    /// The address range of its pods.
    pub(super) pods: String,
}

/// The nodes in a `NodeList`. `None` as long as one has no address range for its pods.
pub(super) fn members(list: &Value) -> Result<Option<Vec<Member>>> {
    let nodes = list["items"].as_array().context("kubectl printed no list of nodes")?;
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let member = |node: &Value| {
        let addresses = node["status"]["addresses"].as_array()?;
        let internal = addresses.iter().find(|address| address["type"] == "InternalIP")?;
        Some(Member {
            name: text(&node["metadata"]["name"])?,
            address: text(&internal["address"])?,
            pods: text(&node["spec"]["podCIDR"])?,
        })
    };
    Ok(nodes.iter().map(member).collect())
}

/// A shell script that joins this node to the others. A second run changes nothing.
pub(super) fn script(node: &Member, all: &[Member]) -> String {
    use std::fmt::Write as _;
    let mut script = format!(
        "set -e\nmkdir -p /etc/cni/net.d\ncat >/etc/cni/net.d/10-pods.conflist <<'END'\n{}\nEND\n",
        plugin(node)
    );
    for peer in all.iter().filter(|peer| peer.name != node.name) {
        let _ = writeln!(script, "ip route replace {} via {}", peer.pods, peer.address); // a String accepts all writes
    }
    // What leaves the network of the pods has the address of the node, since only nodes are known there.
    script.push_str("nft -f - <<'END'\nadd table ip pods\nflush table ip pods\n");
    script.push_str("table ip pods {\n  chain leave {\n    type nat hook postrouting priority srcnat;\n");
    let ranges = all.iter().map(|member| member.pods.as_str()).collect::<Vec<_>>().join(", ");
    let _ = writeln!(script, "    ip saddr {{ {ranges} }} ip daddr != {{ {ranges} }} masquerade\n  }}\n}}\nEND");
    script
}

/// The configuration of the network plugins on a node.
fn plugin(node: &Member) -> Value {
    let ipam = json!({
        "type": "host-local",
        "dataDir": "/run/cni/ipam",
        "ranges": [[{"subnet": node.pods}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    });
    json!({"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "ptp", "ipMasq": false, "ipam": ipam}]})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, n: u8) -> Member {
        Member { name: name.into(), address: format!("172.18.0.{n}"), pods: format!("10.244.{n}.0/24") }
    }

    #[test]
    fn nodes_are_members_once_all_have_pod_addresses() {
        let node = |name: &str, pods: &str| {
            let addresses =
                json!([{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": "172.18.0.2"}]);
            json!({"metadata": {"name": name}, "spec": {"podCIDR": pods}, "status": {"addresses": addresses}})
        };
        let list = json!({"items": [node("a", "10.244.2.0/24")]});
        assert_eq!(members(&list).unwrap(), Some(vec![member("a", 2)]));
        let early =
            json!({"items": [node("a", "10.244.2.0/24"), {"metadata": {"name": "b"}, "spec": {}, "status": {}}]});
        assert_eq!(members(&early).unwrap(), None);
        assert!(members(&json!({})).is_err());
    }

    #[test]
    fn a_node_has_its_own_pods_and_a_route_to_those_of_each_other_node() {
        let all = [member("a", 2), member("b", 3), member("c", 4)];
        let script = script(&all[1], &all);
        let routes: Vec<_> = script.lines().filter(|line| line.starts_with("ip route")).collect();
        assert_eq!(
            routes,
            ["ip route replace 10.244.2.0/24 via 172.18.0.2", "ip route replace 10.244.4.0/24 via 172.18.0.4"]
        );
        assert!(script.contains(r#""ranges":[[{"subnet":"10.244.3.0/24"}]]"#), "{script}");
        let all = "{ 10.244.2.0/24, 10.244.3.0/24, 10.244.4.0/24 }";
        assert!(script.contains(&format!("ip saddr {all} ip daddr != {all} masquerade")), "{script}");
    }
}
