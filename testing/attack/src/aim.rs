//! Where attackers connect.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
};

use anyhow::{Context, Result, ensure};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    sync::Semaphore,
    time::{Instant, timeout_at},
};
use tokio_rustls::TlsConnector;

use crate::{frames, requests::Requests};

/// Attackers that connect at the same time.
const CONNECTING: usize = 32;

/// A connection.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A target that listens.
#[derive(Clone)]
pub(crate) struct Aim {
    pub(crate) requests: Requests,
    address: SocketAddr,
    /// The address of the client.
    from: Ipv4Addr,
    tls: ClientConfig,
    /// Attackers that may connect at the same time: they share the processors of this machine with the target and the honest client.
    connecting: Arc<Semaphore>,
    /// When the round ends.
    pub(crate) end: Instant,
}

impl Aim {
    /// Aims at an address of this machine. Trusts the certificate in `folder`.
    pub(crate) fn new(requests: Requests, address: SocketAddr, folder: &Path) -> Result<Self> {
        ensure!(address.ip().is_loopback(), "{address} is not a loopback address: only our own programs are attacked");
        let tls = trusting(&folder.join("tls.crt"))?;
        let connecting = Arc::new(Semaphore::new(CONNECTING));
        Ok(Self { requests, address, from: Ipv4Addr::LOCALHOST, tls, connecting, end: Instant::now() })
    }

    pub(crate) async fn tcp(&self) -> Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        // Without this, each connection would need a port that no other client address uses.
        socket.set_reuseaddr(true)?;
        socket.bind((self.from, 0).into())?;
        Ok(socket.connect(self.address).await?)
    }

    /// The same for the attacker of this number, of those that have this number of addresses together. The honest client has an
    /// address of its own, if there is any.
    pub(crate) fn of_attacker(&self, number: usize, addresses: u8) -> Self {
        let host = u8::try_from(number % usize::from(addresses.max(1))).unwrap_or_default();
        let from = if addresses == 0 { self.from } else { Ipv4Addr::new(127, 0, 1, host + 1) };
        Self { from, ..self.clone() }
    }

    /// The same for the honest client, who does not wait behind attackers to connect.
    pub(crate) fn of_honest_client(&self) -> Self {
        Self { connecting: Arc::new(Semaphore::new(1)), ..self.clone() }
    }

    /// Connects for HTTP/1.1.
    pub(crate) async fn connect(&self) -> Result<Box<dyn Stream>> {
        self.connect_with(b"http/1.1").await
    }

    /// Connects for HTTP/2, and sends the preface and these settings.
    pub(crate) async fn connect_http2(&self, settings: &[(u16, u32)]) -> Result<Box<dyn Stream>> {
        let mut stream = self.connect_with(b"h2").await?;
        stream.write_all(&[frames::PREFACE, &frames::settings(settings)].concat()).await?;
        Ok(stream)
    }

    async fn connect_with(&self, protocol: &[u8]) -> Result<Box<dyn Stream>> {
        let _turn = self.connecting.acquire().await?;
        let stream = self.tcp().await?;
        stream.set_nodelay(true)?;
        let mut config = self.tls.clone();
        config.alpn_protocols = vec![protocol.to_vec()];
        let name = ServerName::try_from("localhost")?;
        Ok(Box::new(TlsConnector::from(Arc::new(config)).connect(name, stream).await?))
    }

    /// Reads and forgets input until the server ends the connection, or until the end of the round.
    pub(crate) async fn hold(&self, mut stream: impl AsyncRead + Unpin) {
        let mut ignored = [0; 4096];
        while matches!(timeout_at(self.end, stream.read(&mut ignored)).await, Ok(Ok(1..))) {}
    }

    /// Keeps the connection open without reading.
    pub(crate) async fn ignore(&self, stream: impl AsyncRead) {
        tokio::time::sleep_until(self.end).await;
        drop(stream);
    }
}

fn trusting(certificate: &Path) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate).context("could not read the certificate of the target")?)?;
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    Ok(builder.with_safe_default_protocol_versions()?.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{Target, write_certificate};

    #[test]
    fn only_loopback_is_attacked() {
        let folder = tempfile::tempdir().expect("a folder");
        write_certificate(folder.path()).expect("a certificate");
        let aim = |address: &str| {
            let requests = Requests::of_library(Target::BookingServer);
            Aim::new(requests, address.parse().expect("an address"), folder.path())
        };
        for ours in ["127.0.0.1:1", "127.0.0.2:1"] {
            assert!(aim(ours).is_ok(), "{ours}");
        }
        for other in ["10.0.0.1:443", "0.0.0.0:443", "[2001:db8::1]:443", "[::ffff:10.0.0.1]:443"] {
            assert!(aim(other).is_err(), "{other}");
        }
    }
}
