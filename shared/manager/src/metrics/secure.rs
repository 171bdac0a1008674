//! `--metrics-secure`: serves metrics over TLS, to clients that the API server authenticates and authorizes. It does in this
//! process what the `metrics-proxy` sidecar does otherwise.

use std::{path::Path, sync::Arc};

use axum::{Router, middleware};
use metrics_proxy::{ApiServer, CacheTtls, Guard, Metrics, Rules, admit, policy::Patterns, self_signed};
use serving::{CertificateError, Certificates, Listener, Tls, TlsError};

/// Why secure metrics cannot be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("--metrics-cert-dir: {}", api_errors::chain(.0))]
    Certificate(CertificateError),
    #[error("--metrics-secure: {0}")]
    Tls(#[from] TlsError),
    #[error("metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// Adds TLS to the listener and a guard to the routes. The certificate is `tls.crt` and `tls.key` in `folder`, or self-signed.
pub(crate) fn secure(
    listener: Listener,
    routes: Router,
    folder: Option<&Path>,
    client: kube::Client,
) -> Result<(Listener, Router), Error> {
    let metrics = Arc::new(Metrics::new()?);
    let certificates = match folder {
        Some(folder) => Certificates::from_files(folder.join("tls.crt"), folder.join("tls.key")),
        None => self_signed(),
    };
    let certificates = certificates.map_err(Error::Certificate)?;
    certificates.observe(metrics.clone());
    let reviewer = Arc::new(ApiServer::new(client, Vec::new()));
    // Clusters let every user read paths such as /healthz, so a token that was admitted there would count as one of a scraper.
    let rules = Rules { allow_paths: Patterns::parse(&["/metrics"]).expect("a pattern"), ..Rules::default() };
    let guard = Arc::new(Guard::new(rules, reviewer, CacheTtls::default(), metrics.clone()));
    let listener = listener.observed_by(metrics).tls(Tls::new(certificates))?;
    Ok((listener, routes.layer(middleware::from_fn_with_state(guard, admit))))
}

#[cfg(test)]
mod tests {
    use axum::{
        body::Body,
        http::{Request, StatusCode},
        routing::get,
    };
    use model_apiserver::Model;
    use tower::ServiceExt;

    use super::*;

    async fn listener() -> Listener {
        Listener::bind(([127, 0, 0, 1], 0).into()).await.expect("a port")
    }

    /// The test `secure_metrics` checks tokens with the binary and a real API server.
    #[tokio::test]
    async fn request_without_token_gets_401_and_only_metrics_are_served() {
        let routes = Router::new().route("/metrics", get(async || "secret"));
        let (_listener, routes) = secure(listener().await, routes, None, Model::new().client()).expect("a server");
        for (path, status) in
            [("/metrics", StatusCode::UNAUTHORIZED), ("/", StatusCode::NOT_FOUND), ("/healthz", StatusCode::NOT_FOUND)]
        {
            let request = Request::get(path).body(Body::empty()).expect("a request");
            let answer = routes.clone().oneshot(request).await.expect("an answer");
            assert_eq!(answer.status(), status, "{path}");
        }
    }

    #[tokio::test]
    async fn missing_certificate_error_names_its_flag() {
        let refused = secure(listener().await, Router::new(), Some(Path::new("nowhere")), Model::new().client());
        let error = refused.err().expect("an error").to_string();
        assert!(error.starts_with("--metrics-cert-dir: ") && error.contains("nowhere"), "{error}");
    }
}
