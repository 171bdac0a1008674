//! The whole process: reads files, listens, serves, drains.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{Router, middleware, response::Response, routing::get};
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Empty;
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use serving::{CertificateError, Certificates, ClientAuthorities, Limits, Listener, Tls, TlsError};
use tokio_util::sync::CancellationToken;

use crate::{
    ApiServer, ClientError, FlagError, Flags, Guard, Metrics, Reviewer, admit, api_server,
    flags::Settings,
    proxy::{Proxy, Upstream},
};

/// Bytes of memory for the requests of each listener that are in flight. The chart gives the proxy 64 MiB, and scrapes are few.
const REQUESTS: usize = 4 * 1024 * 1024;

/// A proxy that listens. It serves only within [`run`](Self::run).
#[must_use = "the proxy answers no request before `run`"]
pub struct Program {
    secure: Option<Listener>,
    insecure: Option<Listener>,
    endpoints: Option<Listener>,
    proxy: Arc<Proxy>,
    certificates: Option<Certificates>,
    authorities: Option<ClientAuthorities>,
    ready: Arc<AtomicBool>,
}

/// Why the proxy does not start.
#[derive(Debug, thiserror::Error)]
pub enum Fatal {
    /// The flags are invalid.
    #[error(transparent)]
    Flags(#[from] FlagError),
    /// A certificate, a key or a bundle cannot be used.
    #[error("{flag}: {source}{}", cause(source))]
    Certificate {
        /// The flag.
        flag: &'static str,
        /// Why.
        source: CertificateError,
    },
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A certificate or a key for TLS with the upstream cannot be used.
    #[error("{flag} {}: {problem}", path.display())]
    Upstream {
        /// The flag.
        flag: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why.
        problem: String,
    },
    /// The client of the API server cannot be made.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The address is in use, or the process may not listen on it.
    #[error("cannot listen on {address}: {source}; choose another address with {flag}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
        /// The flag.
        flag: &'static str,
    },
    /// Two metrics have the same name.
    #[error("metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}

impl Fatal {
    /// Whether other flags or files would help; then the exit code is 2.
    pub fn is_usage(&self) -> bool {
        !matches!(self, Self::Listen { .. } | Self::Metrics(_))
    }
}

fn cause(error: &CertificateError) -> String {
    std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default()
}

impl Program {
    /// Reads all files and listens. Sends nothing to the API server before the first request of a client.
    pub async fn start(flags: &Flags) -> Result<Self, Fatal> {
        let settings = flags.settings()?; // Report invalid flags before a missing cluster.
        let client = api_server::client(flags.kubeconfig.as_deref()).await?;
        let reviewer = ApiServer::new(client, flags.auth_token_audiences.clone());
        Self::listen(flags, settings, Arc::new(reviewer)).await
    }

    /// As [`start`](Self::start), but with another reviewer than the API server.
    pub async fn with_reviewer(flags: &Flags, reviewer: Arc<dyn Reviewer>) -> Result<Self, Fatal> {
        Self::listen(flags, flags.settings()?, reviewer).await
    }

    async fn listen(flags: &Flags, settings: Settings, reviewer: Arc<dyn Reviewer>) -> Result<Self, Fatal> {
        for flag in &settings.ignored {
            tracing::warn!("--{flag} has no effect");
        }
        let metrics = Arc::new(Metrics::new()?);
        let connector = connector(flags)?;
        let mut builder = Client::builder(TokioExecutor::new());
        builder.pool_timer(TokioTimer::new()).pool_idle_timeout(Duration::from_secs(30)).pool_max_idle_per_host(8);
        let client = builder.http2_only(flags.upstream_force_h2c).build::<_, Empty<Bytes>>(connector);
        let Settings { scheme, authority, .. } = settings;
        let upstream = Upstream { client, scheme, authority, timeout: flags.upstream_timeout };
        let guard = Arc::new(Guard::new(settings.rules, reviewer, settings.times, metrics.clone()));
        let proxy = Proxy { guard, upstream, identity: settings.identity, metrics: metrics.clone() };

        let (mut certificates, mut authorities, mut tls) = (None, None, None);
        if settings.secure.is_some() {
            let shown = certificates.insert(certificates_of(flags)?);
            shown.observe(metrics.clone());
            let mut setup =
                Tls::new(shown.clone()).min_version(settings.min_version).cipher_suites(settings.cipher_suites);
            if let Some(path) = &flags.client_ca_file {
                let failed = |source| Fatal::Certificate { flag: "--client-ca-file", source };
                let trusted = authorities.insert(ClientAuthorities::from_file(path).map_err(failed)?);
                trusted.observe(metrics.clone());
                setup = setup.client_authorities(trusted.clone());
            }
            tls = Some(setup);
        }
        let limits = Limits {
            header_size: 32 * 1024,
            body_size: 0,
            memory: REQUESTS,
            connections: flags.max_connections,
            drain: flags.graceful_shutdown_timeout,
            ..Limits::default()
        };
        let open = async |address: Option<SocketAddr>, flag, tls: Option<&Tls>| {
            let Some(address) = address else { return Ok(None) };
            let listener = Listener::bind(address).await.map_err(|source| Fatal::Listen { address, source, flag })?;
            let listener = listener.limits(limits.clone()).observed_by(metrics.clone());
            Ok::<_, Fatal>(Some(match (tls.cloned(), settings.http2.clone()) {
                (None, _) => listener,
                (Some(tls), None) => listener.tls(tls)?,
                (Some(tls), Some(http2)) => listener.tls_with_http2(tls, http2)?,
            }))
        };
        Ok(Self {
            secure: open(settings.secure, "--secure-listen-address", tls.as_ref()).await?,
            insecure: open(settings.insecure, "--insecure-listen-address", None).await?,
            endpoints: open(settings.endpoints, "--proxy-endpoints-port", tls.as_ref()).await?,
            proxy: Arc::new(proxy),
            certificates,
            authorities,
            ready: Arc::new(AtomicBool::new(true)),
        })
    }

    /// The address with TLS.
    pub fn secure_address(&self) -> Option<SocketAddr> {
        self.secure.as_ref().map(Listener::local_addr)
    }

    /// The address without TLS.
    pub fn insecure_address(&self) -> Option<SocketAddr> {
        self.insecure.as_ref().map(Listener::local_addr)
    }

    /// Returns a function that reads the certificate files at once, rather than at the next interval.
    pub fn reloader(&self) -> impl Fn() + Send + 'static {
        let (certificates, authorities) = (self.certificates.clone(), self.authorities.clone());
        move || {
            certificates.iter().for_each(Certificates::reload);
            authorities.iter().for_each(ClientAuthorities::reload);
        }
    }

    /// Serves until the stop, and then until running requests have ended.
    pub async fn run(self, stop: CancellationToken) {
        let Self { secure, insecure, endpoints, proxy, certificates: _, authorities: _, ready } = self;
        let own = own_endpoints(&proxy, ready.clone());
        let service = service_stack(proxy);
        let serve = |listener: Option<Listener>, kind| {
            let (service, stop) = (service.clone(), stop.clone());
            async move {
                let Some(listener) = listener else { return };
                tracing::info!(address = %listener.local_addr(), kind, "listening");
                listener.serve(service, stop.cancelled_owned()).await;
            }
        };
        // Answer probes until all other requests have ended.
        let done = CancellationToken::new();
        let probes = async {
            if let Some(listener) = endpoints {
                tracing::info!(address = %listener.local_addr(), kind = "own endpoints", "listening");
                listener.serve(own, done.clone().cancelled_owned()).await;
            }
        };
        let main = async {
            let announce_stop = async {
                stop.cancelled().await;
                ready.store(false, Ordering::Relaxed);
                tracing::info!("stopping");
            };
            tokio::join!(announce_stop, serve(secure, "TLS"), serve(insecure, "plain"));
            done.cancel();
        };
        tokio::join!(main, probes);
    }
}

fn service_stack(
    proxy: Arc<Proxy>,
) -> impl tower::Service<Request<serving::Body>, Response = Response, Error = std::convert::Infallible, Future: Send>
+ Clone
+ Send
+ 'static {
    tower::service_fn(move |request| {
        let proxy = proxy.clone();
        async move { Ok(proxy.serve(request).await) }
    })
}

fn own_endpoints(proxy: &Arc<Proxy>, ready: Arc<AtomicBool>) -> Router {
    let metrics = proxy.metrics.clone();
    let text = async move || metrics.text().map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()));
    let is_ready = async move || {
        if ready.load(Ordering::Relaxed) {
            (StatusCode::OK, "ok")
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, "stopping")
        }
    };
    Router::new()
        .route("/metrics", get(text))
        .layer(middleware::from_fn_with_state(proxy.guard.clone(), admit))
        .route("/healthz", get(async || "ok"))
        .route("/readyz", get(is_ready))
}

fn certificates_of(flags: &Flags) -> Result<Certificates, Fatal> {
    let failed = |source| Fatal::Certificate { flag: "--tls-cert-file", source };
    if let (Some(certificate), Some(key)) = (&flags.tls_cert_file, &flags.tls_private_key_file) {
        return Certificates::from_files(certificate, key).map_err(failed);
    }
    tracing::warn!("no --tls-cert-file: using a self-signed certificate");
    self_signed().map_err(failed)
}

/// Makes a self-signed certificate for `localhost`, for clients that do not verify it, such as a scraper with verification off.
pub fn self_signed() -> Result<Certificates, CertificateError> {
    let problem = |error: rcgen::Error| CertificateError::Bundle(error.to_string());
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).map_err(problem)?;
    Certificates::from_pem(made.cert.pem().as_bytes(), made.signing_key.serialize_pem().as_bytes())
}

fn connector(flags: &Flags) -> Result<HttpsConnector<HttpConnector>, Fatal> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Nothing(error.to_string()))?;
    let builder = if let Some(path) = &flags.upstream_ca_file {
        let failed = |problem| Fatal::Upstream { flag: "--upstream-ca-file", path: path.clone(), problem };
        let mut roots = RootCertStore::empty();
        for certificate in certificates_in(path).map_err(failed)? {
            roots.add(certificate).map_err(|error| failed(error.to_string()))?;
        }
        builder.with_root_certificates(roots)
    } else if flags.upstream.starts_with("https:") {
        let failed = |error: io::Error| Fatal::Upstream {
            flag: "--upstream-ca-file",
            path: PathBuf::new(),
            problem: format!("not given, and the system has no authorities ({error})"),
        };
        builder.with_native_roots().map_err(failed)?
    } else {
        builder.with_root_certificates(RootCertStore::empty())
    };
    let config = match (&flags.upstream_client_cert_file, &flags.upstream_client_key_file) {
        (Some(path), Some(key)) => {
            let failed = |problem| Fatal::Upstream { flag: "--upstream-client-cert-file", path: path.clone(), problem };
            let chain = certificates_in(path).map_err(failed)?;
            let key = PrivateKeyDer::from_pem_file(key).map_err(|error| Fatal::Upstream {
                flag: "--upstream-client-key-file",
                path: key.clone(),
                problem: error.to_string(),
            })?;
            builder.with_client_auth_cert(chain, key).map_err(|error| failed(error.to_string()))?
        }
        _ => builder.with_no_client_auth(),
    };
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(Duration::from_secs(5)));
    Ok(HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1().wrap_connector(http))
}

fn certificates_in(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match certificates {
        Ok(certificates) if certificates.is_empty() => Err("there is no certificate in it".to_owned()),
        other => other.map_err(|error| error.to_string()),
    }
}
