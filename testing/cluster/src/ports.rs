//! Free ports on loopback, for clusters that start side by side.

use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// The ports of one cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ports {
    pub(crate) etcd: u16,
    pub(crate) etcd_peer: u16,
    pub(crate) api: u16,
}

/// Prevents other clusters on this machine from choosing the same ports, from the choice until the end of the process. The kernel
/// releases it after any crash; it would not release a lock file.
#[derive(Debug)]
pub(crate) struct Reservation {
    _names: Vec<UnixListener>,
}

impl Ports {
    /// Chooses free ports. Different seeds make simultaneous callers try different ports.
    pub(crate) fn choose(seed: u64) -> Result<Self> {
        let mut free = candidates(seed, range()).filter(|port| is_free(*port));
        match (free.next(), free.next(), free.next()) {
            (Some(etcd), Some(etcd_peer), Some(api)) => Ok(Self { etcd, etcd_peer, api }),
            _ => bail!("there are no three free ports in {:?}: stop some programs that listen there", range()),
        }
    }

    /// Reserves the ports in this network.
    ///
    /// The error contains [`TAKEN`] if another cluster has reserved one of them.
    pub(crate) fn reserve(self) -> Result<Reservation> {
        let reserve = |port: u16| {
            let name = SocketAddr::from_abstract_name(format!("operators-cluster-port-{port}"))?;
            UnixListener::bind_addr(&name).with_context(|| format!("port {port}: {TAKEN} by another cluster"))
        };
        let names: Result<_> = [self.etcd, self.etcd_peer, self.api].into_iter().map(reserve).collect();
        Ok(Reservation { _names: names? })
    }
}

/// The error message with which every program reports that a port is in use.
pub(crate) const TAKEN: &str = "address already in use";

/// The range of candidates. It is below the ports that the kernel assigns to outgoing connections, because such a connection may
/// take a port between the check and the start.
fn range() -> Range<u16> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let lowest = text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(32768);
    below(lowest)
}

fn below(lowest_ephemeral: u16) -> Range<u16> {
    match lowest_ephemeral {
        0..=12000 => 20000..32000, // no room below; `start` retries if a port is in use
        _ => 10000..lowest_ephemeral,
    }
}

/// 500 ports of the range, in an order that depends on the seed.
fn candidates(seed: u64, range: Range<u16>) -> impl Iterator<Item = u16> {
    let size = u64::from(range.end - range.start);
    let start = range.start;
    (0..500_u64).map(move |n| {
        let mixed = (seed ^ n.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        start + u16::try_from((mixed >> 32) % size).unwrap_or_default()
    })
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_below_ephemeral_range() {
        assert_eq!(below(32768), 10000..32768);
        assert_eq!(below(1024), 20000..32000);
        assert!(candidates(7, 10000..32768).all(|port| (10000..32768).contains(&port)));
    }

    #[test]
    fn a_port_is_reserved_until_it_is_dropped() {
        let ports = Ports { etcd: 9, etcd_peer: 10, api: 11 };
        let first = ports.reserve().unwrap();
        assert!(format!("{:#}", ports.reserve().unwrap_err()).contains(TAKEN));
        drop(first);
        ports.reserve().unwrap();
    }

    #[test]
    fn seeds_give_different_candidates() {
        let first: Vec<_> = candidates(1, 10000..32768).take(3).collect();
        let second: Vec<_> = candidates(2, 10000..32768).take(3).collect();
        assert_ne!(first, second);
    }
}
