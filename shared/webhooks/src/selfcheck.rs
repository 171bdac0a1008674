//! The self-check: connects to the own listener as the API server would, with the `caBundle` that it reads.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

const DEADLINE: Duration = Duration::from_secs(10);

/// Checks that the listener accepts connections, and has a certificate for `name` that the CAs in `bundle` have signed. Without
/// a bundle or a name, it only has to accept connections.
///
/// # Errors
///
/// A message for `/readyz`.
pub(super) async fn check(address: SocketAddr, bundle: Option<&str>, name: Option<&str>) -> Result<(), String> {
    let dial = async {
        let connection = TcpStream::connect(&*local(address))
            .await
            .map_err(|error| format!("cannot connect to {address}: {error}"))?;
        let (Some(bundle), Some(name)) = (bundle, name) else { return Ok(()) };
        let server = ServerName::try_from(name.to_owned()).map_err(|error| format!("{name}: {error}"))?;
        let connector = TlsConnector::from(Arc::new(trusting(bundle)?));
        match connector.connect(server, connection).await {
            Ok(_) => Ok(()),
            Err(error) => Err(format!("the API server would not trust our certificate for {name}: {error}")),
        }
    };
    tokio::time::timeout(DEADLINE, dial).await.unwrap_or_else(|_| Err(format!("{address} does not answer")))
}

/// The addresses at which to try a listener at `address`. One at `[::]` listens on IPv4 too, and the machine may lack either
/// family.
fn local(address: SocketAddr) -> Vec<SocketAddr> {
    let v4 = SocketAddr::from((Ipv4Addr::LOCALHOST, address.port()));
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => vec![v4],
        IpAddr::V6(ip) if ip.is_unspecified() => vec![(Ipv6Addr::LOCALHOST, address.port()).into(), v4],
        _ => vec![address],
    }
}

fn trusting(bundle: &str) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        let certificate = certificate.map_err(|error| format!("the caBundle is not PEM: {error}"))?;
        roots.add(certificate).map_err(|error| format!("the caBundle is not usable: {error}"))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn wildcard_listener_is_checked_at_an_available_address() {
        for all in ["[::]:0", "0.0.0.0:0"] {
            let listener = serving::Listener::bind(all.parse().expect("an address")).await.expect("a port");
            assert_eq!(check(listener.local_addr(), None, None).await, Ok(()), "{all}");
        }
        // With IPv6 disabled, a machine may have an IPv6 socket, but no `::1`.
        let only_v4 = serving::Listener::bind("127.0.0.1:0".parse().expect("an address")).await.expect("a port");
        let all = SocketAddr::from((Ipv6Addr::UNSPECIFIED, only_v4.local_addr().port()));
        assert_eq!(check(all, None, None).await, Ok(()));
    }
}
