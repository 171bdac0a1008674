//! A port for a program that has to be told where to listen.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket, sockopt};

/// A TCP port of 127.0.0.1 that the kernel gives to nobody else while this lives: neither to who asks for any port nor to
/// an outgoing connection.
///
/// It is bound and does not listen, so a connection to it is refused. Who names the port can listen at it all the same, as
/// often as it likes, if it sets `SO_REUSEADDR`, as servers do.
#[derive(Debug)]
pub struct Port {
    _held: OwnedFd,
    number: u16,
}

impl Port {
    /// A port that is free, in the network of the calling thread.
    pub fn reserve() -> io::Result<Self> {
        let held = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        // Before it is bound, or it would be ours alone.
        sockopt::set_socket_reuseaddr(&held, true)?;
        bind(&held, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let address = SocketAddr::try_from(getsockname(&held)?)?;
        Ok(Self { _held: held, number: address.port() })
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn who_names_the_port_can_listen_at_it_again_and_again() {
        let port = Port::reserve().unwrap();
        let address = (Ipv4Addr::LOCALHOST, port.number());
        for _ in 0..3 {
            assert_eq!(TcpStream::connect(address).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
            let listener = TcpListener::bind(address).unwrap();
            drop((TcpStream::connect(address).unwrap(), listener.accept().unwrap()));
        }
    }

    #[test]
    fn nobody_is_given_a_port_that_is_held() {
        let held: Vec<Port> = (0..200).map(|_| Port::reserve().unwrap()).collect();
        let given: Vec<TcpListener> =
            (0..2_000).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).collect();
        let number = |listener: &TcpListener| listener.local_addr().unwrap().port();
        assert!(given.iter().map(number).all(|number| held.iter().all(|port| port.number() != number)));
    }
}
