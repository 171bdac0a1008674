//! Builds the webhook server from the flags.

use std::{io, net::SocketAddr, sync::Arc};

use jiff::SignedDuration;
use kube::Client;
use serving::Listener;

use super::{
    Webhook, Work,
    certificate_manager::{CertificateManager, CertificateStore},
    configuration::Reach,
    pki::{Policy, Settled},
    server::{Source, WebhookHealth, WebhookServer},
    trust::Trust,
};
use crate::{metrics::Metrics, random::Random, settings::Settings};

/// How to serve webhooks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Plan {
    /// With a certificate from a folder.
    Folder { address: SocketAddr, folder: std::path::PathBuf, name: Option<String> },
    /// With a certificate of our own. Replicas behind a Service share it.
    Own { address: SocketAddr, reach: Reach },
}

impl Plan {
    /// The address to listen on.
    pub(crate) fn address(&self) -> SocketAddr {
        let (Self::Folder { address, .. } | Self::Own { address, .. }) = self;
        *address
    }
}

/// The plan that the flags request; `None` when webhooks are off, or no flag defines how the API server reaches them.
///
/// # Errors
///
/// A flag is invalid; the message names it.
pub(crate) fn plan(settings: &Settings, namespace: Option<String>) -> Result<Option<Plan>, String> {
    let Some(address) = settings.webhook_bind_address.0.filter(|_| settings.enable_webhooks) else { return Ok(None) };
    let reach = reach(settings, namespace)?;
    Ok(match (settings.webhook_cert_dir.clone(), reach) {
        (Some(folder), reach) => {
            let name = reach.and_then(|reach| names(&reach).into_iter().next());
            Some(Plan::Folder { address, folder, name })
        }
        (None, Some(reach)) => Some(Plan::Own { address, reach }),
        (None, None) => None,
    })
}

/// How the API server reaches the webhooks; `None` when no flag sets it.
fn reach(settings: &Settings, namespace: Option<String>) -> Result<Option<Reach>, String> {
    if let Some(url) = settings.webhook_client_url.clone() {
        let is_https =
            url.parse::<http::Uri>().is_ok_and(|uri| uri.scheme_str() == Some("https") && uri.host().is_some());
        if !is_https {
            return Err(format!("--webhook-client-url: \"{url}\" is not of the form https://HOST:PORT"));
        }
        return Ok(Some(Reach::Url(url)));
    }
    let Some(service) = &settings.webhook_service else { return Ok(None) };
    let (namespace, name) = match service.split_once('/') {
        Some((namespace, name)) => (Some(namespace.to_owned()), name),
        None => (namespace, service.as_str()),
    };
    let namespace = namespace.ok_or("--webhook-service: outside of a cluster, give NAMESPACE/NAME")?;
    Ok(Some(Reach::Service { namespace, name: name.to_owned() }))
}

/// Binds the port and builds the server. Sends no request yet.
pub(crate) async fn prepare(
    plan: Plan,
    settings: &Settings,
    webhooks: Vec<Webhook>,
    client: &Client,
    metrics: &Arc<Metrics>,
    random: Random,
) -> io::Result<(WebhookServer, WebhookHealth)> {
    let listener = Listener::bind(plan.address()).await?;
    let source = match plan {
        Plan::Folder { folder, name, .. } => Source::Folder { folder, name },
        Plan::Own { reach, .. } => {
            let store = match &reach {
                Reach::Service { namespace, .. } => {
                    CertificateStore::secret(client.clone(), namespace, &settings.webhook_cert_secret)
                }
                Reach::Url(_) => CertificateStore::Memory(None),
            };
            let lifetime = SignedDuration::try_from(settings.webhook_cert_lifetime).unwrap_or(SignedDuration::MAX);
            let policy = Policy { names: names(&reach), lifetime };
            let trust = Trust {
                client: client.clone(),
                reach,
                configuration: settings.webhook_configuration.clone(),
                webhooks: webhooks.clone(),
                before: Vec::new(),
            };
            Source::Own(Box::new(CertificateManager {
                store,
                policy,
                trust,
                served: None,
                settled: Settled::default(),
                random,
            }))
        }
    };
    let health = WebhookHealth::default();
    let server = WebhookServer { listener, webhooks, source, metrics: metrics.clone(), health: health.clone() };
    Ok((server, health))
}

/// The host names or addresses at which the API server calls the webhooks.
fn names(reach: &Reach) -> Vec<String> {
    match reach {
        Reach::Service { namespace, name } => {
            ["", ".cluster.local"].map(|domain| format!("{name}.{namespace}.svc{domain}")).into()
        }
        Reach::Url(url) => {
            let host = url.parse::<http::Uri>().ok().and_then(|uri| uri.host().map(str::to_owned));
            host.map(|host| host.trim_matches(['[', ']']).to_owned()).into_iter().collect()
        }
    }
}

/// Panics when two admission webhooks have the same path: one would answer for the other.
pub(crate) fn assert_paths_differ(webhooks: &[Webhook]) {
    let mut paths: Vec<String> =
        webhooks.iter().filter(|webhook| !matches!(webhook.work, Work::Convert(_))).map(Webhook::path).collect();
    paths.sort_unstable();
    for pair in paths.windows(2) {
        assert_ne!(pair[0], pair[1], "two webhooks are registered at one path");
    }
}
