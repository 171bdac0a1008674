//! The addresses inside of a cluster. Every real cluster has its own network, so all of them use the same.

use std::net::Ipv4Addr;

/// The name of the real node.
pub(crate) const NODE: &str = "node1";
/// Its address, on the loopback interface of its network.
pub(crate) const NODE_IP: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);
/// Services.
pub(crate) const SERVICES: &str = "10.96.0.0/16";
/// The Service named `kubernetes`.
pub(crate) const API_SERVICE_IP: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
/// DNS. Below the part of the range from which Services get addresses unasked.
pub(crate) const DNS_IP: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);
/// Pods.
pub(crate) const PODS: &str = "10.244.0.0/16";
/// Pods of the one real node.
pub(crate) const NODE_PODS: &str = "10.244.0.0/24";
