//! The addresses inside a cluster. Every real cluster has its own network, so all of them use the same addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A real node. The first is in the namespaces of the control plane. Each other one has namespaces of its own, and a pair of
/// interfaces joins its network to that of the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Node(u8);

impl Node {
    pub(crate) const FIRST: Self = Self(1);

    /// The nth node, from 1.
    pub(crate) fn nth(n: u8) -> Self {
        Self(n)
    }

    /// The nodes of a cluster with this many workers.
    pub(crate) fn all(workers: u8) -> impl Iterator<Item = Self> {
        (1..=workers).map(Self)
    }

    pub(crate) fn number(self) -> u8 {
        self.0
    }

    pub(crate) fn is_first(self) -> bool {
        self == Self::FIRST
    }

    /// The name of a part that runs on this node. The parts of the first node have no suffix.
    pub(crate) fn part(self, name: &str) -> String {
        if self.is_first() { name.to_owned() } else { format!("{name}-{self}") }
    }
}

/// The name of the node in Kubernetes, which is also its host name.
impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node{}", self.0)
    }
}

/// The addresses of a cluster's nodes, pods and Services.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IpFamily {
    /// Only IPv4.
    #[default]
    Ipv4,
    /// Only IPv6. Inside of a node or a pod, 127.0.0.1 exists too.
    Ipv6,
    /// Both. Services have an address of IPv4 only, unless they request more.
    Dual,
}

impl IpFamily {
    /// The families; the first is that of the API server's address, and that of Services by default.
    pub(crate) fn families(self) -> &'static [Family] {
        match self {
            Self::Ipv4 => &[Family::V4],
            Self::Ipv6 => &[Family::V6],
            Self::Dual => &[Family::V4, Family::V6],
        }
    }

    pub(crate) fn first(self) -> Family {
        self.families()[0]
    }

    /// One text for each family, joined by commas as Kubernetes expects it.
    pub(crate) fn join<T: fmt::Display>(self, text: impl Fn(Family) -> T) -> String {
        self.families().iter().map(|family| text(*family).to_string()).collect::<Vec<_>>().join(",")
    }
}

impl fmt::Display for IpFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
            Self::Dual => "dual",
        })
    }
}

impl FromStr for IpFamily {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "ipv4" => Ok(Self::Ipv4),
            "ipv6" => Ok(Self::Ipv6),
            "dual" => Ok(Self::Dual),
            other => Err(format!("{other:?} is not one of ipv4, ipv6, dual")),
        }
    }
}

/// One family of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    /// The address of a node. That of the first is on the loopback interface of the control plane's network.
    pub(crate) fn address(self, node: Node) -> IpAddr {
        let last = node.0 + 1;
        match self {
            Self::V4 => Ipv4Addr::new(10, 99, 0, last).into(),
            Self::V6 => Ipv6Addr::new(0xfd00, 0x99, 0, 0, 0, 0, 0, last.into()).into(),
        }
    }

    /// The address range of the pods on a node.
    pub(crate) fn pods_on(self, node: Node) -> String {
        let n = node.0 - 1;
        match self {
            Self::V4 => format!("10.244.{n}.0/24"),
            Self::V6 => format!("fd00:244:0:{n}::/64"),
        }
    }

    /// The address range of all pods.
    pub(crate) fn pods(self) -> &'static str {
        match self {
            Self::V4 => "10.244.0.0/16",
            Self::V6 => "fd00:244::/48",
        }
    }

    /// The address range of Services.
    pub(crate) fn services(self) -> &'static str {
        match self {
            Self::V4 => "10.96.0.0/16",
            Self::V6 => "fd00:96::/112",
        }
    }

    /// The address of the Service named `kubernetes`.
    pub(crate) fn api_service(self) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::new(10, 96, 0, 1).into(),
            Self::V6 => Ipv6Addr::new(0xfd00, 0x96, 0, 0, 0, 0, 0, 1).into(),
        }
    }

    /// The range of all addresses.
    pub(crate) fn everything(self) -> &'static str {
        match self {
            Self::V4 => "0.0.0.0/0",
            Self::V6 => "::/0",
        }
    }

    /// The address on which a server listens for clients of this family. `::` includes IPv4.
    pub(crate) fn any(self) -> &'static str {
        match self {
            Self::V4 => "0.0.0.0",
            Self::V6 => "::",
        }
    }
}

/// The port of the registry for all images of the nodes, at the address of the first node. The supervisor serves it; no other
/// registry is reachable.
pub(crate) const REGISTRY_PORT: u16 = 5000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn family_is_read_as_it_is_written() {
        for family in [IpFamily::Ipv4, IpFamily::Ipv6, IpFamily::Dual] {
            assert_eq!(family.to_string().parse(), Ok(family));
        }
        assert!("v6".parse::<IpFamily>().unwrap_err().contains("ipv4, ipv6, dual"));
    }

    #[test]
    fn each_node_has_its_own_addresses_and_part_names() {
        let [first, second] = [Node::FIRST, Node::nth(2)];
        let addresses = |node| IpFamily::Dual.join(|family| family.address(node));
        assert_eq!([addresses(first), addresses(second)], ["10.99.0.2,fd00:99::2", "10.99.0.3,fd00:99::3"]);
        let pods = |node| IpFamily::Dual.join(|family| family.pods_on(node));
        assert_eq!([pods(first), pods(second)], ["10.244.0.0/24,fd00:244:0:0::/64", "10.244.1.0/24,fd00:244:0:1::/64"]);
        assert_eq!([first.part("kubelet"), second.part("kubelet")], ["kubelet", "kubelet-node2"]);
    }
}
