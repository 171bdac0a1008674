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
use parking_lot::Mutex;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
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

/// HTTP/1.1, with TLS for `https`.
pub struct Https {
    ca_file: Option<PathBuf>,
    limit: Duration,
    made: Mutex<Option<Made>>,
}

/// A client with the authorities of one version of the file. A newer file leads to another client.
struct Made {
    modified: Option<SystemTime>,
    client: Connected,
}

type Connected = Client<Patient<HttpsConnector<HttpConnector>>, Full<Bytes>>;

impl Https {
    /// Creates a transport that trusts the authorities in `ca_file`, or those of the system. `limit` is for each phase: the
    /// connection, the head of the answer, and its body. It reads the file with the first request, not before.
    pub fn new(ca_file: Option<PathBuf>, limit: Duration) -> Self {
        Self { ca_file, limit, made: Mutex::default() }
    }

    fn client(&self, is_tls: bool) -> Result<Connected, Failure> {
        let modified = self.ca_file.as_ref().and_then(|path| std::fs::metadata(path).ok()?.modified().ok());
        let mut made = self.made.lock();
        if let Some(made) = made.as_ref().filter(|made| made.modified == modified) {
            return Ok(made.client.clone());
        }
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        let tls = self.trust(is_tls).map_err(Failure::Settings)?;
        let https =
            HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(http);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .build(Patient { inner: https, limit: self.limit });
        *made = Some(Made { modified, client: client.clone() });
        Ok(client)
    }

    fn trust(&self, is_tls: bool) -> Result<ClientConfig, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let builder = if let Some(path) = &self.ca_file {
            let failed = |problem: String| format!("cannot use --booking-ca-file {}: {problem}", path.display());
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_file_iter(path).map_err(|error| failed(error.to_string()))? {
                let certificate = certificate.map_err(|error| failed(error.to_string()))?;
                roots.add(certificate).map_err(|error| failed(error.to_string()))?;
            }
            if roots.is_empty() {
                return Err(failed("the file contains no certificate".to_owned()));
            }
            builder.with_root_certificates(roots)
        } else if is_tls {
            builder.with_native_roots().map_err(|error| {
                format!("the system has no certificate authorities ({error}); set --booking-ca-file")
            })?
        } else {
            builder.with_root_certificates(RootCertStore::empty())
        };
        Ok(builder.with_no_client_auth())
    }
}

impl Transport for Https {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<Bytes>, Failure>> {
        Box::pin(async move {
            let client = self.client(request.uri().scheme_str() == Some("https"))?;
            let late = |phase, after| move |_| Failure::Late { phase, after };
            // Twice the limit, because it covers connecting too, which `Patient` limits.
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
struct Patient<C> {
    inner: C,
    limit: Duration,
}

type Failed = Box<dyn std::error::Error + Send + Sync>;

impl<C> Service<Uri> for Patient<C>
where
    C: Service<Uri, Error = Failed, Future: Send + 'static>,
    C::Response: Send,
{
    type Response = C::Response;
    type Error = Failed;
    type Future = Pin<Box<dyn Future<Output = Result<C::Response, Failed>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Failed>> {
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
