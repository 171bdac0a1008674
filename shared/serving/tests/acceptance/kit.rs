//! Test kit: a server, clients, certificates, and an observer.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::{Router, routing::get};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use serving::{CertificateError, Certificates, Drained, Dropped, Limits, Listener, Observer, Tls};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::JoinHandle,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::sync::CancellationToken;

/// Longest wait for an expected event, on a busy machine, too.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// Waits for a future that must complete.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(PATIENCE, what).await.expect("it did not happen within a minute")
}

/// Signs certificates.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, as PEM text.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, format!("authority {}", fastrand()));
        Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap() }
    }

    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A certificate for localhost that expires in the given year: how tests tell certificates apart.
    pub(crate) fn pair(&self, year: i32) -> Pair {
        self.pair_until(expiry(year))
    }

    /// A certificate for localhost that expires at this time.
    pub(crate) fn pair_until(&self, not_after: SystemTime) -> Pair {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_after = not_after.into();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Pair { certificate, key: key.serialize_pem() }
    }

    /// A client configuration that trusts this authority, with a client certificate if given.
    pub(crate) fn trusted(&self, own: Option<&Pair>) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let builder = builder.with_root_certificates(roots);
        let Some(own) = own else { return builder.with_no_client_auth() };
        let certificate = CertificateDer::from_pem_slice(own.certificate.as_bytes()).unwrap();
        builder
            .with_client_auth_cert(vec![certificate], PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap())
            .unwrap()
    }
}

fn fastrand() -> u128 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos()
}

/// The expiry of a certificate of [`Authority::pair`], by which tests tell certificates apart.
pub(crate) fn expiry(year: i32) -> SystemTime {
    rcgen::date_time_ymd(year, 1, 1).into()
}

/// An event that the observer received.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Certificate(SystemTime),
    Reloaded,
    Refused(String),
    Dropped(Dropped),
}

/// An observer that passes events to a test.
pub(crate) struct Teller(UnboundedSender<Told>);

pub(crate) fn teller() -> (Arc<Teller>, UnboundedReceiver<Told>) {
    let (sender, receiver) = unbounded_channel();
    (Arc::new(Teller(sender)), receiver)
}

impl Observer for Teller {
    fn certificate(&self, not_after: SystemTime) {
        drop(self.0.send(Told::Certificate(not_after)));
    }

    fn reloaded(&self, outcome: Result<(), &CertificateError>) {
        drop(self.0.send(outcome.map_or_else(|error| Told::Refused(error.to_string()), |()| Told::Reloaded)));
    }

    fn dropped(&self, why: Dropped) {
        drop(self.0.send(Told::Dropped(why)));
    }
}

/// A listener that serves.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) stop: CancellationToken,
    pub(crate) told: UnboundedReceiver<Told>,
    task: JoinHandle<Drained>,
}

impl Server {
    pub(crate) async fn plain(limits: Limits, routes: Router) -> Self {
        Self::start(listener().await, limits, routes)
    }

    pub(crate) async fn tls(tls: Tls, limits: Limits, routes: Router) -> Self {
        Self::start(listener().await.tls(tls).unwrap(), limits, routes)
    }

    pub(crate) fn start(listener: Listener, limits: Limits, routes: Router) -> Self {
        let (teller, told) = teller();
        let (address, stop) = (listener.local_addr(), CancellationToken::new());
        let serving = listener.limits(limits).observed_by(teller).serve(routes, stop.clone().cancelled_owned());
        Self { address, stop, told, task: tokio::spawn(serving) }
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        soon(TcpStream::connect(self.address)).await.unwrap()
    }

    pub(crate) async fn connect_tls(&self, config: ClientConfig) -> std::io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from("localhost").unwrap();
        soon(TlsConnector::from(Arc::new(config)).connect(name, self.connect().await)).await
    }

    pub(crate) async fn stopped(self) -> Drained {
        self.stop.cancel();
        self.ended().await
    }

    pub(crate) async fn ended(self) -> Drained {
        soon(self.task).await.unwrap()
    }
}

pub(crate) async fn listener() -> Listener {
    Listener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap()
}

pub(crate) fn hello() -> Router {
    Router::new().route("/", get(async || "hello"))
}

pub(crate) fn tls(pair: &Pair) -> Tls {
    Tls::new(Certificates::from_pem(pair.certificate.as_bytes(), pair.key.as_bytes()).unwrap())
}

/// Sends a request for `/` and reads the answer, leaving the connection open. The body must be `hello`.
pub(crate) async fn ask(stream: &mut (impl AsyncRead + AsyncWriteExt + Unpin)) {
    stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\nhello") {
        let read = soon(stream.read_buf(&mut answer)).await.unwrap();
        assert!(read > 0, "ended after {:?}", String::from_utf8_lossy(&answer));
    }
    assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"), "{}", String::from_utf8_lossy(&answer));
}

/// Sends text and reads until the connection ends, as it must.
pub(crate) async fn tell(stream: &mut (impl AsyncRead + AsyncWriteExt + Unpin), text: &str) -> String {
    stream.write_all(text.as_bytes()).await.unwrap();
    rest(stream).await
}

/// Reads until the connection ends, as it must. A reset counts as an end.
pub(crate) async fn rest(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut answer = Vec::new();
    while soon(stream.read_buf(&mut answer)).await.unwrap_or(0) > 0 {}
    String::from_utf8_lossy(&answer).into_owned()
}
