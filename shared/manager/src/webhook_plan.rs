//! How the flags want webhooks to be served.

use webhooks::{Endpoint, Plan};

use crate::settings::Settings;

/// The plan that the flags request; `None` when webhooks are off, or no flag defines how the API server reaches them.
///
/// # Errors
///
/// A flag is invalid; the message names it.
pub(crate) fn webhook_plan(settings: &Settings, namespace: Option<String>) -> Result<Option<Plan>, String> {
    let Some(address) = settings.webhook_bind_address.0.filter(|_| settings.enable_webhooks) else { return Ok(None) };
    let endpoint = endpoint(settings, namespace)?;
    Ok(match (settings.webhook_cert_dir.clone(), endpoint) {
        (Some(folder), endpoint) => Some(Plan::Folder { address, folder, endpoint }),
        (None, Some(endpoint)) => Some(Plan::Own {
            address,
            endpoint,
            secret: settings.webhook_cert_secret.clone(),
            lifetime: settings.webhook_cert_lifetime,
            configuration: settings.webhook_configuration.clone(),
        }),
        (None, None) => None,
    })
}

/// How the API server reaches the webhooks; `None` when no flag sets it.
fn endpoint(settings: &Settings, namespace: Option<String>) -> Result<Option<Endpoint>, String> {
    if let Some(url) = settings.webhook_client_url.clone() {
        let is_https =
            url.parse::<http::Uri>().is_ok_and(|uri| uri.scheme_str() == Some("https") && uri.host().is_some());
        if !is_https {
            return Err(format!("--webhook-client-url: \"{url}\" is not of the form https://HOST:PORT"));
        }
        return Ok(Some(Endpoint::Url(url)));
    }
    let Some(service) = &settings.webhook_service else { return Ok(None) };
    let (namespace, name) = match service.split_once('/') {
        Some((namespace, name)) => (Some(namespace.to_owned()), name),
        None => (namespace, service.as_str()),
    };
    let namespace = namespace.ok_or("--webhook-service: outside of a cluster, give NAMESPACE/NAME")?;
    Ok(Some(Endpoint::Service { namespace, name: name.to_owned() }))
}
