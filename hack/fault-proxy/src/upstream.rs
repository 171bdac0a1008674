//! The server behind the proxy.

use std::path::Path;

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{HeaderMap, Request, Response, header};
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};

/// A server, and who the proxy is to it.
#[derive(Clone)]
pub struct Upstream {
    client: Client,
    pub(crate) identity: String,
    /// Whether we have credentials of our own, so that those of the client stay here.
    authenticated: bool,
}

/// What belongs to one connection and not to the request.
const HOP_BY_HOP: [header::HeaderName; 5] =
    [header::HOST, header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::UPGRADE];

impl Upstream {
    /// The API server of a kubeconfig, as its user.
    pub async fn cluster(kubeconfig: &Path) -> Result<Self> {
        let named = || format!("cannot use kubeconfig {}", kubeconfig.display());
        let file = Kubeconfig::read_from(kubeconfig).with_context(named)?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.with_context(named)?;
        Self::of(config, String::new(), true)
    }

    /// Any HTTP service, such as `http://127.0.0.1:9000`. The client's credentials pass through.
    pub fn service(url: &str) -> Result<Self> {
        let url = url.parse().with_context(|| format!("`{url}` is no URL"))?;
        Self::of(Config::new(url), String::new(), false)
    }

    /// The same, and plans know clients without a token of their own by this name.
    #[must_use]
    pub fn named(mut self, identity: &str) -> Self {
        identity.clone_into(&mut self.identity);
        self
    }

    fn of(mut config: Config, identity: String, authenticated: bool) -> Result<Self> {
        // A second installation is refused, and the first is as good.
        drop(rustls::crypto::ring::default_provider().install_default());
        config.default_retry = false; // it is the client's retries that are looked at
        (config.read_timeout, config.write_timeout) = (None, None);
        Ok(Self { client: Client::try_from(config)?, identity, authenticated })
    }

    pub(crate) async fn send(&self, head: &http::request::Parts, body: Bytes) -> Result<Response<Body>, kube::Error> {
        let mut request = Request::builder().method(head.method.clone()).uri(head.uri.clone());
        if let Some(headers) = request.headers_mut() {
            *headers = end_to_end(&head.headers);
            if self.authenticated {
                headers.remove(header::AUTHORIZATION);
            }
        }
        let request = request.body(Body::from(body)).map_err(kube::Error::HttpError)?;
        self.client.send(request).await
    }
}

/// The headers that are meant for the other end.
pub(crate) fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
    headers
}
