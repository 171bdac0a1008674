//! Which addresses a listener answers at.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use serving::{Listener, parse_address};
use tokio::net::{TcpListener, TcpStream};

/// Whether this machine has the address; a container may lack a family. A test without one of them counts as skipped.
async fn has(address: IpAddr) -> bool {
    match TcpListener::bind((address, 0)).await {
        Ok(_) => true,
        Err(error) => {
            skip::lacking(format!("this machine does not have {address}: {error}"));
            false
        }
    }
}

async fn answers(address: IpAddr, port: u16) -> io::Result<()> {
    TcpStream::connect((address, port)).await.map(drop)
}

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

#[tokio::test]
async fn port_alone_listens_on_ipv4_and_ipv6() {
    let listener = Listener::bind(parse_address(":0").unwrap()).await.unwrap();
    let mut looked_at = 0;
    for address in [V4, V6] {
        if has(address).await {
            answers(address, listener.local_addr().port()).await.unwrap_or_else(|error| panic!("{address}: {error}"));
            looked_at += 1;
        }
    }
    assert!(looked_at > 0, "this machine has no loopback address");
}

#[tokio::test]
async fn explicit_address_listens_in_one_family() {
    if !(has(V4).await && has(V6).await) {
        return;
    }
    let everywhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    for (address, silent) in [(SocketAddr::from((V6, 0)), V4), (SocketAddr::from((V4, 0)), V6), (everywhere, V6)] {
        let listener = Listener::bind(address).await.unwrap();
        let error = answers(silent, listener.local_addr().port()).await.expect_err("no listener is there");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "{address}");
    }
}

#[tokio::test]
async fn port_taken_in_one_family_fails_bind() {
    if !has(V4).await {
        return;
    }
    let taken = Listener::bind((Ipv4Addr::UNSPECIFIED, 0).into()).await.unwrap();
    let port = taken.local_addr().port();
    let error = Listener::bind(parse_address(&format!(":{port}")).unwrap()).await.err().expect("it is taken");
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
}
