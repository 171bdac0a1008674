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

/// Keeps other clusters on this machine away from our ports, from the choice until the end of the process. The kernel
/// takes it back after any crash, which it would not do with a file.
#[derive(Debug)]
pub(crate) struct Reservation {
    _names: Vec<UnixListener>,
}

impl Ports {
    /// Chooses free ports. `seed` lets two that choose at once look in different places.
    pub(crate) fn choose(seed: u64) -> Result<Self> {
        let mut free = candidates(seed, range()).filter(|port| is_free(*port));
        match (free.next(), free.next(), free.next()) {
            (Some(etcd), Some(etcd_peer), Some(api)) => Ok(Self { etcd, etcd_peer, api }),
            _ => bail!("no three free ports between {:?}: end some of what listens there", range()),
        }
    }

    /// Marks the ports as taken in this network. Fails with [`TAKEN`] when another cluster was quicker.
    pub(crate) fn reserve(self) -> Result<Reservation> {
        let reserve = |port: u16| {
            let name = SocketAddr::from_abstract_name(format!("operators-cluster-port-{port}"))?;
            UnixListener::bind_addr(&name).with_context(|| format!("port {port}: {TAKEN} by another cluster"))
        };
        let names: Result<_> = [self.etcd, self.etcd_peer, self.api].into_iter().map(reserve).collect();
        Ok(Reservation { _names: names? })
    }
}

/// What every program says of a port that it wanted and did not get.
pub(crate) const TAKEN: &str = "address already in use";

/// Below the ports that the kernel gives to outgoing connections: those may be taken between our look and the start.
fn range() -> Range<u16> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let lowest = text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(32768);
    below(lowest)
}

fn below(lowest_ephemeral: u16) -> Range<u16> {
    match lowest_ephemeral {
        0..=12000 => 20000..32000, // a wide range leaves nothing below it; then the retry must do
        _ => 10000..lowest_ephemeral,
    }
}

/// A few hundred ports in an order of their own for each seed.
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
    fn ports_are_below_those_of_outgoing_connections() {
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
    fn seeds_look_in_different_places() {
        let first: Vec<_> = candidates(1, 10000..32768).take(3).collect();
        let second: Vec<_> = candidates(2, 10000..32768).take(3).collect();
        assert_ne!(first, second);
    }
}
