//! Where attackers connect.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context as Task, Poll},
};

use anyhow::{Context, Result, ensure};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf},
    net::{TcpSocket, TcpStream},
    sync::Semaphore,
    time::{Instant, timeout_at},
};
use tokio_rustls::TlsConnector;

use crate::{frames, requests::Requests};

/// Attackers that connect at the same time.
const CONNECTING: usize = 32;
/// The address from which the kubelet asks the probes: that of a node, which no pod has.
const KUBELET: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A port of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Port {
    pub(crate) address: SocketAddr,
    /// Whether it speaks TLS only.
    pub(crate) is_tls: bool,
}

/// A connection.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A target that listens.
#[derive(Clone)]
pub(crate) struct Aim {
    pub(crate) requests: Requests,
    port: Port,
    /// The number of the attacker.
    pub(crate) number: usize,
    /// The address of the client.
    from: Ipv4Addr,
    tls: ClientConfig,
    /// Attackers that may connect at the same time: they share the processors of this machine with the target and the honest client.
    connecting: Arc<Semaphore>,
    /// Attempts of all attackers that have reached the target: it has taken the first bytes after the handshake.
    attempts: Arc<AtomicU64>,
    /// When the round ends.
    pub(crate) end: Instant,
}

impl Aim {
    /// Aims at a port of this machine. Trusts the certificate in `folder`.
    pub(crate) fn new(requests: Requests, port: Port, folder: &Path) -> Result<Self> {
        let address = port.address;
        ensure!(address.ip().is_loopback(), "{address} is not a loopback address: only our own programs are attacked");
        Ok(Self {
            requests,
            port,
            number: 0,
            from: Ipv4Addr::LOCALHOST,
            tls: trusting(&folder.join("tls.crt"))?,
            connecting: Arc::new(Semaphore::new(CONNECTING)),
            attempts: Arc::default(),
            end: Instant::now(),
        })
    }

    /// Connects without a handshake, and sends nothing.
    pub(crate) async fn tcp(&self) -> Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        // Without this, each connection would need a port that no other client address uses.
        socket.set_reuseaddr(true)?;
        socket.bind((self.from, 0).into())?;
        Ok(socket.connect(self.port.address).await?)
    }

    /// Connects without a handshake, for an attacker that sends something else. Its first bytes count as an attempt.
    pub(crate) async fn bare(&self) -> Result<Box<dyn Stream>> {
        Ok(self.counted(self.tcp().await?))
    }

    /// The same for the attacker of this number, of those that have this number of addresses together. The honest client has an
    /// address of its own, if there is any.
    pub(crate) fn of_attacker(&self, number: usize, addresses: u8) -> Self {
        let host = u8::try_from(number % usize::from(addresses.max(1))).unwrap_or_default();
        let from = if addresses == 0 { self.from } else { Ipv4Addr::new(127, 0, 1, host + 1) };
        Self { number, from, ..self.clone() }
    }

    /// The same for an attacker of one of several attacks at once. Each attack has addresses of its own, unless the attackers have
    /// the address of the honest client.
    pub(crate) fn of_attack(&self, place: u8) -> Self {
        let [first, second, third, host] = self.from.octets();
        let third = if self.from == Ipv4Addr::LOCALHOST { third } else { third.saturating_add(place) };
        Self { from: Ipv4Addr::new(first, second, third, host), ..self.clone() }
    }

    /// The same for the honest client, who does not wait behind attackers to connect.
    pub(crate) fn of_honest_client(&self) -> Self {
        Self { connecting: Arc::new(Semaphore::new(1)), attempts: Arc::default(), ..self.clone() }
    }

    /// The same for the kubelet, which asks a probe at this port.
    pub(crate) fn of_kubelet(&self, port: Port) -> Self {
        Self { port, from: KUBELET, ..self.of_honest_client() }
    }

    /// Counts an attempt that has reached the target without sending anything after the handshake.
    pub(crate) fn count(&self) {
        self.attempts.fetch_add(1, Ordering::Relaxed);
    }

    /// Attempts of all attackers that have reached the target.
    pub(crate) fn attempts(&self) -> u64 {
        self.attempts.load(Ordering::Relaxed)
    }

    fn counted(&self, stream: impl Stream + 'static) -> Box<dyn Stream> {
        Box::new(Counted { stream, attempts: Some(self.attempts.clone()) })
    }

    /// Connects for HTTP/1.1.
    pub(crate) async fn connect(&self) -> Result<Box<dyn Stream>> {
        Ok(self.counted(self.connect_with(b"http/1.1").await?))
    }

    /// Connects for HTTP/2, and sends the preface and these settings.
    pub(crate) async fn connect_http2(&self, settings: &[(u16, u32)]) -> Result<Box<dyn Stream>> {
        let mut stream = self.connect_with(b"h2").await?;
        stream.write_all(&[frames::PREFACE, &frames::settings(settings)].concat()).await?;
        Ok(self.counted(stream))
    }

    async fn connect_with(&self, protocol: &[u8]) -> Result<Box<dyn Stream>> {
        let _turn = self.connecting.acquire().await?;
        let stream = self.tcp().await?;
        stream.set_nodelay(true)?;
        if !self.port.is_tls {
            return Ok(Box::new(stream));
        }
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

/// A stream that counts as an attempt when the target has taken the first bytes.
struct Counted<S> {
    stream: S,
    /// `None` when it is counted.
    attempts: Option<Arc<AtomicU64>>,
}

impl<S: Stream> AsyncRead for Counted<S> {
    fn poll_read(mut self: Pin<&mut Self>, task: &mut Task<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(task, buffer)
    }
}

impl<S: Stream> AsyncWrite for Counted<S> {
    fn poll_write(mut self: Pin<&mut Self>, task: &mut Task<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(task, bytes);
        if matches!(written, Poll::Ready(Ok(1..)))
            && let Some(attempts) = self.attempts.take()
        {
            attempts.fetch_add(1, Ordering::Relaxed);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(task)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(task)
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
    use tokio::net::TcpListener;

    use super::*;
    use crate::target::{Target, write_certificate};

    fn aim_at(address: SocketAddr) -> Result<Aim> {
        let folder = tempfile::tempdir()?;
        write_certificate(folder.path())?;
        Aim::new(Requests::of_library(Target::BookingProbes), Port { address, is_tls: false }, folder.path())
    }

    #[test]
    fn only_loopback_is_attacked() {
        let aim = |address: &str| aim_at(address.parse().expect("an address"));
        for ours in ["127.0.0.1:1", "127.0.0.2:1"] {
            assert!(aim(ours).is_ok(), "{ours}");
        }
        for other in ["10.0.0.1:443", "0.0.0.0:443", "[2001:db8::1]:443", "[::ffff:10.0.0.1]:443"] {
            assert!(aim(other).is_err(), "{other}");
        }
    }

    #[test]
    fn attacks_at_once_have_addresses_of_their_own() {
        let aim = aim_at(([127, 0, 0, 1], 1).into()).expect("loopback");
        let from = |addresses, place| aim.of_attacker(9, addresses).of_attack(place).from.octets();
        assert_eq!([from(8, 0), from(8, 2), from(1, 1)], [[127, 0, 1, 2], [127, 0, 3, 2], [127, 0, 2, 1]]);
        assert_eq!(from(0, 2), [127, 0, 0, 1], "the address of the honest client");
    }

    #[tokio::test]
    async fn attempt_counts_once_and_only_if_it_has_reached_the_target() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let aim = aim_at(listener.local_addr().expect("an address")).expect("loopback");
        let mut stream = aim.of_attacker(0, 1).connect().await.expect("a connection");
        assert_eq!(aim.attempts(), 0, "nothing is sent");
        for _ in 0..2 {
            stream.write_all(b"x").await.expect("it is taken");
            assert_eq!(aim.attempts(), 1);
        }
        let mut honest = aim.of_honest_client().connect().await.expect("a connection");
        honest.write_all(b"x").await.expect("it is taken");
        assert_eq!(aim.attempts(), 1, "the honest client is no attacker");
        drop(listener);
        assert!(aim.connect().await.is_err());
        assert_eq!(aim.attempts(), 1, "no server listens");
    }
}
