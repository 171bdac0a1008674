//! Calls the own listener as the API server would: with the trust that was read back from where the API server reads it.

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

/// Whether the listener answers, and shows a certificate for `name` that `bundle` vouches for. Without a bundle nobody
/// has been told whom to trust, and answering is enough.
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

/// Where a listener at `address` can be called from here. All addresses are those of both families, of which a machine may
/// have one only.
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
    async fn a_listener_at_all_addresses_is_called_at_one_that_there_is() {
        for all in ["[::]:0", "0.0.0.0:0"] {
            let listener = serving::Listener::bind(all.parse().expect("an address")).await.expect("a port");
            assert_eq!(check(listener.local_addr(), None, None).await, Ok(()), "{all}");
        }
        // A machine with IPv6 switched off may have the socket, and not the address.
        let only_v4 = serving::Listener::bind("127.0.0.1:0".parse().expect("an address")).await.expect("a port");
        let all = SocketAddr::from((Ipv6Addr::UNSPECIFIED, only_v4.local_addr().port()));
        assert_eq!(check(all, None, None).await, Ok(()));
    }
}
