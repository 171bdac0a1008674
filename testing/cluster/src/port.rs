//! Reserves a port for a program that gets its port as an argument.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket, sockopt};

/// A reserved TCP port of 127.0.0.1. While this value exists, the kernel assigns the port neither to another program that
/// requests any free port nor to an outgoing connection.
///
/// The port is bound but does not listen, so connections to it are refused. A program that requests this very port can still
/// listen on it, any number of times, if it sets `SO_REUSEADDR`, as servers do.
#[derive(Debug)]
pub struct Port {
    _held: OwnedFd,
    number: u16,
}

impl Port {
    /// Reserves a free port in the network of the calling thread.
    pub fn reserve() -> io::Result<Self> {
        let held = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        // This must come before `bind`, or no other program could bind the port.
        sockopt::set_socket_reuseaddr(&held, true)?;
        bind(&held, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let address = SocketAddr::try_from(getsockname(&held)?)?;
        Ok(Self { _held: held, number: address.port() })
    }

    /// The number of the port.
    pub fn number(&self) -> u16 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn reserved_port_can_be_bound_repeatedly() {
        let port = Port::reserve().unwrap();
        let address = (Ipv4Addr::LOCALHOST, port.number());
        for _ in 0..3 {
            assert_eq!(TcpStream::connect(address).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
            let listener = TcpListener::bind(address).unwrap();
            drop((TcpStream::connect(address).unwrap(), listener.accept().unwrap()));
        }
    }

    #[test]
    fn kernel_never_assigns_reserved_port() {
        let held: Vec<Port> = (0..200).map(|_| Port::reserve().unwrap()).collect();
        let given: Vec<TcpListener> =
            (0..2_000).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect();
        let number = |listener: &TcpListener| listener.local_addr().unwrap().port();
        assert!(given.iter().map(number).all(|number| held.iter().all(|port| port.number() != number)));
    }
}
