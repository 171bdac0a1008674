//! Builds the webhook server.

use std::{io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use certificates::{CertificateManager, CertificateStore, Policy};
use fastrand::Rng;
use jiff::SignedDuration;
use kube::Client;
use serving::Listener;

use crate::{
    Observer, Webhook, Work,
    configuration::Endpoint,
    server::{Source, WebhookHealth, WebhookServer},
    trust::Trust,
};

/// How to serve webhooks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// With a certificate from a folder.
    Folder {
        /// The address to listen on.
        address: SocketAddr,
        /// The folder with `tls.crt`, `tls.key` and perhaps `ca.crt`.
        folder: PathBuf,
        /// How the API server reaches the webhooks, if it is known.
        endpoint: Option<Endpoint>,
    },
    /// With a certificate of our own. Replicas behind a Service share it.
    Own {
        /// The address to listen on.
        address: SocketAddr,
        /// How the API server reaches the webhooks.
        endpoint: Endpoint,
        /// The Secret in which replicas behind a Service share the certificate.
        secret: String,
        /// The lifetime of a certificate.
        lifetime: Duration,
        /// The name of the webhook configurations that get the `caBundle`.
        configuration: String,
    },
}

impl Plan {
    /// The address to listen on.
    pub fn address(&self) -> SocketAddr {
        let (Self::Folder { address, .. } | Self::Own { address, .. }) = self;
        *address
    }
}

/// Binds the port and builds the server. Sends no request yet. The server answers `own` and `foreign` webhooks, and writes the
/// `caBundle` for `own` ones only.
///
/// # Errors
///
/// The address cannot be bound.
pub async fn prepare(
    plan: Plan,
    own: Vec<Webhook>,
    foreign: Vec<Webhook>,
    client: &Client,
    observer: Arc<dyn Observer>,
    random: Rng,
) -> io::Result<(WebhookServer, WebhookHealth)> {
    let listener = Listener::bind(plan.address()).await?;
    let source = match plan {
        Plan::Folder { folder, endpoint, .. } => {
            Source::Folder { folder, name: endpoint.and_then(|it| names(&it).into_iter().next()) }
        }
        Plan::Own { endpoint, secret, lifetime, configuration, .. } => {
            let store = match &endpoint {
                Endpoint::Service { namespace, .. } => CertificateStore::secret(client.clone(), namespace, &secret),
                Endpoint::Url(_) => CertificateStore::Memory(None),
            };
            let lifetime = SignedDuration::try_from(lifetime).unwrap_or(SignedDuration::MAX);
            let policy = Policy { purpose: "webhooks", names: names(&endpoint), lifetime };
            let trust =
                Trust { client: client.clone(), endpoint, configuration, webhooks: own.clone(), before: Vec::new() };
            Source::Own(Box::new(CertificateManager::new(store, policy, trust, random)))
        }
    };
    let health = WebhookHealth::default();
    let server = WebhookServer { listener, own, foreign, source, observer, health: health.clone() };
    Ok((server, health))
}

/// The host names or addresses at which the API server calls the webhooks.
fn names(endpoint: &Endpoint) -> Vec<String> {
    match endpoint {
        Endpoint::Service { namespace, name } => {
            ["", ".cluster.local"].map(|domain| format!("{name}.{namespace}.svc{domain}")).into()
        }
        Endpoint::Url(url) => {
            let host = url.parse::<http::Uri>().ok().and_then(|uri| uri.host().map(str::to_owned));
            host.map(|host| host.trim_matches(['[', ']']).to_owned()).into_iter().collect()
        }
    }
}

/// Checks that no two admission webhooks have the same path: one would answer for the other.
///
/// # Panics
///
/// When two have.
pub fn assert_paths_differ(webhooks: &[Webhook]) {
    let mut paths: Vec<String> =
        webhooks.iter().filter(|webhook| !matches!(webhook.work, Work::Convert(..))).map(Webhook::path).collect();
    paths.sort_unstable();
    for pair in paths.windows(2) {
        assert_ne!(pair[0], pair[1], "two webhooks are registered at one path");
    }
}
