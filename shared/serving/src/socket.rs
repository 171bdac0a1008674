//! Sockets that listen at an address, or at all addresses.

use std::{
    io,
    net::{AddrParseError, Ipv4Addr, SocketAddr},
};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;

/// Length of the queue of connections to accept, the same as tokio's.
const BACKLOG: i32 = 1024;

/// Parses `ADDRESS:PORT`, or `:PORT`, which means all addresses of both families, as in Go.
pub fn parse_address(text: &str) -> Result<SocketAddr, AddrParseError> {
    let everywhere = text.strip_prefix(':').map(|port| format!("[::]:{port}"));
    everywhere.as_deref().unwrap_or(text).parse()
}

/// Opens a socket that listens at this address. `[::]` includes all addresses of IPv4, whatever the system's default is. Without
/// IPv6, it means only those of IPv4.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    if !(address.is_ipv6() && address.ip().is_unspecified()) {
        return one(address);
    }
    match one(address) {
        // If the port is in use in one family, fail rather than listen in the other family only.
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => one((Ipv4Addr::UNSPECIFIED, address.port()).into()),
        other => other,
    }
}

fn one(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?; // connections of an earlier process may still be closing
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_means_all_addresses() {
        for (text, means) in [
            (":8081", "[::]:8081"),
            (":0", "[::]:0"),
            ("[::]:8081", "[::]:8081"),
            ("0.0.0.0:8081", "0.0.0.0:8081"),
            ("127.0.0.1:8081", "127.0.0.1:8081"),
            ("[::1]:8081", "[::1]:8081"),
        ] {
            assert_eq!(parse_address(text).map(|it| it.to_string()).as_deref(), Ok(means), "{text}");
        }
        for wrong in ["", ":", "8081", ":http", ":65536", "::", "::1:8081x", "localhost:8081"] {
            assert!(parse_address(wrong).is_err(), "{wrong}");
        }
    }
}
