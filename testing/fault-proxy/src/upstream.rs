//! The server behind the proxy, and the requests to it.

use std::path::Path;

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{HeaderMap, Request, Response, header};
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};

/// A server, and the credentials of the proxy.
#[derive(Clone)]
pub struct Upstream {
    client: Client,
    pub(crate) identity: String,
    /// Whether the proxy has its own credentials. It then does not forward those of the client.
    authenticated: bool,
}

/// The headers that belong to one connection and not to the request.
const HOP_BY_HOP: [header::HeaderName; 5] =
    [header::HOST, header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::UPGRADE];

impl Upstream {
    /// The API server of a kubeconfig. The proxy authenticates as the kubeconfig's user.
    pub async fn cluster(kubeconfig: &Path) -> Result<Self> {
        let named = || format!("cannot use kubeconfig {}", kubeconfig.display());
        let file = Kubeconfig::read_from(kubeconfig).with_context(named)?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.with_context(named)?;
        Self::of(config, String::new(), true)
    }

    /// Any HTTP service, such as `http://127.0.0.1:9000`. The client's credentials pass through.
    pub fn service(url: &str) -> Result<Self> {
        let url = url.parse().with_context(|| format!("`{url}` is not a URL"))?;
        Self::of(Config::new(url), String::new(), false)
    }

    /// Sets the name by which plans identify clients without a token.
    #[must_use]
    pub fn named(mut self, identity: &str) -> Self {
        identity.clone_into(&mut self.identity);
        self
    }

    fn of(mut config: Config, identity: String, authenticated: bool) -> Result<Self> {
        // An error means that a provider is installed already, which works as well.
        drop(rustls::crypto::ring::default_provider().install_default());
        config.default_retry = false; // only the client may retry, since its retries are under test
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

/// The headers without those that belong to one connection.
pub(crate) fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
    headers
}
