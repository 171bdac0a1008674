//! Serves the webhooks, on every replica, with the certificate that `keeper` or a folder of files gives.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use jiff::Timestamp;
use serde_json::Value;
use serving::{Certificates, Limits, Listener, Tls};
use tokio_util::sync::CancellationToken;

use super::{
    CONVERT, Webhook, Work,
    keeper::{Keeper, Round},
    pki::Pair,
    review::{self, Malformed, Outcome},
    selfcheck,
};
use crate::{error::chain, metrics::Metrics};

/// As controller-runtime's.
const BODY: usize = 7 * 1024 * 1024;
/// A folder of files is somebody else's to fill; until it is, we look again.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// The server of all webhooks of the process.
pub(crate) struct WebhookServer {
    pub(super) listener: Listener,
    pub(super) webhooks: Vec<Webhook>,
    pub(super) source: Source,
    pub(super) metrics: Arc<Metrics>,
    pub(super) health: WebhookHealth,
}

/// Where the certificate comes from.
pub(super) enum Source {
    /// We make it, and tell the API server.
    Own(Box<Keeper>),
    /// A folder with `tls.crt` and `tls.key`: cert-manager's, or anybody's. Whoever fills it tells the API server.
    Folder {
        folder: PathBuf,
        /// What the API server calls us, if it was said.
        name: Option<String>,
    },
}

/// Whether the webhooks answer, for readiness. A clone tells the same.
#[derive(Debug, Clone)]
pub(crate) struct WebhookHealth(Arc<Mutex<Result<Option<String>, String>>>);

impl Default for WebhookHealth {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Err("the webhooks have no certificate yet".to_owned()))))
    }
}

impl WebhookHealth {
    /// `Ok` with a remark, or what is missing in words a user can act on.
    pub(crate) fn check(&self) -> Result<Option<String>, String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, state: Result<Option<String>, String>) {
        let mut stored = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if *stored != state {
            match &state {
                Ok(None) => tracing::info!("Webhooks answer"),
                Ok(Some(remark)) => tracing::warn!(remark, "Webhooks answer"),
                Err(why) => tracing::warn!(why, "Webhooks do not answer"),
            }
            *stored = state;
        }
    }
}

impl WebhookServer {
    /// Serves until `stop`, then lets running requests end.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let Self { listener, webhooks, source, metrics, health } = self;
        let address = listener.local_addr();
        let serve = |certificates: &Certificates| {
            certificates.observe(Arc::new(Watched(metrics.clone())));
            let limits = Limits { body_size: BODY, ..Limits::default() };
            let listener = listener.limits(limits).tls(Tls::new(certificates.clone()));
            let (routes, health, stop) = (routes(webhooks, &metrics), health.clone(), stop.clone());
            async move {
                match listener {
                    Ok(listener) => drop(listener.serve(routes, stop.cancelled_owned()).await),
                    Err(error) => health.set(Err(chain(&error))),
                }
            }
        };
        match source {
            Source::Folder { folder, name } => {
                let Some(certificates) = from_folder(&folder, &health, &stop).await else { return };
                let authority = folder.join("ca.crt");
                tokio::select! {
                    () = serve(&certificates) => {}
                    () = look(&authority, address, name.as_deref(), &health) => {}
                }
            }
            Source::Own(mut keeper) => {
                let Some(first) = first_round(&mut keeper, &health, &stop).await else { return };
                let Pair { certificate, key } = &first.material.serving;
                let certificates = match Certificates::from_pem(certificate.as_bytes(), key.as_bytes()) {
                    Ok(certificates) => certificates,
                    Err(error) => return health.set(Err(chain(&error))),
                };
                let keeping = async {
                    tokio::select! {
                        () = keep(&mut keeper, first, address, &certificates, &health) => {}
                        () = stop.cancelled() => {}
                    }
                    keeper.trust.withdraw().await;
                };
                tokio::join!(serve(&certificates), keeping);
            }
        }
    }
}

/// With somebody else's certificate: does it answer, and would the authority beside it vouch for it?
async fn look(authority: &Path, address: std::net::SocketAddr, name: Option<&str>, health: &WebhookHealth) {
    loop {
        let bundle = std::fs::read_to_string(authority).ok();
        health.set(selfcheck::check(address, bundle.as_deref(), name).await.map(|()| None));
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
}

async fn from_folder(folder: &Path, health: &WebhookHealth, stop: &CancellationToken) -> Option<Certificates> {
    loop {
        match Certificates::from_files(folder.join("tls.crt"), folder.join("tls.key")) {
            Ok(certificates) => return Some(certificates),
            Err(error) => health.set(Err(format!("--webhook-cert-dir: {}", chain(&error)))),
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_AGAIN) => {}
            () = stop.cancelled() => return None,
        }
    }
}

/// The API server may be away when we start: then nobody calls us either.
async fn first_round(keeper: &mut Keeper, health: &WebhookHealth, stop: &CancellationToken) -> Option<Round> {
    let mut wait = Duration::from_millis(500);
    loop {
        match keeper.round(Timestamp::now()).await {
            Ok(round) => return Some(round),
            Err(error) => health.set(Err(chain(&error))),
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => wait = (wait * 2).min(Duration::from_secs(30)),
            () = stop.cancelled() => return None,
        }
    }
}

/// Renews, reloads, and calls itself, for ever.
async fn keep(
    keeper: &mut Keeper,
    first: Round,
    address: std::net::SocketAddr,
    certificates: &Certificates,
    health: &WebhookHealth,
) {
    let mut in_use = first.material.serving.clone();
    let mut round = Ok(first);
    loop {
        health.set(match round {
            Ok(Round { material, trusted, remark }) => {
                if material.serving != in_use {
                    let (certificate, key) = (material.serving.certificate.as_bytes(), material.serving.key.as_bytes());
                    if let Err(error) = certificates.replace(certificate, key) {
                        tracing::error!(error = chain(&error), "The renewed webhook certificate is not usable");
                    }
                    in_use = material.serving.clone();
                }
                let name = keeper.policy.names.first().cloned();
                selfcheck::check(address, trusted.as_deref(), name.as_deref()).await.map(|()| remark)
            }
            Err(error) => Err(chain(&error)),
        });
        tokio::time::sleep(keeper.interval()).await;
        round = keeper.round(Timestamp::now()).await;
    }
}

/// One route for each webhook, and one for all conversions.
fn routes(webhooks: Vec<Webhook>, metrics: &Arc<Metrics>) -> Router {
    let (converting, admitting): (Vec<_>, Vec<_>) =
        webhooks.into_iter().partition(|webhook| matches!(webhook.work, Work::Convert(_)));
    let mut routes = Router::new();
    for webhook in admitting {
        let path = webhook.path();
        metrics.prepare_webhook(&path);
        let hook = Hook { path: path.clone().into(), webhooks: vec![webhook].into(), metrics: metrics.clone() };
        routes = routes.route(&path, post(answer).with_state(hook));
    }
    if !converting.is_empty() {
        metrics.prepare_webhook(CONVERT);
        let hook = Hook { path: CONVERT.into(), webhooks: converting.into(), metrics: metrics.clone() };
        routes = routes.route(CONVERT, post(answer).with_state(hook));
    }
    routes.layer(DefaultBodyLimit::disable()) // the listener has one
}

#[derive(Clone)]
struct Hook {
    path: Arc<str>,
    webhooks: Arc<[Webhook]>,
    metrics: Arc<Metrics>,
}

async fn answer(State(hook): State<Hook>, headers: axum::http::HeaderMap, body: Bytes) -> Response {
    let metrics = &hook.metrics;
    let running = metrics.webhook_running.with_label_values(&[&*hook.path]);
    running.inc();
    let started = std::time::Instant::now();
    let json = headers.get(header::CONTENT_TYPE).is_some_and(|it| it.as_bytes().starts_with(b"application/json"));
    let result = match (&*hook.webhooks, json) {
        (_, false) => Err(Malformed("expected Content-Type: application/json".to_owned())),
        (webhooks, true) if *hook.path == *CONVERT => review::convert(webhooks, &body),
        ([webhook], true) => review::admit(webhook, &body),
        _ => Err(Malformed("nothing is served here".to_owned())),
    };
    let response = respond(&hook, result);
    metrics.webhook_seconds.with_label_values(&[&*hook.path]).observe(started.elapsed().as_secs_f64());
    metrics.webhook_requests.with_label_values(&[&*hook.path, response.status().as_str()]).inc();
    running.dec();
    response
}

fn respond(hook: &Hook, result: Result<(Value, Outcome), Malformed>) -> Response {
    match result {
        Ok((review, outcome)) => {
            if outcome == Outcome::Panicked {
                let converts = *hook.path == *CONVERT;
                let counter = if converts { &hook.metrics.conversion_panics } else { &hook.metrics.webhook_panics };
                counter.inc();
                tracing::error!(webhook = &*hook.path, "Webhook panicked");
            }
            ([(header::CONTENT_TYPE, "application/json")], review.to_string()).into_response()
        }
        Err(Malformed(why)) => (StatusCode::BAD_REQUEST, why).into_response(),
    }
}

/// controller-runtime's certificate watcher, in metrics.
struct Watched(Arc<Metrics>);

impl serving::Observer for Watched {
    fn certificate(&self, not_after: SystemTime) {
        let seconds = not_after.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        self.0.certificate_expiry.with_label_values::<&str>(&[]).set(i64::try_from(seconds).unwrap_or(i64::MAX));
    }

    fn reloaded(&self, outcome: Result<(), &serving::CertificateError>) {
        self.0.certificate_reads.inc();
        if let Err(error) = outcome {
            self.0.certificate_errors.inc();
            tracing::error!(error = chain(error), "The webhook certificate is not replaced");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::MetricRegistry;

    #[test]
    fn each_look_at_a_certificate_is_counted_and_so_is_each_that_fails() {
        let metrics = Arc::new(Metrics::new(&MetricRegistry::default()));
        let [first, second] = [(); 2].map(|()| {
            let made = rcgen::generate_simple_self_signed(["a".to_owned()]).expect("a certificate");
            (made.cert.pem(), made.signing_key.serialize_pem())
        });
        let certificates = Certificates::from_pem(first.0.as_bytes(), first.1.as_bytes()).expect("a pair");
        certificates.observe(Arc::new(Watched(metrics.clone())));
        let expiry = metrics.certificate_expiry.with_label_values::<&str>(&[]).get();
        assert!(expiry > Timestamp::now().as_second(), "{expiry}");
        let before = metrics.certificate_reads.get();
        certificates.replace(second.0.as_bytes(), second.1.as_bytes()).expect("a pair");
        assert_eq!((metrics.certificate_reads.get() - before, metrics.certificate_errors.get()), (1, 0));
        certificates.replace(first.0.as_bytes(), second.1.as_bytes()).expect_err("no pair");
        assert_eq!((metrics.certificate_reads.get() - before, metrics.certificate_errors.get()), (2, 1));
    }
}
