//! The addresses inside a cluster. Every real cluster has its own network, so all of them use the same addresses.

use std::net::Ipv4Addr;

/// The name of the real node.
pub(crate) const NODE: &str = "node1";
/// The node's address, on the loopback interface of its network.
pub(crate) const NODE_IP: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);
/// The address range of Services.
pub(crate) const SERVICES: &str = "10.96.0.0/16";
/// The address of the Service named `kubernetes`.
pub(crate) const API_SERVICE_IP: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
/// The address of DNS. It is in the lower part of the range, from which the API server does not choose addresses by itself.
pub(crate) const DNS_IP: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);
/// The address range of pods.
pub(crate) const PODS: &str = "10.244.0.0/16";
/// The address range of the pods on the one real node.
pub(crate) const NODE_PODS: &str = "10.244.0.0/24";
