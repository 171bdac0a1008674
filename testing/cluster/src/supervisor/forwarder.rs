//! Forwards connections from outside of a cluster's private network to the API server inside.
//!
//! A socket always belongs to the network in which it was created. The listening socket on standard input was created outside, so
//! it accepts connections from there; this process then connects to the API server inside. So no process, device or route is
//! needed outside.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::thread;

use anyhow::{Context, Result};

pub(super) fn forward_stdin(port: u16) -> Result<()> {
    let socket = std::io::stdin().as_fd().try_clone_to_owned().context("could not take the listening socket")?;
    forward(TcpListener::from(socket), port);
    Ok(())
}

/// Forwards what the listener accepts to the port in the network of the calling thread.
pub(super) fn forward(listener: TcpListener, port: u16) {
    thread::spawn(move || {
        for outside in listener.incoming().filter_map(Result::ok) {
            if let Ok(inside) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
                let _ = join(outside, inside); // fails if there are no descriptors; the client then retries
            }
        }
    });
}

/// Copies in both directions until both sides have finished.
fn join(outside: TcpStream, inside: TcpStream) -> Result<()> {
    outside.set_nodelay(true)?;
    inside.set_nodelay(true)?;
    let (from_outside, from_inside) = (outside.try_clone()?, inside.try_clone()?);
    thread::spawn(move || copy(from_outside, inside));
    thread::spawn(move || copy(from_inside, outside));
    Ok(())
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..read]).is_err() {
            let _ = from.shutdown(Shutdown::Both); // so that the other side stops sending
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwarder_relays_both_directions_until_eof() {
        let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (outer, inner) = (listen(), listen());
        let mut client = TcpStream::connect(outer.local_addr().unwrap()).unwrap();
        let to_inner = TcpStream::connect(inner.local_addr().unwrap()).unwrap();
        join(outer.accept().unwrap().0, to_inner).unwrap();
        let mut server = inner.accept().unwrap().0;

        client.write_all(b"question").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut heard = String::new();
        server.read_to_string(&mut heard).unwrap();
        server.write_all(b"answer").unwrap();
        drop(server);
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert_eq!((heard.as_str(), answer.as_str()), ("question", "answer"));
    }
}
