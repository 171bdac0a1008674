//! Calls the own listener as the API server would: with the trust that was read back from where the API server reads it.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
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
    let local = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), address.port()),
        IpAddr::V6(ip) if ip.is_unspecified() => SocketAddr::new(std::net::Ipv6Addr::LOCALHOST.into(), address.port()),
        _ => address,
    };
    let dial = async {
        let connection =
            TcpStream::connect(local).await.map_err(|error| format!("cannot connect to {local}: {error}"))?;
        let (Some(bundle), Some(name)) = (bundle, name) else { return Ok(()) };
        let server = ServerName::try_from(name.to_owned()).map_err(|error| format!("{name}: {error}"))?;
        let connector = TlsConnector::from(Arc::new(trusting(bundle)?));
        match connector.connect(server, connection).await {
            Ok(_) => Ok(()),
            Err(error) => Err(format!("the API server would not trust our certificate for {name}: {error}")),
        }
    };
    tokio::time::timeout(DEADLINE, dial).await.unwrap_or_else(|_| Err(format!("{local} does not answer")))
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
