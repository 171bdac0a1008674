//! Whose share of the connections and of the memory a connection uses.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Bits of an IPv6 address that name the network. One machine can take any address of its network.
const NETWORK: u32 = 64;

/// The origin of connections that share one part of the server: an address of IPv4, or a network of IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Origin(IpAddr);

impl From<SocketAddr> for Origin {
    fn from(client: SocketAddr) -> Self {
        Self(match client.ip().to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << (128 - NETWORK))).into(),
            ipv4 @ IpAddr::V4(_) => ipv4,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_an_address_of_ipv4_or_a_network_of_ipv6() {
        let origin = |text: &str| Origin::from(text.parse::<SocketAddr>().expect("an address"));
        for (one, other) in [
            ("10.0.0.1:1", "10.0.0.1:2"),
            ("10.0.0.1:1", "[::ffff:10.0.0.1]:1"),
            ("[2001:db8::1]:1", "[2001:db8::2]:1"),
        ] {
            assert_eq!(origin(one), origin(other), "{one} {other}");
        }
        for (one, other) in [
            ("10.0.0.1:1", "10.0.0.2:1"),
            ("[2001:db8::1]:1", "[2001:db8:0:1::1]:1"),
            ("[::1]:1", "127.0.0.1:1"),
            ("[::ffff:10.0.0.1]:1", "[::ffff:10.0.0.2]:1"),
        ] {
            assert_ne!(origin(one), origin(other), "{one} {other}");
        }
    }
}
