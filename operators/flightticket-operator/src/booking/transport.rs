//! The HTTP transport to the provider: a deadline for each phase, a limited body, no redirects.

use std::{
    path::PathBuf,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, SystemTime},
};

use api_errors::chain;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use manager::SharedCertificate;
use parking_lot::Mutex;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{
        CertificateDer,
        pem::{self, PemObject},
    },
};
use tokio::time::timeout;
use tower::Service;

/// The maximum size of an answer, in bytes.
const LARGEST_BODY: usize = 64 * 1024;
/// How long an idle connection is kept for the next request.
const IDLE: Duration = Duration::from_secs(30);

/// Sends requests to the provider. Tests implement it without a network.
pub trait Transport: Send + Sync + 'static {
    /// Sends a request, and reads the whole answer.
    ///
    /// # Errors
    ///
    /// If there is no whole answer.
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Bytes>, Failure>>;
}

/// Why there is no whole answer. In all cases but the first the request may have been carried out.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The certificate authorities could not be loaded. The request was not sent.
    #[error("{0}")]
    Settings(String),
    /// There was no connection, or it broke before the answer.
    #[error("no answer: {0}")]
    Broken(String),
    /// A phase took too long.
    #[error("no {phase} within {}s", after.as_secs())]
    Late {
        /// The phase: `connection`, `answer` or `end of the answer`.
        phase: &'static str,
        /// The limit.
        after: Duration,
    },
    /// The connection broke in the middle of the answer.
    #[error("the answer broke off: {0}")]
    Truncated(String),
    /// The answer is larger than the limit.
    #[error("the answer has more than {LARGEST_BODY} bytes")]
    TooLarge,
}

/// The certificate authorities that a client trusts.
#[derive(Debug, Clone, Default)]
pub enum Trust {
    /// Those of the system.
    #[default]
    System,
    /// Those in a file.
    File(PathBuf),
    /// That of a certificate which this process issues.
    Shared(SharedCertificate),
}

/// HTTP/1.1, with TLS for `https`.
pub struct Https {
    trust: Trust,
    limit: Duration,
    cached: Mutex<Option<CachedClient>>,
}

/// A client with one version of the authorities. Another version leads to another client.
struct CachedClient {
    version: Version,
    client: HttpClient,
}

/// A version of the authorities.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Version {
    /// The modification time of the file, if there is one.
    Modified(Option<SystemTime>),
    /// The authorities themselves, in PEM.
    Pem(Arc<str>),
}

type HttpClient = Client<TimeLimited<HttpsConnector<HttpConnector>>, Full<Bytes>>;

impl Https {
    /// Creates a transport. `limit` is for each phase: the connection, the head of the answer, and its body. It reads the
    /// authorities with the first request, not before.
    pub fn new(trust: Trust, limit: Duration) -> Self {
        Self { trust, limit, cached: Mutex::default() }
    }

    async fn client(&self, is_tls: bool) -> Result<HttpClient, Failure> {
        let version = match &self.trust {
            Trust::Shared(certificate) if is_tls => {
                let failed = |error: manager::Error| {
                    Failure::Settings(format!("--booking-certificate-secret: {}", error.chain()))
                };
                Version::Pem(certificate.authorities().await.map_err(failed)?)
            }
            Trust::File(path) => Version::Modified(std::fs::metadata(path).ok().and_then(|it| it.modified().ok())),
            Trust::System | Trust::Shared(_) => Version::Modified(None),
        };
        let mut cached = self.cached.lock();
        if let Some(cached) = cached.as_ref().filter(|cached| cached.version == version) {
            return Ok(cached.client.clone());
        }
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        let tls = self.config(&version, is_tls).map_err(Failure::Settings)?;
        let https =
            HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(http);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .build(TimeLimited { inner: https, limit: self.limit });
        *cached = Some(CachedClient { version, client: client.clone() });
        Ok(client)
    }

    fn config(&self, version: &Version, is_tls: bool) -> Result<ClientConfig, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let builder = match (&self.trust, version) {
            (_, Version::Pem(pem)) => {
                let failed = |problem| format!("cannot use the authorities of --booking-certificate-secret: {problem}");
                builder.with_root_certificates(roots(CertificateDer::pem_slice_iter(pem.as_bytes())).map_err(failed)?)
            }
            (Trust::File(path), _) => {
                let failed = |problem: String| format!("cannot use --booking-ca-file {}: {problem}", path.display());
                let certificates = CertificateDer::pem_file_iter(path).map_err(|error| failed(error.to_string()))?;
                builder.with_root_certificates(roots(certificates).map_err(failed)?)
            }
            (Trust::System, _) if is_tls => builder.with_native_roots().map_err(|error| {
                let advice = "set SSL_CERT_FILE (in the chart: caBundle) or --booking-ca-file";
                // A status cuts long messages, so the advice comes before the details.
                format!("the system has no certificate authorities; {advice} ({error})")
            })?,
            (Trust::System | Trust::Shared(_), _) => builder.with_root_certificates(RootCertStore::empty()),
        };
        Ok(builder.with_no_client_auth())
    }
}

/// Returns the authorities of these certificates.
fn roots(
    certificates: impl Iterator<Item = Result<CertificateDer<'static>, pem::Error>>,
) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    if roots.is_empty() { Err("it contains no certificate".to_owned()) } else { Ok(roots) }
}

impl Transport for Https {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Bytes>, Failure>> {
        Box::pin(async move {
            let client = self.client(request.uri().scheme_str() == Some("https")).await?;
            let late = |phase, after| move |_| Failure::Late { phase, after };
            // Twice the limit, because it covers connecting too, which `TimeLimited` limits.
            let limit = self.limit * 2;
            let answer = timeout(limit, client.request(request.map(Full::new))).await.map_err(late("answer", limit))?;
            let (head, body) = answer.map_err(|error| Failure::Broken(chain(&error)))?.into_parts();
            let body = Limited::new(body, LARGEST_BODY).collect();
            let body = timeout(self.limit, body).await.map_err(late("end of the answer", self.limit))?;
            let body = body.map_err(|error| {
                if error.is::<LengthLimitError>() { Failure::TooLarge } else { Failure::Truncated(chain(&*error)) }
            })?;
            Ok(Response::from_parts(head, body.to_bytes()))
        })
    }
}

/// A connector with a time limit.
#[derive(Debug, Clone)]
struct TimeLimited<C> {
    inner: C,
    limit: Duration,
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl<C> Service<Uri> for TimeLimited<C>
where
    C: Service<Uri, Error = BoxError, Future: Send + 'static>,
    C::Response: Send,
{
    type Response = C::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<C::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (connecting, limit) = (self.inner.call(uri), self.limit);
        Box::pin(async move {
            let late = |_| Failure::Late { phase: "connection", after: limit };
            timeout(limit, connecting).await.map_err(late)?
        })
    }
}
